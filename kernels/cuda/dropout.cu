// dropout.cu -- backward of dropout: the mask is drawn again. Forward is part of the operations that use it.
#include "kernels/cuda/common.cuh"
#include "kernels/elements.h"

namespace BACKEND {

// An element is a pack of 8; the last one may be short.
void dropout_backward(floatX* dinp, const floatX* dout, size_t n, const Dropout& drop, Stream stream) {
    if (drop.rate == 0 && dinp == dout) return;
    each_element(1, div_up(n, size_t(8)), [=] ON_DEVICE(size_t, size_t pack) {
        const size_t i = pack * 8;
        const int count = n - i < 8 ? int(n - i) : 8;
        Pack8 x;
        if (count == 8) x = load8(dout + i);
        else EACH(k, 8) x.x[k] = k < count ? to_float(dout[i + k]) : 0.0f;
        if (drop.rate > 0) dropout8(drop, i, &x);
        if (count == 8) store8(dinp + i, x);
        else EACH(k, 8) if (k < count) dinp[i + k] = to_bf16(x.x[k]);
    }, stream);
}

}  // namespace BACKEND
