// linear_ops_host.cpp -- the operation of linear.h for every backend; linear_ops.cu compiles it for GPUs.
#include "models/linear.h"
#include "kernels/elements.h"

namespace BACKEND {

void add_scaled(floatX* out, const floatX* x, float scale, const floatX* y, size_t n, Stream stream) {
    constexpr size_t kRow = 8;
    each_element(n / kRow, kRow, [=] ON_DEVICE(size_t row, size_t column) {
        const size_t i = row * kRow + column;
        store(out[i], (x ? widen(x[i]) : 0.0f) + scale * widen(y[i]));
    }, stream);
}

}  // namespace BACKEND
