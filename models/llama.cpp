// llama.cpp -- the Llama family: its operations, memory, forward, and backward, which goes through
// forward's steps in reverse order. Formulas are in kernels.h and llama_parts.h, tensors in
// llama_config.cpp.
#include "models/llama_parts.h"
#include <cmath>
#include "kernels/elements.h"

namespace BACKEND {

// ------------------------------------------------------------------------- operations, all in fp32

struct Frequencies { float of[64]; };           // radians per position

void rotary_table(float* table, int positions, int HS, const Rope& rope) {
    Frequencies f;
    const double context = rope.context, pi = 3.14159265358979324;
    for (int j = 0; j < HS / 2; j++) {
        const double own = 1.0f / float(same_pow(rope.theta, 2.0 * j / HS));
        const double turns = own * context / (2 * pi);
        const double kept = std::clamp((turns - rope.low) / (rope.high - rope.low), 0.0, 1.0);
        f.of[j] = (1 - kept) * own / rope.factor + kept * own;
    }
    const size_t half = HS / 2;
    each_element(positions, half, [=] ON_DEVICE(size_t t, size_t j) {
        const double angle = float(t) * f.of[j];
        table[2 * t * half + j] = same_cos(angle);
        table[(2 * t + 1) * half + j] = same_sin(angle);
    }, nullptr);
}

namespace {

// Numbers the heads of q and k over all rows: number i is head i % heads of row i / heads.
struct Heads {
    unsigned heads, queries;
    size_t rows, HS, width;     // width: of a row of qkv
    explicit Heads(const Attention& a)
        : heads(a.NH + a.NK), queries(a.NH), rows(size_t(a.B) * a.T), HS(a.HS),
          width((a.NH + 2 * a.NK) * HS) {}
    // Returns where head number i begins in qkv.
    HOST_DEVICE size_t in_qkv(unsigned i) const { return i / heads * width + i % heads * HS; }
    HOST_DEVICE bool of_q(unsigned i) const { return i % heads < queries; }
};

}  // namespace

// A column is four elements of a head's first half and their partners in the second; HS/2 is a
// multiple of 4.
void rotate_heads(floatX* qkv, const float* table, int first, bool back,
                  const Attention& attention) {
    const Heads of(attention);
    const size_t half = of.HS / 2, width = of.width;
    const unsigned fours = half / 4, length = attention.T, start = first;
    const float direction = back ? -1.0f : 1.0f;
    each_element(of.rows, of.heads * fours, [=] ON_DEVICE(size_t row, unsigned column) {
        const unsigned head = column / fours, j = column % fours * 4;
        const float* const angles = table + size_t(start + unsigned(row) % length) * 2 * half + j;
        floatX* const x = qkv + row * width + head * 2 * half + j;
        const Pack<4> cosine = load<4>(angles), sine = load<4>(angles + half);
        Pack<4> a = load<4>(x), b = load<4>(x + half);
        for (int k = 0; k < 4; k++) {
            const float before = a.x[k], turn = direction * sine.x[k];
            a.x[k] = before * cosine.x[k] - b.x[k] * turn;
            b.x[k] = b.x[k] * cosine.x[k] + before * turn;
        }
        store(x, a);
        store(x + half, b);
    }, nullptr);
}

void norm_heads_forward(floatX* qkv, const HeadNorm& norm, const Attention& attention) {
    const Heads of(attention);
    each_row(of.rows * of.heads, of.HS, [=] ON_DEVICE(size_t i, size_t j) {
        Pack<8> x = load<8>(qkv + of.in_qkv(i) + j);
        for (float& v : x.x) v *= v;
        return x;
    }, [=] ON_DEVICE(size_t i, size_t j, float squares) {
        floatX* const at = qkv + of.in_qkv(i) + j;
        Pack<8> x = load<8>(at);
        const Pack<8> weight = load<8>((of.of_q(i) ? norm.qweight : norm.kweight) + j);
        const float r = 1.0f / sqrtf(squares / of.HS + norm.eps);
        if (j == 0) norm.rstd[i] = r;
        store(norm.raw + i * of.HS + j, x);
        for (int k = 0; k < 8; k++) x.x[k] = x.x[k] * r * weight.x[k];
        store(at, x);
    }, nullptr);
}

void norm_heads_backward(floatX* dqkv, float* dqweight, float* dkweight, float* partials,
                         const HeadNorm& norm, const Attention& attention, bool accumulate) {
    const Heads of(attention);
    const size_t normed = of.heads * of.HS;
    // The weights' gradients come first, because the last loop overwrites dqkv.
    each_element(kNormSums, normed / 8, [=] ON_DEVICE(size_t part, size_t eight) {
        const size_t column = eight * 8, head = unsigned(column) / unsigned(of.HS);
        Pack<8> sum = {};
        for (size_t row = part; row < of.rows; row += kNormSums) {
            const Pack<8> d = load<8>(dqkv + row * of.width + column);
            const Pack<8> x = load<8>(norm.raw + row * normed + column);
            const float r = norm.rstd[row * of.heads + head];
            for (int k = 0; k < 8; k++) sum.x[k] += d.x[k] * x.x[k] * r;
        }
        store(partials + part * normed + column, sum);
    }, nullptr);
    each_element(1, normed, [=] ON_DEVICE(size_t, size_t column) {
        const auto part = [=](int i) { return partials[i * normed + column]; };
        partials[column] = join_halves<kNormSums>(part);
    }, nullptr);
    each_element(2, of.HS, [=] ON_DEVICE(size_t which, size_t j) {
        float sum = 0;
        for (size_t head = which ? of.queries : 0; head < (which ? of.heads : of.queries); head++)
            sum += partials[head * of.HS + j];
        float* const to = (which ? dkweight : dqweight) + j;
        *to = accumulate ? *to + sum : sum;
    }, nullptr);
    each_row(of.rows * of.heads, of.HS, [=] ON_DEVICE(size_t i, size_t j) {
        const Pack<8> d = load<8>(dqkv + of.in_qkv(i) + j);
        const Pack<8> x = load<8>(norm.raw + i * of.HS + j);
        Pack<8> terms = load<8>((of.of_q(i) ? norm.qweight : norm.kweight) + j);
        for (int k = 0; k < 8; k++) terms.x[k] = d.x[k] * terms.x[k] * x.x[k] * norm.rstd[i];
        return terms;
    }, [=] ON_DEVICE(size_t i, size_t j, float sum) {
        floatX* const at = dqkv + of.in_qkv(i) + j;
        const Pack<8> x = load<8>(norm.raw + i * of.HS + j);
        const Pack<8> weight = load<8>((of.of_q(i) ? norm.qweight : norm.kweight) + j);
        const float r = norm.rstd[i], mean = sum / of.HS;
        Pack<8> d = load<8>(at);
        for (int k = 0; k < 8; k++) d.x[k] = r * (d.x[k] * weight.x[k] - x.x[k] * r * mean);
        store(at, d);
    }, nullptr);
}

void swiglu_forward(floatX* out, const floatX* gateup, int N, int F) {
    const size_t width = F;
    each_element(N, width / 8, [=] ON_DEVICE(size_t row, size_t eight) {
        const floatX* const x = gateup + row * 2 * width + eight * 8;
        Pack<8> gate = load<8>(x);
        const Pack<8> up = load<8>(x + width);
        for (int k = 0; k < 8; k++) gate.x[k] = gate.x[k] * sigmoid(gate.x[k]) * up.x[k];
        store(out + row * width + eight * 8, gate);
    }, nullptr);
}

void swiglu_backward(floatX* gateup, const floatX* dout, int N, int F) {
    const size_t width = F;
    each_element(N, width / 8, [=] ON_DEVICE(size_t row, size_t eight) {
        floatX* const x = gateup + row * 2 * width + eight * 8;
        Pack<8> gate = load<8>(x), up = load<8>(x + width);
        const Pack<8> d = load<8>(dout + row * width + eight * 8);
        for (int k = 0; k < 8; k++) {
            const float g = gate.x[k], s = sigmoid(g);
            gate.x[k] = d.x[k] * up.x[k] * s * (1.0f + g * (1.0f - s));
            up.x[k] = d.x[k] * g * s;
        }
        store(x, gate);
        store(x + width, up);
    }, nullptr);
}

// --------------------------------------------------------------------------------------- attention

// Returns the settings of layer l. In a pass that is no longer than the window it hides no key.
static Attention attention_of(const Model* m, const Pass& pass, int l, const LlamaShared& shared) {
    const LlamaSizes c(m->shape);
    const bool cuts = c.W > 0 && l >= c.from && pass.first + pass.T > c.W;
    return {.B = pass.B, .T = pass.T, .NH = c.NH, .NK = c.NK, .HS = c.HS, .scale = shared.scale,
            .begin = cuts ? shared.begin : pass.begin};
}

void llama_begin(const Model* m, const Pass& pass, const LlamaShared& shared) {
    if (!shared.begin) return;
    const int T = pass.T, before = pass.first + 1 - LlamaSizes(m->shape).W;
    const int* const documents = pass.begin;
    int* const begin = shared.begin;
    each_element(pass.B, T, [=] ON_DEVICE(size_t b, size_t t) {
        const int first = documents ? documents[b * T + t] : 0, key = before + int(t);
        begin[b * T + t] = key > first ? key : first;
    }, nullptr);
}

static HeadNorm head_norm_of(Model* m, const LlamaAttention& a,
                             const LlamaAttentionTensors<Weight>& w) {
    return {w.qnormw, w.knormw, a.raw, a.raw_rstd, norm_eps(m->shape)};
}

void llama_place_shared(Model* m, Layout& place, LlamaShared* shared, LlamaKind kind) {
    const LlamaSizes c(m->shape);
    Shape s = m->shape;
    const size_t rows = size_t(m->B) * m->T * c.NH, HS = c.HS;
    place(shared->rotary, size_t(s.T) * HS);
    if (place.memory)
        rotary_table(shared->rotary, s.T, c.HS,
                     {rope_theta(s), rope_factor(s), rope_low(s), rope_high(s), rope_context(s)});
    if (c.W > 0) place(shared->begin, size_t(m->B) * m->T);
    if (!m->training) return;
    place(shared->datt, rows * HS);
    place(shared->dqkv, size_t(m->B) * m->T * c.width);
    place(shared->delta, rows);
    if (kind.norms) place(shared->dnorms, kNormSums * size_t(c.NH + c.NK) * HS);
}

void llama_attention_forward(Model* m, const Pass& pass, int l, const LlamaShared& shared,
                             const LlamaAttention& a, const LlamaAttentionTensors<Weight>& w,
                             floatX* out, const floatX* inp, const OnQkv& own) {
    const Attention attention = attention_of(m, pass, l, shared);
    const int N = pass.N(), maxT = m->shape.T;
    linear_forward(a.qkv, inp, w.qkvw, w.qkvb, N);
    if (own) own(a.qkv);
    if (w.qnormw) norm_heads_forward(a.qkv, head_norm_of(m, a, w), attention);
    rotate_heads(a.qkv, shared.rotary, pass.first, false, attention);
    if (pass.cache) {
        const size_t layer = size_t(2) * attention.NK * maxT * attention.HS;
        floatX* const cache = static_cast<floatX*>(pass.cache) + l * layer;
        attention_cached(a.att, cache, a.qkv, pass.first, maxT, attention);
    } else {
        attention_forward(a.att, a.lse, a.qkv, attention);
    }
    linear_forward(out, a.att, w.ow, nullptr, N);
}

void llama_attention_backward(Model* m, const Pass& pass, int l, const LlamaShared& shared,
                              const LlamaAttention& a, const LlamaAttentionTensors<Weight>& w,
                              const LlamaAttentionTensors<float*>& d, floatX* dinp,
                              const floatX* dout, const floatX* inp, const OnQkv& own_backward) {
    const Attention attention = attention_of(m, pass, l, shared);
    const int N = pass.N();
    const bool acc = pass.accumulate;
    linear_backward(shared.datt, d.ow, nullptr, dout, a.att, w.ow, N, acc);
    attention_backward(shared.dqkv, shared.delta, shared.datt, a.qkv, a.att, a.lse, attention);
    rotate_heads(shared.dqkv, shared.rotary, 0, true, attention);
    if (w.qnormw)
        norm_heads_backward(shared.dqkv, d.qnormw, d.knormw, shared.dnorms, head_norm_of(m, a, w),
                            attention, acc);
    if (own_backward) own_backward(shared.dqkv);
    linear_backward(dinp, d.qkvw, d.qkvb, shared.dqkv, inp, w.qkvw, N, acc);
}

size_t llama_cache_bytes(const Shape& shape) {
    const LlamaSizes c(shape);
    return size_t(c.L) * 2 * c.NK * shape.T * c.HS * sizeof(floatX);
}

// --------------------------------------------------------------------------------------- the model

namespace {

// The arrays that a block's forward writes and its backward reads. With --recompute all blocks
// share some of them, and backward computes these again. By level they are:
//   1  act     2  also the outputs of ln1 and ln2     3  all but the block's input
struct Block {
    // ln1.inp is the residual stream. The norms have only their arrays; norm_of sets the rest.
    LayerNorm ln1;
    LlamaAttention att;
    LayerNorm ln2;
    floatX *gateup;             // (N,2F)   gate, then up; in backward their gradient
    floatX *act;                // (N,F)    silu(gate) up
};

struct Llama {
    LlamaKind kind;
    std::vector<Block> block;   // L
    LayerNorm norm;             // the final norm; its output is the hidden state
    LlamaShared shared;
    floatX *branch;             // (N,C)    output of attention or MLP, before it is added
    // backward
    floatX *dresidual;          // (N,C)    the residual stream's gradient, from head to embedding
    floatX *dact;               // (N,F)    gradient of act
};

// Return where the tensors of block l begin and end in the table; for l = L that of the final norm.
int block_begin(Model* m, int l) {
    const LlamaKind kind = own<Llama>(m).kind;
    return untied_head(m->shape) + 1 + l * (6 + kind.bias + 2 * kind.norms);
}
int block_end(Model* m, int l) {
    return l < m->shape.L ? block_begin(m, l + 1) : int(m->arena.tensors.size());
}

// Return by name the tensors of block l, and those before and after the blocks.
// all: all weights or all gradients.
template <class F> LlamaBlock<F> block_of(Model* m, const std::vector<F>& all, int l) {
    const LlamaKind kind = own<Llama>(m).kind;
    const F* next = &all[block_begin(m, l)];
    const auto take = [&](bool there) { return there ? *next++ : F{}; };
    return {take(true),
            {take(true), take(kind.bias), take(kind.norms), take(kind.norms), take(true)},
            take(true), take(true), take(true)};
}
template <class F> LlamaEnds<F> ends_of(Model* m, const std::vector<F>& all) {
    return {all[untied_head(m->shape)], all.back()};
}

// Returns block l's first norm; for l = L the final norm.
LayerNorm norm_before(Model* m, const Pass& pass, int l) {
    const Llama& a = own<Llama>(m);
    if (l == m->shape.L) return norm_of(m, pass, a.norm, m->weights.back());
    return norm_of(m, pass, a.block[l].ln1, block_of(m, m->weights, l).ln1w);
}

void plan(Model* m, Layout& place, LlamaKind kind) {
    const LlamaSizes c(m->shape);
    Llama& a = own<Llama>(m);
    a.kind = kind;
    const size_t N = size_t(m->B) * m->T, C = c.C, F = c.F;
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
            keep(norm->rstd, N, 3);
        }
        llama_place_attention(m, &b.att, kind, [&](auto*& array, size_t n) { keep(array, n, 3); });
        keep(b.gateup, N * 2 * F, 3);
        keep(b.act, N * F, 1);
    }
    place_residual(m, place, a.norm.inp, N * C);
    place(a.norm.out, N * C);
    place(a.norm.rstd, N);
    place(a.branch, N * C);
    llama_place_shared(m, place, &a.shared, kind);
    if (!m->training) return;
    place(a.dresidual, N * C);
    place(a.dact, N * F);
}

