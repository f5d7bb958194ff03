// llama_ops.h -- operations that only the Llama family has. RMSNorm and attention are those of kernels.h.
//
// A row of qkv has `heads` = NH + 2 NK heads of HS elements: all heads of q, then of k, then of v. N is B*T. These
// operations read only the sizes in an Attention.
#pragma once
#include "kernels/kernels.h"

namespace BACKEND {

// Rotary embedding: pair j < HS/2 of a head's elements turns by f_j = 1 / theta^(2j/HS) radians per position. Llama 3's
// scaling (transformers, modeling_rope_utils.py) is for contexts longer than `context`, which the model was trained
// with. It divides f_j by `factor` if pair j makes fewer than `low` full turns within `context`, and keeps f_j if the
// pair makes more than `high`. In between it interpolates the two, linearly in the number of turns.
struct Rope { float theta, factor, low, high; int context; };

// table[t] = cos(t f_j) for all j, then sin(t f_j) for all j    (positions,2,HS/2)
//   t f_j is rounded to float first, as in transformers.
void rotary_table(float* table, int positions, int HS, const Rope& rope, Stream stream = nullptr);

// Rotates the heads of q and k, in place, by their position's angles. With `back` it rotates by the negative angles,
// which turns the output's gradient into the input's. For j < HS/2:
//     x_j, x_{j+HS/2} = x_j cos - x_{j+HS/2} sin, x_{j+HS/2} cos + x_j sin
//   qkv (N,heads,HS); row i is at position first + i % T
void rotate_heads(floatX* qkv, const float* table, int first, bool back, const Attention& attention,
                  Stream stream = nullptr);

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
void norm_heads_forward(floatX* qkv, const HeadNorm& norm, const Attention& attention, Stream stream = nullptr);

// The gradient of norm_heads_forward; dqkv is changed in place. dqweight, dkweight (+)= sums over rows and heads: each
// head has kNormSums partial sums, of which number i adds rows i, i + 64, ... in order. These are joined by halves, and
// then the heads are added in order.
//   partials: work space (kNormSums,NH+NK,HS)
constexpr int kNormSums = 64;
void norm_heads_backward(floatX* dqkv, float* dqweight, float* dkweight, float* partials, const HeadNorm& norm,
                         const Attention& attention, bool accumulate, Stream stream = nullptr);

// out = silu(gate) up, silu(x) = x / (1 + e^-x)    gateup (N,2F): gate, then up; out (N,F)
void swiglu_forward(floatX* out, const floatX* gateup, int N, int F, Stream stream = nullptr);
// gateup becomes its gradient: dgate = dout up s (1 + gate (1 - s)), dup = dout gate s, s = 1 / (1 + e^-gate)
void swiglu_backward(floatX* gateup, const floatX* dout, int N, int F, Stream stream = nullptr);

}  // namespace BACKEND
