// lora_ops_host.cpp -- the operation of lora.h for every backend; lora_ops.cu compiles it for GPUs.
#include "kernels/elements.h"
#include "models/lora.h"

namespace BACKEND {

void add_scaled(floatX* out, const floatX* x, float scale, const floatX* y, size_t n, Stream stream) {
    each_element(1, n / 8, [=] ON_DEVICE(size_t, size_t eight) {
        const size_t i = eight * 8;
        Pack<8> sum = x ? load<8>(x + i) : Pack<8>{};
        const Pack<8> more = load<8>(y + i);
        for (int k = 0; k < 8; k++) sum.x[k] += scale * more.x[k];
        store(out + i, sum);
    }, stream);
}

}  // namespace BACKEND
