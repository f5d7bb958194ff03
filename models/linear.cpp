// linear.cpp -- linear layers: products with a matrix of the table (model.h), with or without a
// low-rank adapter (Hu et al. 2021, arXiv 2106.09685): --lora freezes the model's weights and
// trains two narrow matrices, A and B, for each matrix of --lora-targets.
//
//     y = x W^T + bias + scale (x A^T) B^T       W (out,in), A (rank,in), B (out,rank)
//
// scale is alpha / rank. A starts with random values and B with zeros, so the first step computes
// the unchanged model.
#include "kernels/elements.h"
#include "models/model.h"

namespace BACKEND {

// out = x + scale y    (n), n a multiple of 8; out may be x or y; if x is null, out = scale y
void add_scaled(floatX* out, const floatX* x, float scale, const floatX* y, size_t n) {
    each_element(1, n / 8, [=] ON_DEVICE(size_t, size_t eight) {
        const size_t i = eight * 8;
        Pack<8> sum = x ? load<8>(x + i) : Pack<8>{};
        const Pack<8> more = load<8>(y + i);
        for (int k = 0; k < 8; k++) sum.x[k] += scale * more.x[k];
        store(out + i, sum);
    }, nullptr);
}

// out += scale (inp A^T) B^T
static void adapter_forward(floatX* out, const floatX* inp, const Weight& w, int N) {
    const Model& m = *w.pairs;
    const int rank = m.trained.rank;
    matmul_forward(m.low, inp, m.all_weights + w.A, nullptr, N, w.cols, rank);
    matmul_forward(m.wide, m.low, m.all_weights + w.B, nullptr, N, rank, w.rows);
    add_scaled(out, out, m.trained.scale, m.wide, size_t(N) * w.rows);
}

void linear_forward(floatX* out, const floatX* inp, const Weight& weight, const floatX* bias,
                    int N) {
    matmul_forward(out, inp, weight, bias, N, weight.cols, weight.rows);
    if (weight.pairs) adapter_forward(out, inp, weight, N);
}

void linear_gelu_forward(floatX* out, floatX* pre, const floatX* inp, const Weight& weight,
                         const floatX* bias, int N) {
    if (!weight.pairs)
        return matmul_gelu_forward(out, pre, inp, weight, bias, N, weight.cols, weight.rows);
    linear_forward(pre, inp, weight, bias, N);
    gelu_forward(out, pre, size_t(N) * weight.rows);
}

// dinp = dout weight; if pre is not null, dinp = (dout weight) * gelu'(pre)
static void backward_input(floatX* dinp, const floatX* dout, const floatX* weight,
                           const floatX* pre, int N, int C, int OC) {
    if (pre) matmul_gelu_backward_input(dinp, dout, weight, pre, N, C, OC);
    else matmul_backward_input(dinp, dout, weight, N, C, OC);
}

// dlow = scale dout B,  dB (+)= scale dout^T (inp A^T),  dA (+)= dlow^T inp;  if inp is null, it
// computes only dlow
static void adapter_backward(const floatX* dout, const floatX* inp, const Weight& w, int N,
                             bool accumulate) {
    const Model& m = *w.pairs;
    const int rank = m.trained.rank;
    const size_t n = size_t(N) * rank;
    matmul_backward_input(m.dlow, dout, m.all_weights + w.B, N, rank, w.rows);
    add_scaled(m.dlow, nullptr, m.trained.scale, m.dlow, n);
    if (!inp) return;
    matmul_forward(m.low, inp, m.all_weights + w.A, nullptr, N, w.cols, rank);
    add_scaled(m.low, nullptr, m.trained.scale, m.low, n);
    matmul_backward_params(m.all_grads + w.B, nullptr, dout, m.low, N, rank, w.rows, accumulate);
    matmul_backward_params(m.all_grads + w.A, nullptr, m.dlow, inp, N, w.cols, rank, accumulate);
}

void gelu_linear_backward(floatX* dpre, float* dweight, float* dbias, const floatX* dout,
                          const floatX* inp, const floatX* pre, const Weight& weight, int N,
                          bool accumulate) {
    const int C = weight.cols, OC = weight.rows;
    const Model* const m = weight.pairs;
    if (m) adapter_backward(dout, inp, weight, N, accumulate);
    else if (inp && dweight)
        matmul_backward_params(dweight, dbias, dout, inp, N, C, OC, accumulate);
    if (!dpre) return;
    // The adapter's term comes first, because it reads pre, which the next line overwrites if dpre
    // is pre.
    if (m) backward_input(m->wide, m->dlow, m->all_weights + weight.A, pre, N, C, m->trained.rank);
    backward_input(dpre, dout, weight, pre, N, C, OC);
    if (m) add_scaled(dpre, dpre, 1, m->wide, size_t(N) * C);
}

void linear_backward(floatX* dinp, float* dweight, float* dbias, const floatX* dout,
                     const floatX* inp, const Weight& weight, int N, bool accumulate) {
    gelu_linear_backward(dinp, dweight, dbias, dout, inp, nullptr, weight, N, accumulate);
}

}  // namespace BACKEND
