// common.cuh -- what all CUDA kernels share: launch(), instructions that CUDA C++ has no functions
// for, and helpers. `#pragma unroll` marks loops that nvcc would not unroll by itself: their arrays
// are in registers only if they are unrolled.
#pragma once
#include <cuda_runtime.h>
#include "kernels/kernels.h"

namespace BACKEND {

template <class T> constexpr T div_up(T a, T b) { return (a + b - 1) / b; }

// ------------------------ launches

// Returns whether the build has code for compute capability `major`.x. configure builds 9.0 as
// sm_90a only, so major 9 means sm_90a.
constexpr bool has_code_for(int major) {
    return [=](auto... built) { return ((built / 100 == major) || ...); }(__CUDA_ARCH_LIST__);
}

// Returns the CUDA stream for a kernel that is launched now (runtime.cu). *behind_kernel becomes
// true if the stream's newest work is a kernel; then this one may begin early.
cudaStream_t launch_stream(Stream stream, bool* behind_kernel);

// Launches a kernel, unless the grid is empty. It stands for <<<>>>, which cannot let a kernel
// begin early (programmatic dependent launch), cannot ask for more than 48 KB of shared memory, and
// reports no error. The 48 KB include static arrays; kernels with dynamic memory near that limit
// have less than 1 KB of these.
template <class... P, class... A>
void launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t smem, Stream stream, A&&... args) {
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
    cudaError_t error = cudaSuccess;
    if (smem > 47 * 1024)
        error =
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(smem));
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    bool behind_kernel = false;
    const cudaStream_t queue = launch_stream(stream, &behind_kernel);
    const cudaLaunchConfig_t config = {grid, block, smem, queue, &early, behind_kernel};
    if (error == cudaSuccess) error = cudaLaunchKernelEx(&config, kernel, static_cast<P>(args)...);
    if (error != cudaSuccess)
        die(kExitOther,
            "gpu: launch of %ux%ux%u blocks of %u threads with %zu bytes of shared memory: %s",
            grid.x, grid.y, grid.z, block.x * block.y * block.z, smem, cudaGetErrorString(error));
}

// Waits until the kernel before this one is complete. Then lets the next kernel's
// blocks start as soon as all blocks of this one have come here. If it did so before
// the wait, waiting blocks of several kernels would fill the multiprocessors. Every
// thread of every kernel calls this before it touches global memory and before it
// returns. So when the kernel before is complete, all earlier ones are, too.
#if __CUDA_ARCH__ >= 900
__device__ inline void grid_dependency_sync() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
#else
__device__ inline void grid_dependency_sync() {}
#endif

// ------------------------ threads

// These return the thread's lane in its warp, its warp in the block and, below, its number in a
// grid of one dimension.
__device__ inline int lane() { return int(threadIdx.x % 32); }
__device__ inline int warp() { return int(threadIdx.x / 32); }
__device__ inline size_t thread_of_grid() { return size_t(blockIdx.x) * blockDim.x + threadIdx.x; }

// Returns the memory at p as a T, to read or write it in one access. p must be aligned for a T.
template <class T> __device__ T& as(void* p) { return *static_cast<T*>(p); }
template <class T> __device__ const T& as(const void* p) { return *static_cast<const T*>(p); }

// ------------------------ instructions

__device__ inline unsigned shared_address(const void* p) {
    return unsigned(__cvta_generic_to_shared(p));
}

