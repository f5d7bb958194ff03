// lstm_ops_host.cpp -- lstm_ops.h for every backend; lstm_ops.cu compiles it for GPUs.
//
// Computes in fp32 and rounds each value once, when it is stored. The cell state c is stored in fp32.
#include "kernels/elements.h"
#include "models/lstm_ops.h"

namespace BACKEND {
namespace {

// tanh(x) = (1 - e^-2|x|) / (1 + e^-2|x|) with the sign of x. Near 0 the numerator cancels, so there a series is used.
HOST_DEVICE inline float hyperbolic_tangent(float x) {
    const float size = x < 0 ? -x : x, e = exponential(-2.0f * size), large = (1.0f - e) / (1.0f + e), s = x * x;
    const float small = x * (1.0f + s * (-1.0f / 3 + s * (2.0f / 15 + s * (-17.0f / 315 + s * (62.0f / 2835)))));
    return size < 0.25f ? small : x < 0 ? -large : large;
}

}  // namespace

void transpose_rows(void* out, const void* inp, int B, int T, size_t bytes, Stream stream) {
    uint32_t* const to = static_cast<uint32_t*>(out);
    const uint32_t* const from = static_cast<const uint32_t*>(inp);
    const size_t words = bytes / 4;
    each_element(size_t(T) * size_t(B), words, [=] ON_DEVICE(size_t row, size_t j) {
        const size_t t = row / size_t(B), b = row % size_t(B);
        to[row * words + j] = from[(b * size_t(T) + t) * words + j];
    }, stream);
}

void lstm_cell_forward(floatX* h, float* c, floatX* gates, const floatX* recurrent, const float* c_before, int B,
                       int channels, Stream stream) {
    const size_t C = size_t(channels);
    each_element(size_t(B), C, [=] ON_DEVICE(size_t row, size_t j) {
        const size_t at = row * C + j, first = row * 4 * C + j;
        floatX* const z = gates + first;
        const floatX* const r = recurrent + first;
        const float i = sigmoid(widen(z[0]) + widen(r[0])), f = sigmoid(widen(z[C]) + widen(r[C]));
        const float g = hyperbolic_tangent(widen(z[2 * C]) + widen(r[2 * C]));
        const float o = sigmoid(widen(z[3 * C]) + widen(r[3 * C]));
        const float state = f * c_before[at] + i * g;
        c[at] = state;
        store(h[at], o * hyperbolic_tangent(state));
        store(z[0], i);
        store(z[C], f);
        store(z[2 * C], g);
        store(z[3 * C], o);
    }, stream);
}

void lstm_cell_backward(floatX* gates, float* dc, const floatX* dh, const floatX* dh_later, const float* c,
                        const float* c_before, int B, int channels, Stream stream) {
    const size_t C = size_t(channels);
    each_element(size_t(B), C, [=] ON_DEVICE(size_t row, size_t j) {
        const size_t at = row * C + j;
        floatX* const z = gates + row * 4 * C + j;
        const float i = widen(z[0]), f = widen(z[C]), g = widen(z[2 * C]), o = widen(z[3 * C]);
        const float tanh_c = hyperbolic_tangent(c[at]), dy = widen(dh[at]) + widen(dh_later[at]);
        const float dstate = dc[at] + dy * o * (1.0f - tanh_c * tanh_c);
        store(z[0], dstate * g * i * (1.0f - i));
        store(z[C], dstate * c_before[at] * f * (1.0f - f));
        store(z[2 * C], dstate * i * (1.0f - g * g));
        store(z[3 * C], dy * tanh_c * o * (1.0f - o));
        dc[at] = dstate * f;
    }, stream);
}

}  // namespace BACKEND
