// gpt2.cpp -- GPT-2: memory, forward, and backward, which goes through forward's steps in reverse
// order. Formulas are in kernels.h and model.h, tensors in gpt2.h. Layout is in src/base/arena.h.
#include "models/gpt2.h"
#include "models/model.h"

namespace BACKEND {
namespace {

constexpr float kEps = 1e-5f;    // LayerNorm's eps

// The arrays that a block's forward writes and its backward reads. With --recompute all blocks
// share some of them, and backward computes these again. By level they are:
//   1  gelu     2  also the outputs of ln1 and ln2     3  all but the block's input
struct Block {
    // ln1.inp is the residual stream. The norms have only their arrays; norm_of sets the rest.
    LayerNorm ln1;
    floatX *qkv;                // (N,3C)
    floatX *att;                // (N,C)
    float *lse;                 // (B,NH,T) log-sum-exp of each row of attention scores
    LayerNorm ln2;
    floatX *fc, *gelu;          // (N,4C)   before and after the activation
};

struct Gpt2 {
    std::vector<Block> block;   // L
    LayerNorm lnf;              // the final norm; its output is the hidden state
    floatX *branch;             // (N,C)    output of attention or MLP; in backward its gradient
    // backward
    floatX *dresidual;          // (N,C)    the residual stream's gradient, from head to embedding
    floatX *dwide;              // (N,4C)   gradient of fc, then of qkv
    float *delta;               // (B,NH,T) work space of attention_backward
};

// Return where block l's tensors begin and end in the table; for l = L those of the final norm.
int block_begin(int l) { return 2 + 12 * l; }
int block_end(const Model* m, int l) {
    return l < m->shape.L ? block_begin(l + 1) : int(m->arena.tensors.size());
}

// Return by name the tensors of block l, and those before and after the blocks.
// all: all weights or all gradients.
template <class F> Gpt2Block<F> block_of(const std::vector<F>& all, int l) {
    const F* const t = &all[block_begin(l)];
    return {{t[0], t[1]}, t[2], t[3], t[4], t[5], {t[6], t[7]}, t[8], t[9], t[10], t[11]};
}
template <class F> Gpt2Ends<F> ends_of(const std::vector<F>& all) {
    const size_t lnf = all.size() - 2;
    return {all[0], all[1], {all[lnf], all[lnf + 1]}};
}

// The places of dropout: 4 l + 0, 1, 2 in block l, and -1 for the embedding. 4 l + 3 is unused.
enum Site { kEmbedding = -1, kAttention, kProjection, kMlp };

void plan(Model* m, Layout& place) {
    const Shape& c = m->shape;
    Gpt2& a = own<Gpt2>(m);
    const size_t N = size_t(m->B) * m->T, C = c.C, rows = N * c.NH;
    a.block.resize(c.L);
    for (Block& b : a.block) {
        // A block uses the first block's array unless `keep` gives it its own.
        b = a.block[0];
        const auto keep = [&](auto*& array, size_t n, int shared_from) {
            if (&b == &a.block[0] || m->recompute < shared_from) place(array, n);
        };
        place_residual(m, place, b.ln1.inp, N * C);
        keep(b.ln2.inp, N * C, 3);
        for (LayerNorm* norm : {&b.ln1, &b.ln2}) {
            keep(norm->out, N * C, 2);
            keep(norm->mean, N, 3);
            keep(norm->rstd, N, 3);
        }
        keep(b.qkv, N * 3 * C, 3);
        keep(b.att, N * C, 3);
        keep(b.lse, rows, 3);
        keep(b.fc, N * 4 * C, 3);
        keep(b.gelu, N * 4 * C, 1);
    }
    place_residual(m, place, a.lnf.inp, N * C);
    place(a.lnf.out, N * C);
    place(a.lnf.mean, N);
    place(a.lnf.rstd, N);
    place(a.branch, N * C);
    if (!m->training) return;
    place(a.dresidual, N * C);
    place(a.dwide, N * 4 * C);
    place(a.delta, rows);
}

Attention attention_of(const Model* m, const Pass& pass, int l) {
    const int NH = m->shape.NH;
    return {.B = pass.B, .T = pass.T, .NH = NH, .NK = NH, .HS = m->shape.C / NH,
            .drop = dropout(m, pass, 4 * l + kAttention), .begin = pass.begin};
}

// Returns the norm, of which the arrays are set, with its weights and sizes for this pass.
LayerNorm norm_of(const Model* m, const Pass& pass, LayerNorm norm, const Gpt2Norm<Weight>& w) {
    norm.N = pass.N();
    norm.C = m->shape.C;
    norm.weight = w.w;
    norm.bias = w.b;
    norm.eps = kEps;
    return norm;
}

// Returns block l's first norm; for l = L the final norm.
LayerNorm norm_before(Model* m, const Pass& pass, int l) {
    const Gpt2& a = own<Gpt2>(m);
    if (l == m->shape.L) return norm_of(m, pass, a.lnf, ends_of(m->weights).lnf);
    return norm_of(m, pass, a.block[l].ln1, block_of(m->weights, l).ln1);
}

Embedding embedding_of(const Model* m, const Pass& pass) {
    return {.B = pass.B, .T = pass.T, .C = m->shape.C, .drop = dropout(m, pass, kEmbedding),
            .begin = pass.begin};
}

// ----------------------------------------------------------------------------------------- forward

// Computes a block from qkv to gelu, which are all arrays that backward needs. The MLP's projection
// comes after it.
void forward_block(Model* m, const Pass& pass, int l) {
    const Block& b = own<Gpt2>(m).block[l];
    const auto w = block_of(m->weights, l);
    floatX* const branch = own<Gpt2>(m).branch;
    const int C = m->shape.C, maxT = m->shape.T, N = pass.N();
    linear_forward(b.qkv, b.ln1.out, w.qkvw, w.qkvb, N);
    if (pass.cache) {           // (L,2,NH,maxT,HS)
        floatX* const cache = static_cast<floatX*>(pass.cache) + size_t(l) * 2 * maxT * C;
        attention_cached(b.att, cache, b.qkv, pass.first, maxT, attention_of(m, pass, l));
    } else {
        attention_forward(b.att, b.lse, b.qkv, attention_of(m, pass, l));
    }
    linear_forward(branch, b.att, w.attprojw, w.attprojb, N);
    residual_layernorm_forward(norm_of(m, pass, b.ln2, w.ln2), b.ln1.inp, branch,
                               dropout(m, pass, 4 * l + kProjection));
    linear_gelu_forward(b.gelu, b.fc, b.ln2.out, w.fcw, w.fcb, N);
}

const floatX* forward(Model* m, const Pass& pass) {
    const Gpt2& a = own<Gpt2>(m);
    const Shape& c = m->shape;
    const auto ends = ends_of(m->weights);
    pass.needed(0, block_end(m, 0));
    embedding_forward(a.block[0].ln1.inp, m->tokens, ends.wte,
                      ends.wpe.at + size_t(pass.first) * c.C, embedding_of(m, pass));
    layernorm_forward(norm_before(m, pass, 0));
    for (int l = 0; l < c.L; l++) {
        const Block& b = a.block[l];
        const auto w = block_of(m->weights, l);
        forward_block(m, pass, l);
        linear_forward(a.branch, b.gelu, w.fcprojw, w.fcprojb, pass.N());
        pass.needed(block_begin(l + 1), block_end(m, l + 1));
        residual_layernorm_forward(norm_before(m, pass, l + 1), b.ln2.inp, a.branch,
                                   dropout(m, pass, 4 * l + kMlp));
    }
    return a.lnf.out;
}

// ---------------------------------------------------------------------------------------- backward

// Computes again the arrays that block l shares with other blocks.
void recompute_block(Model* m, const Pass& pass, int l) {
    const Block& b = own<Gpt2>(m).block[l];
    const auto w = block_of(m->weights, l);
    const int level = m->recompute;
    if (l + 1 == m->shape.L) return;    // forward computed it last: the arrays hold its values
    if (level >= 2) layernorm_forward(norm_before(m, pass, l));
    if (level >= 3) return forward_block(m, pass, l);
    if (level >= 2) layernorm_forward(norm_of(m, pass, b.ln2, w.ln2));
    if (level >= 1) gelu_forward(b.gelu, b.fc, size_t(pass.N()) * 4 * m->shape.C);
}

// Computes block l's parameter gradients. a.dresidual is the gradient of the residual stream. Each
// branch, MLP and attention, reads it as the gradient of its output; layernorm_backward then adds
// the gradient of the branch's input to it. dinp: (N,C) scratch, the gradient of the input of the
// product before it: ln2.out, att, ln1.out.
void backward_block(Model* m, const Pass& pass, int l, floatX* dinp) {
    const Gpt2& a = own<Gpt2>(m);
    const Block& b = a.block[l];
    const auto w = block_of(m->weights, l);
    const auto d = block_of(m->grads, l);
    const int N = pass.N();
    const bool acc = pass.accumulate;
    const floatX* dmlp = drop(m, pass, 4 * l + kMlp, a.branch, a.dresidual);
    gelu_linear_backward(a.dwide, d.fcprojw, d.fcprojb, dmlp, b.gelu, b.fc, w.fcprojw, N, acc);
    linear_backward(dinp, d.fcw, d.fcb, a.dwide, b.ln2.out, w.fcw, N, acc);
    layernorm_backward(a.dresidual, d.ln2.w, d.ln2.b, dinp, norm_of(m, pass, b.ln2, w.ln2),
                       /*first=*/false, acc);

    const floatX* dproj = drop(m, pass, 4 * l + kProjection, a.branch, a.dresidual);
    linear_backward(dinp, d.attprojw, d.attprojb, dproj, b.att, w.attprojw, N, acc);
    attention_backward(a.dwide, a.delta, dinp, b.qkv, b.att, b.lse, attention_of(m, pass, l));
    linear_backward(dinp, d.qkvw, d.qkvb, a.dwide, b.ln1.out, w.qkvw, N, acc);
    layernorm_backward(a.dresidual, d.ln1.w, d.ln1.b, dinp, norm_before(m, pass, l),
                       /*first=*/false, acc);
}

void backward(Model* m, const Pass& pass, floatX* dhidden) {
    const Gpt2& a = own<Gpt2>(m);
    const int L = m->shape.L;
    const bool acc = pass.accumulate;
    const auto d = ends_of(m->grads);
    layernorm_backward(a.dresidual, d.lnf.w, d.lnf.b, dhidden, norm_before(m, pass, L),
                       /*first=*/true, acc);
    pass.ready(block_begin(L), block_end(m, L));
    for (int l = L - 1; l >= 0; l--) {
        recompute_block(m, pass, l);
        backward_block(m, pass, l, dhidden);
        pass.ready(block_begin(l), block_end(m, l));
    }
    embedding_backward(d.wte, d.wpe, a.dresidual, m->tokens, m->shape.T, embedding_of(m, pass),
                       acc);
    pass.ready(0, block_begin(0));
}

}  // namespace

extern const ModelKind gpt2_kind = {
    .plan = plan,
    .forward = forward,
    .backward = backward,
    .cache_bytes = [](const Shape& c) { return size_t(c.L) * 2 * c.T * c.C * sizeof(floatX); },
};

}  // namespace BACKEND