// Loads four 8x8 matrices of bf16; lanes 8i .. 8i+7 give the addresses of the rows of matrix
// i. Lane t gets elements (t/4, t%4*2) and (t/4, t%4*2+1) of each matrix, or of its transpose.
template <bool TRANS = false> __device__ void ldmatrix_x4(unsigned (&r)[4], const void* row) {
    if constexpr (TRANS)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(shared_address(row))
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(shared_address(row))
                     : "memory");
}
// d += a b for 16x16 a and 16x8 b, fp32 += bf16 x bf16. Lane t holds rows t/4 and t/4+8 of d,
// columns t%4*2 and +1; of a and b it holds what ldmatrix gives it.
__device__ inline void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// Returns 2^x with relative error 2^-22, by one instruction. Results below 2^-126 are 0. exp2f
// takes three instructions more.
__device__ inline float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// Returns 1 / sqrt(x) with relative error 2^-22. rsqrtf takes more instructions, because it also
// handles x below 2^-126.
__device__ inline float rsqrt_fast(float x) {
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// Returns two floats, rounded to bf16, in one register; `low`, the element with the smaller index,
// is its lower half.
__device__ inline unsigned pack2(float low, float high) {
    unsigned packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}
// Prefetches the 32 bytes at p into the L2 cache.
__device__ inline void prefetch_l2(const void* p) {
    asm volatile("prefetch.global.L2 [%0];" :: "l"(p));
}
// Starts the copy of 16 aligned bytes from global to shared memory. If !valid it writes zeros and
// does not read src.
__device__ inline void cp_async16(void* dst, const void* src, bool valid = true) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 :: "r"(shared_address(dst)), "l"(src), "r"(valid ? 16 : 0) : "memory");
}
// cp_async_commit ends a group of copies; cp_async_wait
// waits for all but the thread's newest N groups.
__device__ inline void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory");
}

// ------------------------ values

// bf16 is the upper half of a float. low2 and high2 widen the two that pack2 has packed, to_float
// widens one. to_bf16 rounds to nearest even, and a NaN stays a NaN.
__device__ inline float low2(unsigned u) { return __uint_as_float(u << 16); }
__device__ inline float high2(unsigned u) { return __uint_as_float(u & 0xffff0000u); }
__device__ inline float to_float(bf16 x) { return low2(x.bits); }
__device__ inline bf16 to_bf16(float x) { return {uint16_t(pack2(x, 0.0f))}; }

// Pack8 holds eight bf16, widened to float. They are 16 bytes in memory, the widest load of sm_80.
struct Pack8 { float x[8]; };
__device__ inline Pack8 unpack8(const uint4& u) {
    return {{low2(u.x), high2(u.x), low2(u.y), high2(u.y), low2(u.z), high2(u.z), low2(u.w),
             high2(u.w)}};
}
__device__ inline Pack8 load8(const bf16* p) { return unpack8(as<uint4>(p)); }
__device__ inline void store8(bf16* p, const Pack8& v) {
    as<uint4>(p) = {pack2(v.x[0], v.x[1]), pack2(v.x[2], v.x[3]), pack2(v.x[4], v.x[5]),
                    pack2(v.x[6], v.x[7])};
}
__device__ inline float4 operator+(const float4& a, const float4& b) {
    return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

// warp_sum and warp_max return the sum and the maximum over a warp, the same bits in every lane.
template <class T> __device__ T warp_sum(T x) {
    for (int o = 16; o; o /= 2) x += __shfl_xor_sync(~0u, x, o);
    return x;
}
__device__ inline float warp_max(float x) {
    for (int o = 16; o; o /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, o));
    return x;
}

// Dropout turns a kept element x into x / (1 - rate), and any other into 0. dropout4 does this
// to elements 4 i .. 4 i + 3, and dropout8 to elements i .. i + 7, where i is a multiple of 8.
__device__ inline RandomKey key_of(const Dropout& drop) {
    return {drop.state->seed, drop.purpose, drop.state->step, drop.micro_batch};
}
__device__ inline void dropout4(const Dropout& drop, uint64_t i, float* x) {
    const Random4 r = random4(key_of(drop), i);
    const float keep = 1.0f - drop.rate;
    for (int k = 0; k < 4; k++) x[k] = uniform01(r.v[k]) >= drop.rate ? x[k] / keep : 0.0f;
}
__device__ inline void dropout8(const Dropout& drop, uint64_t i, Pack8* v) {
    for (int half = 0; half < 2; half++) dropout4(drop, i / 4 + uint64_t(half), v->x + half * 4);
}

// These are in runtime.cu. hopper returns whether the device is a Hopper and the build has code for
// it. multiprocessors returns how many the device has, less those that spare_multiprocessors()
// keeps free. shared_memory_of_block returns a block's limit in bytes. scratch returns work space
// of the stream, which its next operation may overwrite.
bool hopper();
int multiprocessors();
size_t shared_memory_of_block();
void* scratch(size_t bytes, Stream stream);

}  // namespace BACKEND
