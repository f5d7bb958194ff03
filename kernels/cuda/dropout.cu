// dropout.cu -- backward of dropout, which computes the mask again. Forward is part of the operations that use it.
#include "kernels/cuda/common.cuh"
#include "kernels/elements.h"
#include "src/base/common.h"

namespace BACKEND {

// An element of each_element is a pack of 8.
void dropout_backward(floatX* dinp, const floatX* dout, size_t n, const Dropout& drop, Stream stream) {
    CHECK(n % 8 == 0, "dropout_backward: %zu elements", n);
    each_element(1, n / 8, [=] ON_DEVICE(size_t, size_t pack) {
        Pack8 x = load8(dout + pack * 8);
        if (drop.rate > 0) dropout8(drop, pack * 8, &x);
        store8(dinp + pack * 8, x);
    }, stream);
}

}  // namespace BACKEND