// ----------------------------------------------------------------------------------------- forward

// Computes a block from qkv to act, which are all arrays that backward needs. The MLP's last
// product comes after it.
void forward_block(Model* m, const Pass& pass, int l) {
    const Llama& a = own<Llama>(m);
    const Block& b = a.block[l];
    const auto w = block_of(m, m->weights, l);
    llama_attention_forward(m, pass, l, a.shared, b.att, w.att, a.branch, b.ln1.out);
    residual_layernorm_forward(norm_of(m, pass, b.ln2, w.ln2w), b.ln1.inp, a.branch, {});
    linear_forward(b.gateup, b.ln2.out, w.gateupw, nullptr, pass.N());
    swiglu_forward(b.act, b.gateup, pass.N(), mlp_size(m->shape));
}

const floatX* forward(Model* m, const Pass& pass) {
    const Llama& a = own<Llama>(m);
    const int C = m->shape.C;
    llama_begin(m, pass, a.shared);
    pass.needed(0, block_end(m, 0));
    embedding_forward(a.block[0].ln1.inp, m->tokens, ends_of(m, m->weights).embedding, nullptr,
                      {.B = pass.B, .T = pass.T, .C = C});
    layernorm_forward(norm_before(m, pass, 0));
    for (int l = 0; l < m->shape.L; l++) {
        const Block& b = a.block[l];
        forward_block(m, pass, l);
        linear_forward(a.branch, b.act, block_of(m, m->weights, l).downw, nullptr, pass.N());
        pass.needed(block_begin(m, l + 1), block_end(m, l + 1));
        residual_layernorm_forward(norm_before(m, pass, l + 1), b.ln2.inp, a.branch, {});
    }
    return a.norm.out;
}

