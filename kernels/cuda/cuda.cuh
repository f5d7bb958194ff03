// cuda.cuh -- launch(), and the instructions that CUDA C++ has no functions for.
//
// All inline assembly of the kernels is here (PTX ISA 8.x). Instructions that the target lacks become traps,
// griddepcontrol nothing: so one source compiles for every architecture from sm_80 on. Launchers choose kernels by it.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include "src/base/common.h"
#include "src/base/numbers.h"

// mbarrier and TMA need sm_90 or later, wgmma and setmaxnreg need sm_90a.
// `if (!kSm90a) return;` makes a kernel empty for other architectures.
#if __CUDA_ARCH__ >= 900
#define ASM_SM90(...) asm volatile(__VA_ARGS__)
#define ASM_DEPENDENCY(...) asm volatile(__VA_ARGS__)
#else
#define ASM_SM90(...) asm volatile("trap;")
#define ASM_DEPENDENCY(...)
#endif
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define ASM_SM90A(...) asm volatile(__VA_ARGS__)
constexpr bool kSm90a = true;
#else
#define ASM_SM90A(...) asm volatile("trap;")
constexpr bool kSm90a = false;
#endif

namespace BACKEND {

// ------------------------ host

// Returns whether the build has code for compute capability `major`.x; 9 is sm_90a, as configure turns 90 into 90a.
constexpr bool has_code_for(int major) {
    return [=](auto... built) { return ((built / 100 == major) || ...); }(__CUDA_ARCH_LIST__);
}

// Returns the CUDA stream for a kernel that is launched now (runtime.cu). *behind_kernel
// tells whether the stream's newest work is a kernel; then this one may begin early.
cudaStream_t launch_stream(Stream stream, bool* behind_kernel);

// Launches a kernel, unless the grid is empty. <<<>>> cannot let a kernel begin early (programmatic
// dependent launch), cannot ask for more than 48 KB of shared memory, and reports no error. The 48 KB
// include static arrays; kernels with dynamic memory near that limit have less than 1 KB of these.
template <class... P, class... A>
void launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t smem, Stream stream, A&&... args) {
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
    cudaError_t error = cudaSuccess;
    if (smem > 47 * 1024)
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(smem));
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    bool behind_kernel = false;
    const cudaStream_t queue = launch_stream(stream, &behind_kernel);
    const cudaLaunchConfig_t config = {grid, block, smem, queue, &early, behind_kernel};
    if (error == cudaSuccess) error = cudaLaunchKernelEx(&config, kernel, static_cast<P>(args)...);
    if (error != cudaSuccess)
        die(kExitOther, "gpu: launch of %ux%ux%u blocks of %u threads with %zu bytes of shared memory: %s", grid.x,
            grid.y, grid.z, block.x * block.y * block.z, smem, cudaGetErrorString(error));
}

// Returns the driver's cuTensorMapEncodeTiled. dlsym finds it, so that no program is linked with the driver's library.
inline auto tensor_map_encoder() {
    static const auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(
        dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuTensorMapEncodeTiled"));
    if (!encode) die(kExitOther, "gpu: libcuda.so.1 has no cuTensorMapEncodeTiled; the driver is too old");
    return encode;
}

// ------------------------ the kernel before

// Waits until the kernel before this one is complete. Then lets the next kernel's blocks start as soon
// as all blocks of this one have come here. If it did so before the wait, waiting blocks of several
// kernels would fill the multiprocessors. Every thread of every kernel calls this before it touches
// global memory and before it returns. So when the kernel before is complete, all earlier ones are, too.
__device__ inline void grid_dependency_sync() {
    ASM_DEPENDENCY("griddepcontrol.wait;" ::: "memory");
    ASM_DEPENDENCY("griddepcontrol.launch_dependents;" ::: "memory");
}

// ------------------------ ldmatrix, mma, cp.async

__device__ inline unsigned shared_address(const void* p) { return unsigned(__cvta_generic_to_shared(p)); }

// Loads four 8x8 matrices of bf16; lanes 8i .. 8i+7 give the addresses of the rows of matrix
// i. Lane t gets elements (t/4, t%4*2) and (t/4, t%4*2+1) of each matrix, or of its transpose.
template <bool TRANS = false> __device__ void ldmatrix_x4(unsigned (&r)[4], const void* row) {
    if constexpr (TRANS)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(row)) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(row)) : "memory");
}
// d += a b for 16x16 a and 16x8 b, fp32 += bf16 x bf16. Lane t holds rows t/4 and t/4+8 of d, columns t%4*2 and +1.
__device__ inline void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// Returns 2^x with relative error 2^-22, by one instruction; results below 2^-126 are 0. exp2f takes three more.
__device__ inline float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// Returns 1 / sqrt(x) with relative error 2^-22; rsqrtf takes more instructions, for x below 2^-126.
__device__ inline float rsqrt_fast(float x) {
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// Returns two floats, rounded to bf16, in one register; `low`, the element with the smaller index, is its lower half.
__device__ inline unsigned pack2(float low, float high) {
    unsigned packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}
// Prefetches the 32 bytes at p into the L2 cache.
__device__ inline void prefetch_l2(const void* p) { asm volatile("prefetch.global.L2 [%0];" :: "l"(p)); }
// Starts the copy of 16 aligned bytes from global to shared memory. If !valid it writes zeros and does not read src.
__device__ inline void cp_async16(void* dst, const void* src, bool valid = true) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 :: "r"(shared_address(dst)), "l"(src), "r"(valid ? 16 : 0) : "memory");
}
// cp_async_commit ends a group of copies; cp_async_wait waits for all but the thread's newest N groups.
__device__ inline void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ void cp_async_wait() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }

