// linear.cpp -- see linear.h. Formulas are in kernels.h and lora.h.
#include "models/linear.h"
#include <algorithm>

namespace BACKEND {
namespace {

int tensor_of(const Model* m, const floatX* weight) {
    const auto found = std::ranges::find(m->weights, weight);
    CHECK(found != m->weights.end(), "a product with what is no tensor of the model's table");
    return int(found - m->weights.begin());
}

// A matrix of the table, and with --lora its adapter.
struct Matrix {
    int tensor, C, OC;
    int adapter;                // of its A among the adapters' tensors, its B is the next one; -1: it has none
    const floatX *A = nullptr, *B = nullptr;

    Matrix(const Model* m, const floatX* weight) {
        tensor = tensor_of(m, weight);
        C = int(m->arena.tensors[size_t(tensor)].cols);
        OC = int(m->arena.tensors[size_t(tensor)].rows);
        const int* const begin = &m->trained_begin[size_t(tensor)];
        adapter = m->lora.rank && begin[0] < begin[1] ? begin[0] : -1;
        if (adapter < 0) return;
        A = m->adapters.weights[size_t(adapter)];
        B = m->adapters.weights[size_t(adapter) + 1];
    }
};

void backward_input(floatX* dinp, const floatX* dout, const floatX* weight, const floatX* pre, int N, int C, int OC) {
    if (pre) matmul_gelu_backward_input(dinp, dout, weight, pre, N, C, OC, kMain);
    else matmul_backward_input(dinp, dout, weight, N, C, OC, kMain);
}

// dA, dB (+)=, and wide = scale dout B A, times gelu'(pre) where that is given.
void adapter_backward(Model* m, const Matrix& w, const floatX* dout, const floatX* inp, int N, bool accumulate,
                      bool wants_input, const floatX* pre) {
    const Model::Adapters& a = m->adapters;
    const int rank = m->lora.rank;
    const size_t n = size_t(N) * size_t(rank);
    matmul_backward_input(a.dlow, dout, w.B, N, rank, w.OC, kMain);
    add_scaled(a.dlow, nullptr, m->lora.scale(), a.dlow, n, kMain);
    if (inp) {
        matmul_forward(a.low, inp, w.A, nullptr, N, w.C, rank, kMain);
        add_scaled(a.low, nullptr, m->lora.scale(), a.low, n, kMain);
        matmul_backward_params(a.grads[size_t(w.adapter) + 1], nullptr, dout, a.low, N, rank, w.OC, accumulate, kMain);
        matmul_backward_params(a.grads[size_t(w.adapter)], nullptr, a.dlow, inp, N, w.C, rank, accumulate, kMain);
    }
    if (wants_input) backward_input(a.wide, a.dlow, w.A, pre, N, w.C, rank);
}

}  // namespace

void linear_forward(Model* m, floatX* out, const floatX* inp, const floatX* weight, const floatX* bias, int N,
                    floatX* pre) {
    const Matrix w(m, weight);
    if (w.adapter < 0 && pre) return matmul_gelu_forward(out, pre, inp, weight, bias, N, w.C, w.OC, kMain);
    floatX* const sum = pre ? pre : out;
    matmul_forward(sum, inp, weight, bias, N, w.C, w.OC, kMain);
    if (w.adapter < 0) return;
    const size_t n = size_t(N) * size_t(w.OC);
    matmul_forward(m->adapters.low, inp, w.A, nullptr, N, w.C, m->lora.rank, kMain);
    matmul_forward(m->adapters.wide, m->adapters.low, w.B, nullptr, N, m->lora.rank, w.OC, kMain);
    add_scaled(sum, sum, m->lora.scale(), m->adapters.wide, n, kMain);
    if (pre) gelu_forward(out, pre, n, kMain);
}

void linear_backward(Model* m, floatX* dinp, const floatX* dout, const floatX* inp, const floatX* weight,
                     const floatX* bias, int N, bool accumulate, const floatX* pre) {
    const Matrix w(m, weight);
    if (w.adapter >= 0) {                       // first: dinp may be pre
        adapter_backward(m, w, dout, inp, N, accumulate, dinp != nullptr, pre);
    } else if (inp && !m->lora.rank) {
        float* const dbias = bias ? m->grads[size_t(tensor_of(m, bias))] : nullptr;
        matmul_backward_params(m->grads[size_t(w.tensor)], dbias, dout, inp, N, w.C, w.OC, accumulate, kMain);
    }
    if (!dinp) return;
    backward_input(dinp, dout, weight, pre, N, w.C, w.OC);
    if (w.adapter >= 0) add_scaled(dinp, dinp, 1, m->adapters.wide, size_t(N) * size_t(w.C), kMain);
}

}  // namespace BACKEND
