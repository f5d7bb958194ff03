// bad_kernels.cu -- small kernels that break one rule of tests/sass.awk each. tests/long/test_nvcc.sh compiles them and
// expects a finding for each of them, but for products<Good> and portable<Good> none. They are never launched.
#include <tuple>
#include <type_traits>
#include "kernels/cuda/hopper.cuh"

using namespace BACKEND;

struct Good {};
struct Fences {};
struct Spins {};
struct NoOperand {};
struct NoWait {};
struct Divergent {};
struct Long {};
struct Many {};

template <class WHAT> __global__ void __launch_bounds__(128)
products(float* p, uint64_t a, uint64_t b, int n, const volatile int* flag) {
    constexpr auto is = [](auto what) { return std::is_same_v<decltype(what), WHAT>; };
    __shared__ uint64_t full[1];
    float d[32] = {};
    for (int i = 0; i < n; i++) {
        if (!is(NoOperand())) mbar_wait(full, i & 1);
        if (is(Spins())) while (!*flag) {}
        if (is(Fences())) __threadfence();
        wgmma_fence();
        wgmma<64, false, false>(d, is(Divergent()) ? a + threadIdx.x / 128 : a, b, true);
        wgmma_commit();
        if (!is(NoWait())) wgmma_wait<0>(d);
    }
    wgmma_wait<0>(d);
    for (int i = 0; i < 32; i++) p[i] = d[i];
}

// Its warpgroups ask for more registers than the block has: the last would wait forever.
__global__ void __launch_bounds__(384, 1) warpgroups(float* p) {
    if (threadIdx.x < 128) {
        registers_down<40>();
        return;
    }
    registers_up<240>();
    p[threadIdx.x] = 0;
}

template <class WHAT> __global__ void portable(float* p, const unsigned* q, int n) {
    float d[4] = {};
    for (int i = 0; i < n; i++) {
        const unsigned a[4] = {q[0], q[1], q[2], q[i]}, b[2] = {q[3], q[4]};
        mma_m16n8k16(d, a, b);
        if (std::is_same_v<WHAT, Fences>) __threadfence();
    }
    p[0] = d[0];
}

__global__ void copies(float* p, const float* q, int n) {
    __shared__ float4 x[128];
    for (int i = 0; i < n; i++) cp_async16(x + threadIdx.x, q + i * 4);
    cp_async_commit();
    cp_async_wait<0>();
    p[0] = x[n].x;
}

// So that the compiler makes them.
auto all_of_them() {
    return std::tuple(products<Good>, products<Fences>, products<Spins>, products<NoOperand>, products<NoWait>,
                      products<Divergent>, products<Long>, products<Many>, portable<Good>, portable<Fences>);
}
