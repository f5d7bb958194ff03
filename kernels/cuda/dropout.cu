// dropout.cu -- backward of dropout: the mask is drawn again. Forward is part of the operations that use it.
#include "kernels/cuda/common.cuh"
#include "kernels/kernels.h"

namespace BACKEND {

// One thread per pack of 8; the last one may be short.
static __global__ void __launch_bounds__(256)
dropout_backward_kernel(floatX* dinp, const floatX* dout, size_t n, Dropout drop) {
    grid_dependency_sync();
    const size_t i = thread_of_grid() * 8;
    if (i >= n) return;
    const int count = n - i < 8 ? int(n - i) : 8;
    Pack8 x;
    if (count == 8) x = load8(dout + i);
    else EACH(k, 8) x.x[k] = k < count ? to_float(dout[i + k]) : 0.0f;
    if (drop.rate > 0) dropout8(drop, i, &x);
    if (count == 8) store8(dinp + i, x);
    else EACH(k, 8) if (k < count) dinp[i + k] = to_bf16(x.x[k]);
}

void dropout_backward(floatX* dinp, const floatX* dout, size_t n, const Dropout& drop, Stream stream) {
    if (n == 0 || (drop.rate == 0 && dinp == dout)) return;
    launch(dropout_backward_kernel, div_up(n, size_t(2048)), 256, 0, stream, dinp, dout, n, drop);
}

}  // namespace BACKEND
