// gpt2.cpp -- GPT-2: memory, forward, then backward as its mirror. Formulas are in kernels.h, tensors in gpt2.h.
#include "models/gpt2.h"
#include "models/linear.h"

namespace BACKEND {
namespace {

constexpr float kEps = 1e-5f;    // of LayerNorm

// What forward leaves for backward. Of block L there are only inp and ln1: the model's end is its final norm.
// With --recompute some of it is one array of all blocks, filled again by backward:
//   1  gelu     2  ln1, ln2 too     3  everything of a block but its input
struct Block {
    floatX *inp;                // (N,C)    the residual stream
    floatX *ln1;                // (N,C)
    float *ln1_mean, *ln1_rstd; // (N)
    floatX *qkv;                // (N,3C)
    floatX *att;                // (N,C)
    float *lse;                 // (B,NH,T)
    floatX *mid;                // (N,C)    the residual stream after attention
    floatX *ln2;                // (N,C)
    float *ln2_mean, *ln2_rstd; // (N)
    floatX *fc, *gelu;          // (N,4C)   before and after the activation
};

struct Gpt2 {
    std::vector<Block> block;   // L + 1
    floatX *branch;             // (N,C)    what joins the residual stream next; in backward its gradient, with dropout
    // backward
    floatX *dresidual;          // (N,C)    the residual stream's gradient, carried from the head to the embedding
    floatX *dwide;              // (N,4C)   gradient of fc, and of qkv
    float *delta;               // (B,NH,T)
};

// Tensors 0 and 1 are wte and wpe; those of block l begin with ln1's, those of block L are the final norm's.
int block_begin(int l) { return 2 + l * count_tensors<Gpt2Block>(); }
int block_end(const Model* m, int l) { return l < m->shape.L ? block_begin(l + 1) : int(m->arena.tensors.size()); }

enum Site { kEmbedding = -1, kAttention, kProjection, kMlp };       // of dropout; block l adds 4 l

void plan(Model* m, Layout& place) {
    const Shape& c = m->shape;
    Gpt2& a = own<Gpt2>(m);
    const size_t N = size_t(m->B) * size_t(m->T), C = size_t(c.C), rows = N * size_t(c.NH);
    a.block.resize(size_t(c.L) + 1);
    for (Block& b : a.block) {
        const bool last = &b == &a.block.back(), owns_all = last || &b == &a.block[0];
        // An array of the block's own, or that of block 0 from this level of --recompute on.
        const auto keep = [&]<class T>(T* Block::*array, size_t n, int shared_from) {
            if (owns_all || m->recompute < shared_from) place(b.*array, n);
            else b.*array = a.block[0].*array;
        };
        place(b.inp, N * C);
        keep(&Block::ln1, N * C, 2);
        keep(&Block::ln1_mean, N, 3);
        keep(&Block::ln1_rstd, N, 3);
        if (last) break;
        keep(&Block::qkv, N * 3 * C, 3);
        keep(&Block::att, N * C, 3);
        keep(&Block::lse, rows, 3);
        keep(&Block::mid, N * C, 3);
        keep(&Block::ln2, N * C, 2);
        keep(&Block::ln2_mean, N, 3);
        keep(&Block::ln2_rstd, N, 3);
        keep(&Block::fc, N * 4 * C, 3);
        keep(&Block::gelu, N * 4 * C, 1);
    }
    place(a.branch, N * C);
    if (!m->training) return;
    place(a.dresidual, N * C);
    place(a.dwide, N * 4 * C);
    place(a.delta, rows);
}

// ------------------------------------------------------------------------------------------------------------- forward

// A block from ln1 as far as backward needs it: all but the MLP's projection.
void forward_block(Model* m, const Pass& pass, int l) {
    const Block& b = own<Gpt2>(m).block[l];
    const auto w = tensors<Gpt2Block>(m->weights, block_begin(l));
    floatX* const branch = own<Gpt2>(m).branch;
    const int C = m->shape.C, NH = m->shape.NH, maxT = m->shape.T, N = pass.N();
    linear_forward(m, b.qkv, b.ln1, w.qkvw, w.qkvb, N);
    if (pass.cache) {           // (L,2,NH,maxT,HS)
        floatX* const cache = static_cast<floatX*>(pass.cache) + size_t(l) * 2 * size_t(maxT) * size_t(C);
        attention_cached(b.att, cache, b.qkv, pass.first, pass.T, maxT, NH, NH, C / NH, kMain);
    } else {
        const Dropout drop = dropout(m, pass, 4 * l + kAttention);
        attention_forward(b.att, b.lse, b.qkv, pass.B, pass.T, NH, NH, C / NH, drop, kMain);
    }
    linear_forward(m, branch, b.att, w.attprojw, w.attprojb, N);
    residual_layernorm_forward(b.mid, b.ln2, b.ln2_mean, b.ln2_rstd, b.inp, branch, w.ln2w, w.ln2b, kEps, N,
                               C, dropout(m, pass, 4 * l + kProjection), kMain);
    linear_forward(m, b.gelu, b.ln2, w.fcw, w.fcb, N, b.fc);
}

const floatX* forward(Model* m, const Pass& pass) {
    Gpt2& a = own<Gpt2>(m);
    const int C = m->shape.C, N = pass.N();
    pass.needed(0, block_end(m, 0));
    const Block& b = a.block[0];
    floatX* const* w = m->weights.data();
    embedding_forward(b.inp, m->tokens, w[0], w[1], pass.B, pass.T, C, pass.first, dropout(m, pass, kEmbedding), kMain);
    layernorm_forward(b.ln1, b.ln1_mean, b.ln1_rstd, b.inp, w[2], w[3], kEps, N, C, kMain);
    for (int l = 0; l < m->shape.L; l++) {
        const Block &block = a.block[l], &next = a.block[l + 1];
        const int end = block_begin(l + 1);
        forward_block(m, pass, l);
        linear_forward(m, a.branch, block.gelu, w[end - 2], w[end - 1], N);        // fcproj
        pass.needed(end, block_end(m, l + 1));
        residual_layernorm_forward(next.inp, next.ln1, next.ln1_mean, next.ln1_rstd, block.mid, a.branch, w[end],
                                   w[end + 1], kEps, N, C, dropout(m, pass, 4 * l + kMlp), kMain);
    }
    return a.block.back().ln1;
}

// ------------------------------------------------------------------------------------------------------------ backward

// Fills again what block l shares with others.
void recompute_block(Model* m, const Pass& pass, int l) {
    const Block& b = own<Gpt2>(m).block[l];
    const auto w = tensors<Gpt2Block>(m->weights, block_begin(l));
    const int C = m->shape.C, N = pass.N(), level = m->recompute;
    if (l + 1 == m->shape.L) return;                // forward has left its arrays as they should be
    if (level >= 2) layernorm_forward(b.ln1, b.ln1_mean, b.ln1_rstd, b.inp, w.ln1w, w.ln1b, kEps, N, C, kMain);
    if (level >= 3) return forward_block(m, pass, l);
    if (level >= 2) layernorm_forward(b.ln2, b.ln2_mean, b.ln2_rstd, b.mid, w.ln2w, w.ln2b, kEps, N, C, kMain);
    if (level >= 1) gelu_forward(b.gelu, b.fc, size_t(N) * 4 * size_t(C), kMain);
}

// dresidual is the gradient of the residual stream: each branch reads it, and adds its part through its LayerNorm.
// dnorm: (N,C) scratch memory, the gradient of a LayerNorm's output.
void backward_block(Model* m, const Pass& pass, int l, floatX* dnorm) {
    const Gpt2& a = own<Gpt2>(m);
    const Block& b = a.block[l];
    const auto w = tensors<Gpt2Block>(m->weights, block_begin(l));
    const auto d = tensors<Gpt2Block>(m->grads, block_begin(l));
    const int C = m->shape.C, NH = m->shape.NH, N = pass.N();
    const bool acc = pass.accumulate;
    const floatX* dmlp = drop(m, pass, 4 * l + kMlp, a.branch, a.dresidual);
    linear_backward(m, a.dwide, dmlp, b.gelu, w.fcprojw, w.fcprojb, N, acc, b.fc);
    linear_backward(m, dnorm, a.dwide, b.ln2, w.fcw, w.fcb, N, acc);
    layernorm_backward(a.dresidual, d.ln2w, d.ln2b, dnorm, b.mid, b.ln2_mean, b.ln2_rstd, w.ln2w, N, C, false, acc,
                       kMain);

    const floatX* dproj = drop(m, pass, 4 * l + kProjection, a.branch, a.dresidual);
    linear_backward(m, dnorm, dproj, b.att, w.attprojw, w.attprojb, N, acc);
    attention_backward(a.dwide, a.delta, dnorm, b.qkv, b.att, b.lse, pass.B, pass.T, NH, NH, C / NH,
                       dropout(m, pass, 4 * l + kAttention), kMain);
    linear_backward(m, dnorm, a.dwide, b.ln1, w.qkvw, w.qkvb, N, acc);
    layernorm_backward(a.dresidual, d.ln1w, d.ln1b, dnorm, b.inp, b.ln1_mean, b.ln1_rstd, w.ln1w, N, C, false, acc,
                       kMain);
}

void backward(Model* m, const Pass& pass, floatX* dhidden) {
    Gpt2& a = own<Gpt2>(m);
    const int C = m->shape.C, L = m->shape.L, norm = block_begin(L);
    const bool acc = pass.accumulate;
    const Block& end = a.block.back();
    float* const* d = m->grads.data();
    layernorm_backward(a.dresidual, d[norm], d[norm + 1], dhidden, end.inp, end.ln1_mean, end.ln1_rstd,
                       m->weights[norm], pass.N(), C, true, acc, kMain);
    pass.ready(norm, block_end(m, L));
    for (int l = L - 1; l >= 0; l--) {
        recompute_block(m, pass, l);
        backward_block(m, pass, l, dhidden);
        pass.ready(block_begin(l), block_end(m, l));
    }
    embedding_backward(d[0], d[1], a.dresidual, m->tokens, pass.B, pass.T, C, m->shape.T, dropout(m, pass, kEmbedding),
                       acc, kMain);
    pass.ready(0, block_begin(0));
}

}  // namespace

extern const ModelKind gpt2_kind = {
    .plan = plan,
    .forward = forward,
    .backward = backward,
    .cache_bytes = [](const Shape& c) { return size_t(c.L) * 2 * size_t(c.T) * size_t(c.C) * sizeof(floatX); },
};

}  // namespace BACKEND