// ---------------------------------------------------------------------------------------- backward

// Computes again the arrays that block l shares with other blocks.
void recompute_block(Model* m, const Pass& pass, int l) {
    const Block& b = own<Llama>(m).block[l];
    const auto w = block_of(m, m->weights, l);
    const int level = m->recompute;
    if (l + 1 == m->shape.L) return;    // forward computed it last: the arrays hold its values
    if (level >= 2) layernorm_forward(norm_before(m, pass, l));
    if (level >= 3) return forward_block(m, pass, l);
    if (level >= 2) layernorm_forward(norm_of(m, pass, b.ln2, w.ln2w));
    if (level >= 1) swiglu_forward(b.act, b.gateup, pass.N(), mlp_size(m->shape));
}

// Computes block l's parameter gradients. a.dresidual is the gradient of the residual stream:
// attention and MLP read it as their output's gradient and add their input's, through the norm.
// dnorm: (N,C) scratch, a norm's output gradient.
void backward_block(Model* m, const Pass& pass, int l, floatX* dnorm) {
    const Llama& a = own<Llama>(m);
    const Block& b = a.block[l];
    const auto w = block_of(m, m->weights, l);
    const auto d = block_of(m, m->grads, l);
    const int N = pass.N();
    const bool acc = pass.accumulate;
    linear_backward(a.dact, d.downw, nullptr, a.dresidual, b.act, w.downw, N, acc);
    swiglu_backward(b.gateup, a.dact, N, mlp_size(m->shape));
    linear_backward(dnorm, d.gateupw, nullptr, b.gateup, b.ln2.out, w.gateupw, N, acc);
    layernorm_backward(a.dresidual, d.ln2w, nullptr, dnorm, norm_of(m, pass, b.ln2, w.ln2w), false,
                       acc);

    llama_attention_backward(m, pass, l, a.shared, b.att, w.att, d.att, dnorm, a.dresidual,
                             b.ln1.out);
    layernorm_backward(a.dresidual, d.ln1w, nullptr, dnorm, norm_before(m, pass, l), false, acc);
}

