// lstm_ops.h -- operations that only the LSTM has, and their formulas, for CPUs (lstm_ops_host.cpp) and GPUs.
#pragma once
#include <bit>
#include "kernels/kernels.h"
#include "src/base/rng.h"

namespace BACKEND {

// out[t,b] = inp[b,t], elements of `bytes` bytes, a multiple of 4. With B and T exchanged, back.
void transpose_rows(void* out, const void* inp, int B, int T, size_t bytes, Stream stream);

// One time step of B sequences, on z = gates + recurrent in four parts of C (i, f, g, o, torch.nn.LSTM's order):
//     i, f, o = sigmoid(z),  g = tanh(z),  c = f c_before + i g,  h = o tanh(c)
// gates (B,4C): x W_ih^T + b_ih, becomes i, f, g, o. recurrent (B,4C): h_before W_hh^T + b_hh. c, c_before, h (B,C)
void lstm_cell_forward(floatX* h, float* c, floatX* gates, const floatX* recurrent, const float* c_before, int B, int C,
                       Stream stream);

// gates (B,4C): i, f, g, o, become the gradient of z. dh (B,C): of h, from above; dh_later (B,C): from the next step.
// dc (B,C): of c from the next step, becomes that of c_before.
void lstm_cell_backward(floatX* gates, float* dc, const floatX* dh, const floatX* dh_later, const float* c,
                        const float* c_before, int B, int C, Stream stream);

// ------------------------------------------------------ the formulas, for elements begin <= j < end of a row

HOST_DEVICE inline float widen(float x) { return x; }
HOST_DEVICE inline float widen(bf16 x) { return std::bit_cast<float>(uint32_t(x.bits) << 16); }
HOST_DEVICE inline void store(float& to, float x) { to = x; }
HOST_DEVICE inline void store(bf16& to, float x) {              // to nearest even; a NaN stays one
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    to.bits = uint16_t(x != x ? bits >> 16 | 0x40u : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

// e^x = 2^n e^r, |r| <= ln(2)/2, e^r by its series: relative error below 1e-7. No branch, so loops become vectors.
HOST_DEVICE inline float exponential(float x) {
    constexpr float kLog2e = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
    constexpr float kToNearest = 12582912.0f; // 1.5 * 2^23: adding it leaves a whole number in the lowest bits
    x = x < -87.0f ? -87.0f : x > 87.0f ? 87.0f : x;
    const float shifted = x * kLog2e + kToNearest, n = shifted - kToNearest, r = (x - n * kLn2High) - n * kLn2Low;
    const float tail = 1.0f / 24 + r * (1.0f / 120 + r * (1.0f / 720 + r * (1.0f / 5040)));
    const float p = 1.0f + r * (1.0f + r * (0.5f + r * (1.0f / 6 + r * tail)));
    return p * std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) + 127u) << 23);
}
HOST_DEVICE inline float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }
// (1 - e^-2|x|) / (1 + e^-2|x|) with x's sign; near 0, where that cancels, the series.
HOST_DEVICE inline float hyperbolic_tangent(float x) {
    const float size = x < 0 ? -x : x, e = exponential(-2.0f * size), large = (1.0f - e) / (1.0f + e), s = x * x;
    const float small = x * (1.0f + s * (-1.0f / 3 + s * (2.0f / 15 + s * (-17.0f / 315 + s * (62.0f / 2835)))));
    return size < 0.25f ? small : x < 0 ? -large : large;
}

HOST_DEVICE inline void cell_forward(floatX* __restrict h, float* __restrict c, floatX* __restrict gates,
                                     const floatX* __restrict recurrent, const float* __restrict c_before, int C,
                                     int begin, int end) {
    for (int j = begin; j < end; j++) {
        const float i = sigmoid(widen(gates[j]) + widen(recurrent[j]));
        const float f = sigmoid(widen(gates[C + j]) + widen(recurrent[C + j]));
        const float g = hyperbolic_tangent(widen(gates[2 * C + j]) + widen(recurrent[2 * C + j]));
        const float o = sigmoid(widen(gates[3 * C + j]) + widen(recurrent[3 * C + j]));
        const float state = f * c_before[j] + i * g;
        c[j] = state;
        store(h[j], o * hyperbolic_tangent(state));
        store(gates[j], i);
        store(gates[C + j], f);
        store(gates[2 * C + j], g);
        store(gates[3 * C + j], o);
    }
}

HOST_DEVICE inline void cell_backward(floatX* __restrict gates, float* __restrict dc, const floatX* dh,
                                      const floatX* dh_later, const float* __restrict c,
                                      const float* __restrict c_before, int C, int begin, int end) {
    for (int j = begin; j < end; j++) {
        const float i = widen(gates[j]), f = widen(gates[C + j]);
        const float g = widen(gates[2 * C + j]), o = widen(gates[3 * C + j]);
        const float tanh_c = hyperbolic_tangent(c[j]), dy = widen(dh[j]) + widen(dh_later[j]);
        const float dstate = dc[j] + dy * o * (1.0f - tanh_c * tanh_c);
        store(gates[j], dstate * g * i * (1.0f - i));
        store(gates[C + j], dstate * c_before[j] * f * (1.0f - f));
        store(gates[2 * C + j], dstate * i * (1.0f - g * g));
        store(gates[3 * C + j], dy * tanh_c * o * (1.0f - o));
        dc[j] = dstate * f;
    }
}

}  // namespace BACKEND
