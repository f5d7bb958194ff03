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

// low = inp A^T
void narrow(Model* m, const Matrix& w, const floatX* inp, int N) {
    matmul_forward(m->adapters.low, inp, w.A, nullptr, N, w.C, m->lora.rank, kMain);
}
// dlow = scale dout B
void narrow_back(Model* m, const Matrix& w, const floatX* dout, int N) {
    floatX* const dlow = m->adapters.dlow;
    matmul_backward_input(dlow, dout, w.B, N, m->lora.rank, w.OC, kMain);
    add_scaled(dlow, nullptr, m->lora.scale(), dlow, size_t(N) * size_t(m->lora.rank), kMain);
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
    narrow(m, w, inp, N);
    matmul_forward(m->adapters.wide, m->adapters.low, w.B, nullptr, N, m->lora.rank, w.OC, kMain);
    add_scaled(sum, sum, m->lora.scale(), m->adapters.wide, n, kMain);
    if (pre) gelu_forward(out, pre, n, kMain);
}

void linear_backward_params(Model* m, const floatX* dout, const floatX* inp, const floatX* weight, const floatX* bias,
                            int N, bool accumulate) {
    const Matrix w(m, weight);
    if (!m->lora.rank) {
        float* const dbias = bias ? m->grads[size_t(tensor_of(m, bias))] : nullptr;
        return matmul_backward_params(m->grads[size_t(w.tensor)], dbias, dout, inp, N, w.C, w.OC, accumulate, kMain);
    }
    if (w.adapter < 0) return;
    const int rank = m->lora.rank;
    floatX* const low = m->adapters.low;
    float* const* const d = &m->adapters.grads[size_t(w.adapter)];
    narrow(m, w, inp, N);
    add_scaled(low, nullptr, m->lora.scale(), low, size_t(N) * size_t(rank), kMain);
    matmul_backward_params(d[1], nullptr, dout, low, N, rank, w.OC, accumulate, kMain);
    narrow_back(m, w, dout, N);
    matmul_backward_params(d[0], nullptr, m->adapters.dlow, inp, N, w.C, rank, accumulate, kMain);
}

void linear_backward_input(Model* m, floatX* dinp, const floatX* dout, const floatX* weight, int N, const floatX* pre) {
    const Matrix w(m, weight);
    const auto back = [&](floatX* to, const floatX* from, const floatX* matrix, int OC) {
        if (pre) matmul_gelu_backward_input(to, from, matrix, pre, N, w.C, OC, kMain);
        else matmul_backward_input(to, from, matrix, N, w.C, OC, kMain);
    };
    if (w.adapter >= 0) {                       // first: dinp may be pre
        narrow_back(m, w, dout, N);
        back(m->adapters.wide, m->adapters.dlow, w.A, m->lora.rank);
    }
    back(dinp, dout, weight, w.OC);
    if (w.adapter >= 0) add_scaled(dinp, dinp, 1, m->adapters.wide, size_t(N) * size_t(w.C), kMain);
}

}  // namespace BACKEND