void backward(Model* m, const Pass& pass, floatX* dhidden) {
    const Llama& a = own<Llama>(m);
    const int C = m->shape.C, L = m->shape.L;
    const bool acc = pass.accumulate;
    const auto d = ends_of(m, m->grads);
    layernorm_backward(a.dresidual, d.normw, nullptr, dhidden, norm_before(m, pass, L), true, acc);
    pass.ready(block_begin(m, L), block_end(m, L));
    for (int l = L - 1; l >= 0; l--) {
        recompute_block(m, pass, l);
        backward_block(m, pass, l, dhidden);
        pass.ready(block_begin(m, l), block_end(m, l));
    }
    // A tied head has already written its part of the embedding's gradient; without one it starts
    // from zeros.
    if (untied_head(m->shape) && d.embedding && !acc)
        device_zero(d.embedding, size_t(m->shape.Vp) * C * sizeof(float));
    embedding_backward(d.embedding, nullptr, a.dresidual, m->tokens, m->shape.T,
                       {.B = pass.B, .T = pass.T, .C = C}, acc);
    pass.ready(0, block_begin(m, 0));
}

template <LlamaKind kKind> constexpr ModelKind kKindOf = {
    .plan = [](Model* m, Layout& place) { plan(m, place, kKind); },
    .forward = forward,
    .backward = backward,
    .cache_bytes = llama_cache_bytes,
};

}  // namespace

extern const ModelKind llama_kind = kKindOf<kLlama>, mistral_kind = kKindOf<kMistral>,
                       qwen2_kind = kKindOf<kQwen2>, qwen3_kind = kKindOf<kQwen3>;

}  // namespace BACKEND