// ------------------------ barriers, TMA

// These use two named barriers of N threads, `which` 0 or 1. bar_sync arrives and waits; bar_arrive only arrives.
// The barriers' numbers are constants: with a number in a register, a block would reserve all sixteen barriers.
template <int N> __device__ void bar_sync(int which) {
    if (which == 0) asm volatile("bar.sync 1, %0;" :: "n"(N) : "memory");
    else asm volatile("bar.sync 2, %0;" :: "n"(N) : "memory");
}
template <int N> __device__ void bar_arrive(int which) {
    if (which == 0) asm volatile("bar.arrive 1, %0;" :: "n"(N) : "memory");
    else asm volatile("bar.arrive 2, %0;" :: "n"(N) : "memory");
}

// An mbarrier's phase ends when n threads have arrived and all bytes that were announced for it have come.
__device__ inline void mbar_init(uint64_t* bar, int n) {
    ASM_SM90("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(shared_address(bar)), "r"(n) : "memory");
}
__device__ inline void mbar_fence_init() { ASM_SM90("fence.mbarrier_init.release.cluster;" ::: "memory"); }
// Arrives, and announces the bytes that TMA loads will bring in this phase.
__device__ inline void mbar_arrive(uint64_t* bar, int bytes = 0) {
    if (bytes)
        ASM_SM90("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :: "r"(shared_address(bar)), "r"(bytes) : "memory");
    else
        ASM_SM90("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(shared_address(bar)) : "memory");
}
// Waits until the phase with this parity has ended. In a new barrier the phase with parity 1 counts as ended.
__device__ inline void mbar_wait(uint64_t* bar, unsigned parity) {
    ASM_SM90("{\n"
             ".reg .pred ended;\n"
             "retry:\n"
             "mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
             "@!ended bra retry;\n"
             "}" :: "r"(shared_address(bar)), "r"(parity) : "memory");
}

// Makes ordinary writes to shared memory visible to wgmma.
__device__ inline void async_fence() { ASM_SM90("fence.proxy.async.shared::cta;" ::: "memory"); }

// tma_load starts to load the box at column x, row y of a matrix (of matrix z of several) into rows of 128 bytes; `bar`
// counts its bytes. 16-byte chunk c of row r is stored at chunk c xor r mod 8. Elements outside of the matrix are 0.
#define TMA_LOAD ".shared::cluster.global.mbarrier::complete_tx::bytes"
__device__ inline void tma_load(void* dst, const CUtensorMap* map, uint64_t* bar, int x, int y) {
    ASM_SM90("cp.async.bulk.tensor.2d" TMA_LOAD " [%0], [%1, {%3, %4}], [%2];"
             :: "r"(shared_address(dst)), "l"(map), "r"(shared_address(bar)), "r"(x), "r"(y) : "memory");
}
__device__ inline void tma_load(void* dst, const CUtensorMap* map, uint64_t* bar, int x, int y, int z) {
    ASM_SM90("cp.async.bulk.tensor.3d" TMA_LOAD " [%0], [%1, {%3, %4, %5}], [%2];"
             :: "r"(shared_address(dst)), "l"(map), "r"(shared_address(bar)), "r"(x), "r"(y), "r"(z) : "memory");
}
// Prefetches the tensor map itself.
__device__ inline void tma_prefetch(const CUtensorMap* m) { ASM_SM90("prefetch.tensormap [%0];" :: "l"(m) : "memory"); }

// ------------------------ wgmma

// In the assembly the accumulators are operands 0 .. N/2-1; a and b, the flag and the majors follow.
#define TEN(t) "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7,%" #t "8,%" #t "9"
#define SIXTY TEN() "," TEN(1) "," TEN(2) "," TEN(3) "," TEN(4) "," TEN(5)
#define REGISTERS_32 TEN() "," TEN(1) "," TEN(2) ",%30,%31"
#define REGISTERS_64 SIXTY ",%60,%61,%62,%63"
#define REGISTERS_80 SIXTY "," TEN(6) "," TEN(7)
#define REGISTERS_128 REGISTERS_80 "," TEN(8) "," TEN(9) "," TEN(10) "," TEN(11) \
    ",%120,%121,%122,%123,%124,%125,%126,%127"
#define BIND4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define BIND16(i) BIND4(i), BIND4(i + 4), BIND4(i + 8), BIND4(i + 12)
#define BIND64(i) BIND16(i), BIND16(i + 16), BIND16(i + 32), BIND16(i + 48)
#define WGMMA(n, registers, a_b, flag, majors) \
    "{\n.reg .pred add;\nsetp.ne.b32 add, " flag ", 0;\n" \
    "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" registers "}, " a_b ", add, 1, 1, " majors ";\n}"
#define TWO_DESCRIPTORS "l"(a), "l"(b), "r"(int(accumulate)), "n"(int(TA)), "n"(int(TB))
#define A_IN_REGISTERS "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(accumulate)), "n"(int(TB))

// Starts a product m64nNk16: d = a b, or d += a b if `accumulate` is set. TA, TB: a, b is MN-major.
template <int N, bool TA, bool TB> __device__ void wgmma(float (&d)[N / 2], uint64_t a, uint64_t b, bool accumulate) {
    static_assert(N == 8 || N == 64 || N == 128 || N == 160 || N == 256);
    if constexpr (N == 8)
        ASM_SM90A(WGMMA(8, "%0,%1,%2,%3", "%4, %5", "%6", "%7, %8") : BIND4(0) : TWO_DESCRIPTORS);
    else if constexpr (N == 64)
        ASM_SM90A(WGMMA(64, REGISTERS_32, "%32, %33", "%34", "%35, %36") : BIND16(0), BIND16(16) : TWO_DESCRIPTORS);
    else if constexpr (N == 128)
        ASM_SM90A(WGMMA(128, REGISTERS_64, "%64, %65", "%66", "%67, %68") : BIND64(0) : TWO_DESCRIPTORS);
    else if constexpr (N == 160)
        ASM_SM90A(WGMMA(160, REGISTERS_80, "%80, %81", "%82", "%83, %84") : BIND64(0), BIND16(64) : TWO_DESCRIPTORS);
    else
        ASM_SM90A(WGMMA(256, REGISTERS_128, "%128, %129", "%130", "%131, %132")
                  : BIND64(0), BIND64(64) : TWO_DESCRIPTORS);
}
// Starts the same with a in registers, in the layout that ldmatrix_x4
// gives. The registers must not change before a wgmma_wait for the product.
template <int N, bool TB>
__device__ void wgmma(float (&d)[N / 2], const unsigned (&a)[4], uint64_t b, bool accumulate) {
    static_assert(N == 64 || N == 128);
    if constexpr (N == 64)
        ASM_SM90A(WGMMA(64, REGISTERS_32, "{%32,%33,%34,%35}, %36", "%37", "%38")
                  : BIND16(0), BIND16(16) : A_IN_REGISTERS);
    else
        ASM_SM90A(WGMMA(128, REGISTERS_64, "{%64,%65,%66,%67}, %68", "%69", "%70") : BIND64(0) : A_IN_REGISTERS);
}

// wgmma_fence must come before the first product of a group; wgmma_commit ends the group.
__device__ inline void wgmma_fence() { ASM_SM90A("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() { ASM_SM90A("wgmma.commit_group.sync.aligned;" ::: "memory"); }
__device__ inline void hold(float& x) { asm volatile("" : "+f"(x)); }
__device__ inline void hold(unsigned& x) { asm volatile("" : "+r"(x)); }
// Tells the compiler that d may change here, so that code after it does not use an earlier copy of d.
template <class T, size_t R> __device__ void wgmma_hold(T (&d)[R]) {
    for (size_t i = 0; i < R; i++) hold(d[i]);
}
// Waits until all groups but the newest N are done. The compiler does not move reads of d in front of it.
template <int N, class... D> __device__ void wgmma_wait(D&... d) {
    ASM_SM90A("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory");
    (wgmma_hold(d), ...);
}

// setmaxnreg: raises or lowers the registers of each thread of the calling warpgroup to R.
template <int R> __device__ void registers_up() { ASM_SM90A("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(R)); }
template <int R> __device__ void registers_down() { ASM_SM90A("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(R)); }

}  // namespace BACKEND

#undef TEN
#undef SIXTY
#undef WGMMA
#undef ASM_SM90
#undef ASM_SM90A
#undef ASM_DEPENDENCY
