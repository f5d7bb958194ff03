// lstm_ops.h -- operations that only the LSTM has.
#pragma once
#include "kernels/kernels.h"

namespace BACKEND {

// out[t,b] = inp[b,t]; an element has `bytes` bytes, a multiple of 4. With B and T exchanged it does the inverse.
void transpose_rows(void* out, const void* inp, int B, int T, size_t bytes, Stream stream = nullptr);

// One time step of B sequences. z = gates + recurrent has four parts of C (i, f, g, o: torch.nn.LSTM's order):
//     i, f, o = sigmoid(z),  g = tanh(z),  c = f c_before + i g,  h = o tanh(c)
//   gates (B,4C): on entry x W_ih^T + b_ih, on return i, f, g, o; recurrent (B,4C): h_before W_hh^T + b_hh;
//   c, c_before, h (B,C)
void lstm_cell_forward(floatX* h, float* c, floatX* gates, const floatX* recurrent, const float* c_before, int B, int C,
                       Stream stream = nullptr);

// The gradient of lstm_cell_forward.
//   gates (B,4C): on entry i, f, g, o, on return the gradient of z; dh, dh_later (B,C): gradients of h, from the layer
//   above and from the next step; dc (B,C): on entry the gradient of c from the next step, on return that of c_before
void lstm_cell_backward(floatX* gates, float* dc, const floatX* dh, const floatX* dh_later, const float* c,
                        const float* c_before, int B, int C, Stream stream = nullptr);

}  // namespace BACKEND
