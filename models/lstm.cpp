// lstm.cpp -- the LSTM language model: its operations, memory, forward, and backward through time.
// The tensors are in lstm.h.
//
// Arrays are (T,B,..), so that the rows of a time step are adjacent. Only the head's input is
// (B,T,..), like the batch.
#include "models/lstm.h"
#include "kernels/elements.h"
#include "models/model.h"

namespace BACKEND {

// -------------------------------------------------------------------------------------- operations
//
// They compute in fp32 and round each value once, when it is stored. The cell state c is stored in
// fp32. Simple kernels suffice: the arrays of a time step are still in a GPU's L2 cache, and a
// kernel takes about as long as its launch.

// tanh(x) = (1 - e^-2|x|) / (1 + e^-2|x|) with the sign of x. Near 0 the numerator cancels, so
// there a series is used.
HOST_DEVICE static inline float hyperbolic_tangent(float x) {
    const float size = x < 0 ? -x : x, e = exponential(-2.0f * size);
    const float large = (1.0f - e) / (1.0f + e), s = x * x;
    const float small =
        x * (1.0f + s * (-1.0f / 3 + s * (2.0f / 15 + s * (-17.0f / 315 + s * (62.0f / 2835)))));
    return size < 0.25f ? small : x < 0 ? -large : large;
}

// out[t,b] = inp[b,t]; an element has `bytes` bytes, a multiple of 4. With B and T exchanged it
// does the inverse.
void transpose_rows(void* out, const void* inp, int B, int T, size_t bytes) {
    const auto to = static_cast<uint32_t*>(out);
    const auto from = static_cast<const uint32_t*>(inp);
    const size_t words = bytes / 4;
    each_element(size_t(T) * B, words, [=] ON_DEVICE(size_t row, size_t j) {
        const size_t t = row / B, b = row % B;
        to[row * words + j] = from[(b * T + t) * words + j];
    }, nullptr);
}

// One time step of B sequences. z = gates + recurrent has four parts of C, i, f, g and o (the order
// of torch.nn.LSTM):
//     i, f, o = sigmoid(z),  g = tanh(z),  c = f c_before + i g,  h = o tanh(c)
//   gates (B,4C): on entry x W_ih^T + b_ih, on return i, f, g, o
//   recurrent (B,4C): h_before W_hh^T + b_hh; c, c_before, h (B,C)
void lstm_cell_forward(floatX* h, float* c, floatX* gates, const floatX* recurrent,
                       const float* c_before, int B, int channels) {
    const size_t C = channels;
    each_element(B, C, [=] ON_DEVICE(size_t row, size_t j) {
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
    }, nullptr);
}

// The gradient of lstm_cell_forward.
//   gates (B,4C): on entry i, f, g, o, on return the gradient of z
//   dh, dh_later (B,C): gradients of h, from the layer above and from the next step
//   dc (B,C): on entry the gradient of c from the next step, on return that of c_before
void lstm_cell_backward(floatX* gates, float* dc, const floatX* dh, const floatX* dh_later,
                        const float* c, const float* c_before, int B, int channels) {
    const size_t C = channels;
    each_element(B, C, [=] ON_DEVICE(size_t row, size_t j) {
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
    }, nullptr);
}

// --------------------------------------------------------------------------------------- the model

namespace {

struct Layer {
    floatX* gates;                  // (T,B,4C)  i, f, g, o; in backward the gradients of z
    floatX* h;                      // (1+T,B,C) the state before the first time step and after each
    float* c;                       // (1+T,B,C) the cell state, likewise
};

struct Lstm {
    int* tokens;                    // (T,B)
    floatX* embedded;               // (T,B,C)
    std::vector<Layer> layer;       // L
    floatX* recurrent;              // (B,4C)    h_before W_hh^T + b_hh of one time step
    floatX* dropped;                // (T,B,C)   input of a layer or of the head, after dropout
    floatX* hidden;                 // (B,T,C)   input of the head
    // backward
    floatX* dy;                     // (T,B,C)   gradient of a layer's output, then of its input
    floatX* dh;                     // (B,C)     gradient of h from the next time step
    float* dc;                      // (B,C)     gradient of c from the next time step
};

// Tensor 0 is the embedding.
int layer_begin(int l) { return 1 + 4 * l; }
// Returns by name the tensors of layer l. all: all weights or all gradients.
template <class F> LstmLayer<F> layer_of(const std::vector<F>& all, int l) {
    const F* const t = &all[layer_begin(l)];
    return {t[0], t[1], t[2], t[3]};
}

void plan(Model* m, Layout& place) {
    Lstm& a = own<Lstm>(m);
    const size_t B = m->B, N = B * m->T, C = m->shape.C;
    place(a.tokens, N);
    place_residual(m, place, a.embedded, N * C);
    a.layer.resize(m->shape.L);
    for (Layer& layer : a.layer) {
        place(layer.gates, N * 4 * C);
        place_residual(m, place, layer.h, (N + B) * C);
        place(layer.c, (N + B) * C);
    }
    place(a.recurrent, B * 4 * C);
    place(a.hidden, N * C);
    if (!m->training) return;
    if (m->shape.dropout > 0) place(a.dropped, N * C);
    place(a.dy, N * C);
    place(a.dh, B * C);
    place(a.dc, B * C);
}

// Returns the input of layer l after dropout; for l = L the input of the head.
const floatX* input(Model* m, const Pass& pass, int l) {
    const Lstm& a = own<Lstm>(m);
    const floatX* below = l ? a.layer[l - 1].h + size_t(pass.B) * m->shape.C : a.embedded;
    return drop(m, pass, l, a.dropped, below);
}

void forward_layer(Model* m, const Pass& pass, int l) {
    const Lstm& a = own<Lstm>(m);
    const Layer& layer = a.layer[l];
    const auto w = layer_of(m->weights, l);
    const int C = m->shape.C, B = pass.B;
    const size_t n = size_t(B) * C, h_bytes = n * sizeof(floatX), c_bytes = n * sizeof(float);
    // The cache is (L,2,C), 4 bytes per element: each layer's h and c after the last token.
    const auto cached = [&](int i) { return static_cast<float*>(pass.cache) + (2 * l + i) * n; };
    if (pass.first > 0) {
        transpose_rows(layer.h, cached(0), 1, 1, h_bytes);          // a copy
        transpose_rows(layer.c, cached(1), 1, 1, c_bytes);
    } else {
        device_zero(layer.h, h_bytes);
        device_zero(layer.c, c_bytes);
    }
    linear_forward(layer.gates, input(m, pass, l), w.wih, w.bih, pass.N());
    int t = 0;
    for (; t < pass.T; t++) {
        linear_forward(a.recurrent, layer.h + t * n, w.whh, w.bhh, B);
        lstm_cell_forward(layer.h + (t + 1) * n, layer.c + (t + 1) * n, layer.gates + t * 4 * n,
                          a.recurrent, layer.c + t * n, B, C);
    }
    if (!pass.cache) return;
    transpose_rows(cached(0), layer.h + t * n, 1, 1, h_bytes);
    transpose_rows(cached(1), layer.c + t * n, 1, 1, c_bytes);
}

const floatX* forward(Model* m, const Pass& pass) {
    const Lstm& a = own<Lstm>(m);
    const int C = m->shape.C, L = m->shape.L;
    pass.needed(0, 1);
    transpose_rows(a.tokens, m->tokens, pass.B, pass.T, sizeof(int));
    embedding_forward(a.embedded, a.tokens, m->weights[0], nullptr,
                      {.B = pass.N(), .T = 1, .C = C});
    for (int l = 0; l < L; l++) {
        pass.needed(layer_begin(l), layer_begin(l + 1));
        forward_layer(m, pass, l);
    }
    transpose_rows(a.hidden, input(m, pass, L), pass.T, pass.B, C * sizeof(floatX));
    return a.hidden;
}

// Replaces a.dy, the gradient of the layer's output, by the gradient of its input. Computes
// parameter gradients.
void backward_layer(Model* m, const Pass& pass, int l) {
    const Lstm& a = own<Lstm>(m);
    const Layer& layer = a.layer[l];
    const auto w = layer_of(m->weights, l);
    const auto d = layer_of(m->grads, l);
    const int C = m->shape.C, B = pass.B, N = pass.N();
    const size_t n = size_t(B) * C;
    device_zero(a.dh, n * sizeof(floatX));
    device_zero(a.dc, n * sizeof(float));
    for (int t = pass.T - 1; t >= 0; t--) {
        floatX* const gates = layer.gates + t * 4 * n;
        lstm_cell_backward(gates, a.dc, a.dy + t * n, a.dh, layer.c + (t + 1) * n,
                           layer.c + t * n, B, C);
        if (t > 0) linear_backward(a.dh, nullptr, nullptr, gates, nullptr, w.whh, B, false);
    }
    linear_backward(nullptr, d.whh, d.bhh, layer.gates, layer.h, w.whh, N, pass.accumulate);
    linear_backward(a.dy, d.wih, d.bih, layer.gates, input(m, pass, l), w.wih, N, pass.accumulate);
    drop(m, pass, l, a.dy, a.dy);
}

void backward(Model* m, const Pass& pass, floatX* dhidden) {
    const Lstm& a = own<Lstm>(m);
    const int C = m->shape.C, L = m->shape.L;
    transpose_rows(a.dy, dhidden, pass.B, pass.T, C * sizeof(floatX));
    drop(m, pass, L, a.dy, a.dy);
    for (int l = L - 1; l >= 0; l--) {
        backward_layer(m, pass, l);
        pass.ready(layer_begin(l), layer_begin(l + 1));
    }
    embedding_backward(m->grads[0], nullptr, a.dy, a.tokens, 1,
                       {.B = pass.N(), .T = 1, .C = C}, pass.accumulate);
    pass.ready(0, 1);
}

}  // namespace

extern const ModelKind lstm_kind = {
    .plan = plan,
    .forward = forward,
    .backward = backward,
    .cache_bytes = [](const Shape& c) { return size_t(c.L) * 2 * c.C * sizeof(float); },
};

}  // namespace BACKEND
