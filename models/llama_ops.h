// llama_ops.h -- operations that only the Llama family has. RMSNorm and attention are those of kernels.h.
//
// A row of qkv has `heads` = NH + 2 NK heads of HS elements: q of all heads, then k, then v. N is B*T. Of an Attention
// these operations read only the sizes.
#pragma once
#include "kernels/kernels.h"

namespace BACKEND {

// How fast each pair of elements turns: f_j = 1 / theta^(2j/HS) radians per position, j < HS/2. Llama 3's scaling
// (transformers, modeling_rope_utils.py) divides the slow ones by `factor`, to reach further than the `context` that
// the model was trained with. A slow pair makes fewer than `low` full turns within that context. A fast one makes more
// than `high` and stays as it is. In between, the two speeds are interpolated.
struct Rope { float theta, factor, low, high; int context; };

// table[t] = cos(t f_j) of all j, then sin(t f_j) of all j    (positions,2,HS/2)
//   t f_j is rounded to float first, as in transformers.
void rotary_table(float* table, int positions, int HS, const Rope& rope, Stream stream = nullptr);

// Rotates the heads of q and k by their position's angles, or with `back` by the negative angles, which is the
// gradient. For j < HS/2:
//     x_j, x_{j+HS/2} = x_j cos - x_{j+HS/2} sin, x_{j+HS/2} cos + x_j sin
//   qkv (N,heads,HS); row i is at position first + i % T
void rotate_heads(floatX* qkv, const float* table, int first, bool back, const Attention& attention,
                  Stream stream = nullptr);

// What the two operations below read, and write where a comment says so.
struct HeadNorm {
    const floatX *qweight, *kweight;    // (HS)
    floatX* raw;                        // (N,NH+NK,HS)     the old q and k
    float* rstd;                        // (N,NH+NK)        r of each head
    float eps;
};

// RMSNorm of each head of q and k, in place: x = x * r * weight, r = 1 / sqrt(mean(x^2) + eps)
//   qkv (N,heads,HS); writes raw and rstd
// A head's sum has 64 partial sums that are joined by halves (each_row of kernels/elements.h).
void norm_heads_forward(floatX* qkv, const HeadNorm& norm, const Attention& attention, Stream stream = nullptr);

// Takes dqkv, in place, back through norm_heads_forward. dqweight, dkweight (+)= sums over rows and heads: a head has
// kNormSums partial sums, and number i takes rows i, i + 64, ... in order. They are joined by halves, and then the
// heads are added in order.
//   partials: work space (kNormSums,NH+NK,HS)
constexpr int kNormSums = 64;
void norm_heads_backward(floatX* dqkv, float* dqweight, float* dkweight, float* partials, const HeadNorm& norm,
                         const Attention& attention, bool accumulate, Stream stream = nullptr);

// out = silu(gate) up, silu(x) = x / (1 + e^-x)    gateup (N,2F): gate, then up; out (N,F)
void swiglu_forward(floatX* out, const floatX* gateup, int N, int F, Stream stream = nullptr);
// gateup becomes its gradient: dgate = dout up s (1 + gate (1 - s)), dup = dout gate s, s = 1 / (1 + e^-gate)
void swiglu_backward(floatX* gateup, const floatX* dout, int N, int F, Stream stream = nullptr);

}  // namespace BACKEND
