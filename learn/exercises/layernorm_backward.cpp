// layernorm_backward -- LayerNorm's gradient, of N rows of C channels.
//
//   out = norm * weight + bias,   norm = (x - mean) * scale
//
//   dout, x, dx (N,C); weight, dweight, dbias (C); mean, scale (N): of each row, scale = 1 / deviation
//
//   dbias[c] = sum over n of dout                dweight[c] = sum over n of dout norm
//   With d = dout weight, and a = (sum over c of d) / C, b = (sum over c of d norm) / C, of each row:
//   dx = (d - a - norm b) scale
//
// The last line is what is left of the chain rule through mean and deviation, which depend on all x of a row. Use the
// mean and scale that are given: forward has computed them, with an addend below the root that backward does not know.
//
// dweight and dbias hold anything at first: set them, do not add to them, as PyTorch's .grad does.
//
// Order: each sum in the order of its index, starting from 0, each term as sum = sum + term. norm is computed as
// (x - mean) * scale, and dx as the formula is written, from left to right. train_gpt's is layernorm_backward in
// kernels/ref.cpp.
#include "exercises.h"

void layernorm_backward(float* dx, float* dweight, float* dbias, const float* dout, const float* x, const float* weight,
                        const float* mean, const float* scale, int N, int C) {
    not_written();
}
