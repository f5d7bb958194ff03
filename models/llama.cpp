// llama.cpp -- the Llama family: memory, forward, then backward as its mirror. Formulas are in kernels.h and
// llama_ops.h, tensors in llama_config.cpp.
#include "models/llama.h"
#include "models/linear.h"
#include "models/llama_ops.h"

namespace BACKEND {
namespace {

// What forward leaves for backward. Of block L there are only inp and ln1: the model's end is its final norm.
// With --recompute some of it is one array of all blocks, filled again by backward:
//   1  act     2  ln1, ln2 too     3  everything of a block but its input
struct Block {
    floatX *inp;                // (N,C)    the residual stream
    floatX *ln1;                // (N,C)
    float *ln1_rstd;            // (N)
    floatX *qkv;                // (N,heads,HS)
    floatX *raw;                // (N,NH+NK,HS)     q and k before their norm, of Qwen3
    float *raw_rstd;            // (N,NH+NK)
    floatX *att;                // (N,NH,HS)
    float *lse;                 // (B,NH,T)
    floatX *mid;                // (N,C)    the residual stream after attention
    floatX *ln2;                // (N,C)
    float *ln2_rstd;            // (N)
    floatX *gateup;             // (N,2F)   in backward its gradient
    floatX *act;                // (N,F)
};

struct Llama {
    LlamaKind kind;
    std::vector<Block> block;   // L + 1
    float *rotary;              // (context,HS/2,2)
    floatX *branch;             // (N,C)    what joins the residual stream next
    // backward
    floatX *dresidual;          // (N,C)    the residual stream's gradient, carried from the head to the embedding
    floatX *dact;               // (N,F)
    floatX *datt;               // (N,NH,HS)
    floatX *dqkv;               // (N,heads,HS)
    float *delta;               // (B,NH,T)
    float *dnorms;              // work space of norm_heads_backward
};

int block_tensors(LlamaKind kind) { return 6 + kind.bias + 2 * kind.norms; }

// Tensor 0 is the embedding; with a head of its own that is tensor 0, and the embedding tensor 1.
int embedding_of(Model* m) { return untied_head(m->shape); }
int block_begin(Model* m, int l) { return embedding_of(m) + 1 + l * block_tensors(own<Llama>(m).kind); }
int block_end(Model* m, int l) { return l < m->shape.L ? block_begin(m, l + 1) : int(m->arena.tensors.size()); }

// The pointers of block l, of weights or of gradients.
template <class F> LlamaBlock<F> tensors_of(Model* m, const std::vector<F*>& all, int l) {
    const LlamaKind kind = own<Llama>(m).kind;
    F* const* next = all.data() + block_begin(m, l);
    const auto take = [&](bool there) { return there ? *next++ : nullptr; };
    return {take(true), take(true), take(kind.bias), take(kind.norms), take(kind.norms), take(true), take(true),
            take(true), take(true)};
}

void plan(Model* m, Layout& place, LlamaKind kind) {
    const LlamaSizes c(m->shape);
    Shape shape = m->shape;
    Llama& a = own<Llama>(m);
    a.kind = kind;
    const size_t N = size_t(m->B) * size_t(m->T), C = size_t(c.C), HS = size_t(c.HS), F = size_t(c.F);
    const size_t rows = N * size_t(c.NH), normed = size_t(c.NH + c.NK), width = size_t(c.width);
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
        keep(&Block::ln1_rstd, N, 3);
        if (last) break;
        keep(&Block::qkv, N * width, 3);
        if (kind.norms) keep(&Block::raw, N * normed * HS, 3);
        if (kind.norms) keep(&Block::raw_rstd, N * normed, 3);
        keep(&Block::att, rows * HS, 3);
        keep(&Block::lse, rows, 3);
        keep(&Block::mid, N * C, 3);
        keep(&Block::ln2, N * C, 2);
        keep(&Block::ln2_rstd, N, 3);
        keep(&Block::gateup, N * 2 * F, 3);
        keep(&Block::act, N * F, 1);
    }
    place(a.rotary, size_t(shape.T) * HS);
    place(a.branch, N * C);
    if (place.memory)
        rotary_table(a.rotary, shape.T, c.HS, {rope_theta(shape), rope_factor(shape), rope_low(shape), rope_high(shape),
                     rope_context(shape)}, kMain);
    if (!m->training) return;
    place(a.dresidual, N * C);
    place(a.dact, N * F);
    place(a.datt, rows * HS);
    place(a.dqkv, N * width);
    place(a.delta, rows);
    if (kind.norms) place(a.dnorms, kNormSums * size_t(c.NH + c.NK) * HS);
}

// ------------------------------------------------------------------------------------------------------------- forward

// A block from qkv as far as backward needs it: all but the MLP's last product.
void forward_block(Model* m, const Pass& pass, int l) {
    const LlamaSizes c(m->shape);
    const Llama& a = own<Llama>(m);
    const Block& b = a.block[size_t(l)];
    const auto w = tensors_of(m, m->weights, l);
    const int N = pass.N(), maxT = m->shape.T;
    const float eps = norm_eps(m->shape);
    linear_forward(m, b.qkv, b.ln1, w.qkvw, w.qkvb, N);
    if (a.kind.norms)
        norm_heads_forward(b.qkv, b.raw, b.raw_rstd, w.qnormw, w.knormw, N, c.NH, c.NK, c.HS, eps, kMain);
    rotate_heads(b.qkv, a.rotary, N, pass.T, pass.first, c.NH, c.NK, c.HS, false, kMain);
    if (pass.cache) {           // (L,2,NK,maxT,HS)
        const size_t layer = size_t(2) * size_t(c.NK) * size_t(maxT) * size_t(c.HS);
        floatX* const cache = static_cast<floatX*>(pass.cache) + size_t(l) * layer;
        attention_cached(b.att, cache, b.qkv, pass.first, pass.T, maxT, c.NH, c.NK, c.HS, kMain);
    } else {
        attention_forward(b.att, b.lse, b.qkv, pass.B, pass.T, c.NH, c.NK, c.HS, {}, kMain);
    }
    linear_forward(m, a.branch, b.att, w.ow, nullptr, N);
    residual_layernorm_forward(b.mid, b.ln2, nullptr, b.ln2_rstd, b.inp, a.branch, w.ln2w, nullptr, eps, N, c.C, {},
                               kMain);
    linear_forward(m, b.gateup, b.ln2, w.gateupw, nullptr, N);
    swiglu_forward(b.act, b.gateup, N, c.F, kMain);
}

const floatX* forward(Model* m, const Pass& pass) {
    const Llama& a = own<Llama>(m);
    const int C = m->shape.C, N = pass.N(), embedding = embedding_of(m);
    const float eps = norm_eps(m->shape);
    pass.needed(0, block_end(m, 0));
    const Block& b = a.block[0];
    embedding_forward(b.inp, m->tokens, m->weights[size_t(embedding)], nullptr, pass.B, pass.T, C, 0, {}, kMain);
    layernorm_forward(b.ln1, nullptr, b.ln1_rstd, b.inp, tensors_of(m, m->weights, 0).ln1w, nullptr, eps, N, C, kMain);
    for (int l = 0; l < m->shape.L; l++) {
        const Block &block = a.block[size_t(l)], &next = a.block[size_t(l) + 1];
        forward_block(m, pass, l);
        const auto w = tensors_of(m, m->weights, l);
        linear_forward(m, a.branch, block.act, w.downw, nullptr, N);
        pass.needed(block_begin(m, l + 1), block_end(m, l + 1));
        residual_layernorm_forward(next.inp, next.ln1, nullptr, next.ln1_rstd, block.mid, a.branch,
                                   m->weights[size_t(block_begin(m, l + 1))], nullptr, eps, N, C, {}, kMain);
    }
    return a.block.back().ln1;
}

// ------------------------------------------------------------------------------------------------------------ backward

// Fills again what block l shares with others.
void recompute_block(Model* m, const Pass& pass, int l) {
    const Block& b = own<Llama>(m).block[size_t(l)];
    const auto w = tensors_of(m, m->weights, l);
    const int C = m->shape.C, N = pass.N(), level = m->recompute;
    const float eps = norm_eps(m->shape);
    if (l + 1 == m->shape.L) return;                // forward has left its arrays as they should be
    if (level >= 2) layernorm_forward(b.ln1, nullptr, b.ln1_rstd, b.inp, w.ln1w, nullptr, eps, N, C, kMain);
    if (level >= 3) return forward_block(m, pass, l);
    if (level >= 2) layernorm_forward(b.ln2, nullptr, b.ln2_rstd, b.mid, w.ln2w, nullptr, eps, N, C, kMain);
    if (level >= 1) swiglu_forward(b.act, b.gateup, N, LlamaSizes(m->shape).F, kMain);
}

// dresidual is the gradient of the residual stream: each branch reads it, and adds its part through its norm.
// dnorm: (N,C) scratch memory, the gradient of a norm's output.
void backward_block(Model* m, const Pass& pass, int l, floatX* dnorm) {
    const LlamaSizes c(m->shape);
    const Llama& a = own<Llama>(m);
    const Block& b = a.block[size_t(l)];
    const auto w = tensors_of(m, m->weights, l);
    const auto d = tensors_of(m, m->grads, l);
    const int N = pass.N();
    const bool acc = pass.accumulate;
    linear_backward(m, a.dact, a.dresidual, b.act, w.downw, nullptr, N, acc);
    swiglu_backward(b.gateup, a.dact, N, c.F, kMain);
    linear_backward(m, dnorm, b.gateup, b.ln2, w.gateupw, nullptr, N, acc);
    layernorm_backward(a.dresidual, d.ln2w, nullptr, dnorm, b.mid, nullptr, b.ln2_rstd, w.ln2w, N, c.C, false, acc,
                       kMain);

    linear_backward(m, a.datt, a.dresidual, b.att, w.ow, nullptr, N, acc);
    attention_backward(a.dqkv, a.delta, a.datt, b.qkv, b.att, b.lse, pass.B, pass.T, c.NH, c.NK, c.HS, {}, kMain);
    rotate_heads(a.dqkv, a.rotary, N, pass.T, 0, c.NH, c.NK, c.HS, true, kMain);
    if (a.kind.norms)
        norm_heads_backward(a.dqkv, d.qnormw, d.knormw, a.dnorms, b.raw, b.raw_rstd, w.qnormw, w.knormw, N, c.NH, c.NK,
                            c.HS, acc, kMain);
    linear_backward(m, dnorm, a.dqkv, b.ln1, w.qkvw, w.qkvb, N, acc);
    layernorm_backward(a.dresidual, d.ln1w, nullptr, dnorm, b.inp, nullptr, b.ln1_rstd, w.ln1w, N, c.C, false, acc,
                       kMain);
}

void backward(Model* m, const Pass& pass, floatX* dhidden) {
    Llama& a = own<Llama>(m);
    const int C = m->shape.C, L = m->shape.L, embedding = embedding_of(m);
    const Block& end = a.block.back();
    const size_t norm = size_t(block_begin(m, L));
    layernorm_backward(a.dresidual, m->grads[norm], nullptr, dhidden, end.inp, nullptr, end.ln1_rstd, m->weights[norm],
                       pass.N(), C, true, pass.accumulate, kMain);
    pass.ready(int(norm), block_end(m, L));
    for (int l = L - 1; l >= 0; l--) {
        recompute_block(m, pass, l);
        backward_block(m, pass, l, dhidden);
        pass.ready(block_begin(m, l), block_end(m, l));
    }
    float* const dembedding = m->grads[size_t(embedding)];      // a tied head has written its part
    if (embedding && dembedding && !pass.accumulate)
        device_zero(dembedding, size_t(m->shape.Vp) * size_t(C) * sizeof(float), kMain);
    embedding_backward(dembedding, nullptr, a.dresidual, m->tokens, pass.B, pass.T, C, m->shape.T, {}, pass.accumulate,
                       kMain);
    pass.ready(0, block_begin(m, 0));
}

constexpr ModelKind kind_of(void (*plan)(Model*, Layout&)) {
    return {plan, forward, backward, [](const Shape& shape) {
        const LlamaSizes c(shape);
        return size_t(c.L) * 2 * size_t(c.NK) * size_t(shape.T) * size_t(c.HS) * sizeof(floatX);
    }};
}

}  // namespace

extern const ModelKind llama_kind = kind_of([](Model* m, Layout& place) { plan(m, place, kLlama); });
extern const ModelKind qwen2_kind = kind_of([](Model* m, Layout& place) { plan(m, place, kQwen2); });
extern const ModelKind qwen3_kind = kind_of([](Model* m, Layout& place) { plan(m, place, kQwen3); });

}  // namespace BACKEND
