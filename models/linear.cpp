// linear.cpp -- linear layers: products with a matrix of the table (model.h), with or without an adapter (lora.h).
#include "models/lora.h"
#include <algorithm>
#include <utility>

namespace BACKEND {

// out += scale (inp A^T) B^T
static void adapter_forward(floatX* out, const floatX* inp, const Weight& w, int N) {
    const Adapters& a = *w.adapters;
    matmul_forward(a.low, inp, a.weights + w.A, nullptr, N, w.cols, a.rank);
    matmul_forward(a.wide, a.low, a.weights + w.B, nullptr, N, a.rank, w.rows);
    add_scaled(out, out, a.scale, a.wide, size_t(N) * size_t(w.rows));
}

void linear_forward(floatX* out, const floatX* inp, const Weight& weight, const floatX* bias, int N) {
    matmul_forward(out, inp, weight, bias, N, weight.cols, weight.rows);
    if (weight.adapters) adapter_forward(out, inp, weight, N);
}

void linear_gelu_forward(floatX* out, floatX* pre, const floatX* inp, const Weight& weight, const floatX* bias, int N) {
    if (!weight.adapters)
        return matmul_gelu_forward(out, pre, inp, weight, bias, N, weight.cols, weight.rows);
    linear_forward(pre, inp, weight, bias, N);
    gelu_forward(out, pre, size_t(N) * size_t(weight.rows));
}

// dinp = dout weight; if pre is not null, dinp = (dout weight) * gelu'(pre)
static void backward_input(floatX* dinp, const floatX* dout, const floatX* weight, const floatX* pre, int N, int C,
                           int OC) {
    if (pre) matmul_gelu_backward_input(dinp, dout, weight, pre, N, C, OC);
    else matmul_backward_input(dinp, dout, weight, N, C, OC);
}

// dlow = scale dout B,  dB (+)= scale dout^T (inp A^T),  dA (+)= dlow^T inp;  if inp is null, it computes only dlow
static void adapter_backward(const floatX* dout, const floatX* inp, const Weight& w, int N, bool accumulate) {
    const Adapters& a = *w.adapters;
    const size_t n = size_t(N) * size_t(a.rank);
    matmul_backward_input(a.dlow, dout, a.weights + w.B, N, a.rank, w.rows);
    add_scaled(a.dlow, nullptr, a.scale, a.dlow, n);
    if (!inp) return;
    matmul_forward(a.low, inp, a.weights + w.A, nullptr, N, w.cols, a.rank);
    add_scaled(a.low, nullptr, a.scale, a.low, n);
    matmul_backward_params(a.grads + w.B, nullptr, dout, a.low, N, a.rank, w.rows, accumulate);
    matmul_backward_params(a.grads + w.A, nullptr, a.dlow, inp, N, w.cols, a.rank, accumulate);
}

void gelu_linear_backward(floatX* dpre, float* dweight, float* dbias, const floatX* dout, const floatX* inp,
                          const floatX* pre, const Weight& weight, int N, bool accumulate) {
    const int C = weight.cols, OC = weight.rows;
    const Adapters* const a = weight.adapters;
    if (a) adapter_backward(dout, inp, weight, N, accumulate);
    else if (inp && dweight) matmul_backward_params(dweight, dbias, dout, inp, N, C, OC, accumulate);
    if (!dpre) return;
    // The adapter's term comes first, because it reads pre, which the next line overwrites if dpre is pre.
    if (a) backward_input(a->wide, a->dlow, a->weights + weight.A, pre, N, C, a->rank);
    backward_input(dpre, dout, weight, pre, N, C, OC);
    if (a) add_scaled(dpre, dpre, 1, a->wide, size_t(N) * size_t(C));
}

void linear_backward(floatX* dinp, float* dweight, float* dbias, const floatX* dout, const floatX* inp,
                     const Weight& weight, int N, bool accumulate) {
    gelu_linear_backward(dinp, dweight, dbias, dout, inp, nullptr, weight, N, accumulate);
}

// ---- adapters of a frozen table: work space, weights, gradients

void linear_place(Model* m, Layout& place) {
    const Tuning& tuning = m->tuning;
    if (!m->adapters) m->adapters.reset(new Adapters{tuning.rank, float(tuning.alpha / tuning.rank)});
    Adapters& a = *m->adapters;
    const size_t N = size_t(m->B) * size_t(m->T), rank = size_t(a.rank);
    size_t widest = 0, vectors = 0;
    for (const TensorSpec& t : m->arena.tensors) {
        if (t.rows == 1) vectors += t.cols;
        else if (!t.at_ends) widest = std::max({widest, t.rows, t.cols});
    }
    place(a.low, N * rank);
    place(a.dlow, N * rank);
    place(a.wide, N * widest);
    place(a.unread, vectors);
}

void linear_set_weights(Model* m, floatX* weights) {
    m->adapters->weights = weights;
    for (size_t t = 0; t < m->weights.size(); t++) {
        const size_t i = size_t(m->trained_begin[t]);
        Weight& w = m->weights[t];
        if (m->trained_begin[t + 1] > m->trained_begin[t])
            w = {w.at, w.rows, w.cols, m->adapters.get(), m->trained.offset[i], m->trained.offset[i + 1]};
    }
}

void linear_set_gradients(Model* m, float* grads) {
    m->adapters->grads = grads;
    float* unread = m->adapters->unread;
    for (const Weight& w : m->weights)
        m->grads.push_back(w.rows == 1 ? std::exchange(unread, unread + w.cols) : nullptr);
}

}  // namespace BACKEND
