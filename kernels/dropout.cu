// dropout.cu -- backward of dropout; forward is part of the operations that use it.
//
//   dinp = drop(dout): the mask is drawn again from the element's number, nothing was stored.
//
//   Traffic    2n elements. With dropout about 25 integer multiplications per element, which a GPU does in the time the memory takes.
#include "common.cuh"
#include "kernels.h"

namespace BACKEND {

namespace {

// One thread per pack of 8; the last one may be short.
__global__ void __launch_bounds__(256) dropout_backward_kernel(floatX* dinp, const floatX* dout, size_t n, Dropout drop) {
    grid_dependency_sync();
    const size_t i = (size_t(blockIdx.x) * blockDim.x + threadIdx.x) * 8;
    if (i >= n) return;
    const int count = n - i < 8 ? int(n - i) : 8;
    Pack8 x;
    if (count == 8) x = load8(dout + i);
    else for (int k = 0; k < 8; k++) x.x[k] = k < count ? to_float(dout[i + size_t(k)]) : 0.0f;
    if (drop.rate > 0) dropout8(drop, i, &x);
    if (count == 8) store8(dinp + i, x);
    else for (int k = 0; k < 8; k++) if (k < count) dinp[i + size_t(k)] = to_bf16(x.x[k]);
}

}  // namespace

void dropout_backward(floatX* dinp, const floatX* dout, size_t n, const Dropout& drop, Stream stream) {
    if (n == 0 || (drop.rate == 0 && dinp == dout)) return;
    launch(dropout_backward_kernel, unsigned(div_up(n, size_t(2048))), 256, 0, stream, dinp, dout, n, drop);
}

}  // namespace BACKEND
