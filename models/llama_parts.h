// llama_parts.h -- the Llama family's operations and its attention, for other models to use, too.
// They are in llama.cpp.
//
// A row of qkv has `heads` = NH + 2 NK heads of HS elements: all heads of q, then of k, then of v.
// N is B*T.
#pragma once
#include "models/llama.h"
#include "models/model.h"

namespace BACKEND {

// ---- operations that kernels.h lacks. Of an Attention they read only the sizes.

// Rotary embedding: pair j < HS/2 of a head's elements turns by f_j = 1 / theta^(2j/HS) radians per
// position. Llama 3's scaling (transformers, modeling_rope_utils.py) is for contexts longer than
// `context`, which the model was trained with. It divides f_j by `factor` if pair j makes fewer
// than `low` full turns within `context`, and keeps f_j if the pair makes more than `high`. In
// between it interpolates the two, linearly in the number of turns.
struct Rope { float theta, factor, low, high; int context; };

// table[t] = cos(t f_j) for all j, then sin(t f_j) for all j    (positions,2,HS/2)
//   t f_j is rounded to float first, as in transformers.
void rotary_table(float* table, int positions, int HS, const Rope& rope);

// Rotates the heads of q and k, in place, by their position's angles. With `back` it rotates by the
// negative angles, which turns the output's gradient into the input's. For j < HS/2:
//     x_j, x_{j+HS/2} = x_j cos - x_{j+HS/2} sin, x_{j+HS/2} cos + x_j sin
//   qkv (N,heads,HS); row i is at position first + i % T
void rotate_heads(floatX* qkv, const float* table, int first, bool back,
                  const Attention& attention);

// The arguments of the next two operations. Forward writes raw and rstd, and backward reads them.
struct HeadNorm {
    const floatX *qweight, *kweight;    // (HS)
    floatX* raw;                        // (N,NH+NK,HS)     q and k before the norm
    float* rstd;                        // (N,NH+NK)        r of each head
    float eps;
};

// RMSNorm of each head of q and k, in place: x = x * r * weight, r = 1 / sqrt(mean(x^2) + eps)
//   qkv (N,heads,HS); writes raw and rstd
// The mean's sum has 64 partial sums, which are joined by halves (each_row in kernels/elements.h).
void norm_heads_forward(floatX* qkv, const HeadNorm& norm, const Attention& attention);

// The gradient of norm_heads_forward; dqkv is changed in place. dqweight, dkweight (+)= sums over
// rows and heads: each head has kNormSums partial sums, of which number i adds rows i, i + 64, ...
// in order. These are joined by halves, and then the heads are added in order.
//   partials: work space (kNormSums,NH+NK,HS)
constexpr int kNormSums = 64;
void norm_heads_backward(floatX* dqkv, float* dqweight, float* dkweight, float* partials,
                         const HeadNorm& norm, const Attention& attention, bool accumulate);

// out = silu(gate) up, silu(x) = x / (1 + e^-x)    gateup (N,2F): gate, then up; out (N,F)
void swiglu_forward(floatX* out, const floatX* gateup, int N, int F);
// gateup becomes its gradient. With s = 1 / (1 + e^-gate):
//     dgate = dout up s (1 + gate (1 - s)),  dup = dout gate s
void swiglu_backward(floatX* gateup, const floatX* dout, int N, int F);

// ---- attention

// Returns the RMSNorm, of which the arrays are set, with its weight and sizes for this pass.
inline LayerNorm norm_of(Model* m, const Pass& pass, LayerNorm norm, const Weight& weight) {
    norm.N = pass.N();
    norm.C = m->shape.C;
    norm.weight = weight;
    norm.eps = norm_eps(m->shape);
    return norm;
}

// The arrays of a block's attention, which forward writes and backward reads.
struct LlamaAttention {
    floatX *qkv;                // (N,heads,HS)
    floatX *raw;                // (N,NH+NK,HS)     q and k before their norm; Qwen3 only
    float *raw_rstd;            // (N,NH+NK)        HeadNorm::rstd
    floatX *att;                // (N,NH,HS)        output of attention
    float *lse;                 // (B,NH,T)         log-sum-exp of each row of attention scores
};

// What all blocks share. If a model needs another setting of attention, it belongs here:
// attention_of in llama.cpp passes it to forward, backward and cached attention.
struct LlamaShared {
    float scale = 0;            // of attention's scores; 0: 1 / sqrt(HS)
    int *begin = nullptr;       // (B,T)            Attention::begin of layers with a window
    float *rotary;              // (context,2,HS/2)    rotary_table
    // backward
    floatX *datt;               // (N,NH,HS)        gradient of att
    floatX *dqkv;               // (N,heads,HS)     gradient of qkv
    float *delta;               // (B,NH,T)         work space of attention_backward
    float *dnorms;              // work space of norm_heads_backward
};
void llama_place_shared(Model* m, Layout& place, LlamaShared* shared, LlamaKind kind);
// Writes what the attention of all layers reads. A model's forward calls it first.
void llama_begin(const Model* m, const Pass& pass, const LlamaShared& shared);
// Calls keep(array, n) for each array in *a; n is its number of elements.
template <class Keep>
void llama_place_attention(const Model* m, LlamaAttention* a, LlamaKind kind, Keep&& keep) {
    const LlamaSizes c(m->shape);
    const size_t N = size_t(m->B) * m->T, HS = c.HS, normed = size_t(c.NH + c.NK);
    keep(a->qkv, N * c.width);
    if (kind.norms) keep(a->raw, N * normed * HS);
    if (kind.norms) keep(a->raw_rstd, N * normed);
    keep(a->att, N * c.NH * HS);
    keep(a->lse, N * c.NH);
}

// A model's own function of qkv (N,heads,HS), or of its gradient, in place.
using OnQkv = std::function<void(floatX* qkv)>;

// out = o(attention(rotate(norm(own(qkv(inp))))))
//   inp, out (N,C); l: the block's number, for the cache (L,2,NK,maxT,HS)
void llama_attention_forward(Model* m, const Pass& pass, int l, const LlamaShared& shared,
                             const LlamaAttention& a, const LlamaAttentionTensors<Weight>& w,
                             floatX* out, const floatX* inp, const OnQkv& own = {});
// Computes d, the gradients of the tensors, and dinp (N,C) from dout (N,C). inp: the same as in
// forward. own_backward: replaces the gradient of what `own` returned by that of what it got. qkv
// holds neither of these any more, so the model keeps what this needs.
void llama_attention_backward(Model* m, const Pass& pass, int l, const LlamaShared& shared,
                              const LlamaAttention& a, const LlamaAttentionTensors<Weight>& w,
                              const LlamaAttentionTensors<float*>& d, floatX* dinp,
                              const floatX* dout, const floatX* inp,
                              const OnQkv& own_backward = {});
size_t llama_cache_bytes(const Shape& shape);

}  // namespace BACKEND
