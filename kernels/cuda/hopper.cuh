// hopper.cuh -- what only Hopper's kernels use: barriers, TMA, wgmma (PTX ISA 8.x), and a ring of
// slots for TMA's loads.
//
// Instructions that the target lacks become traps. So one source compiles for every architecture
// from sm_80 on, and launchers choose the kernels by the device.
#pragma once
#include <cuda.h>
#include <dlfcn.h>
#include "kernels/cuda/common.cuh"

// mbarrier and TMA need sm_90 or later, wgmma and setmaxnreg need sm_90a.
// `if (!kSm90a) return;` makes a kernel empty for other architectures.
#if __CUDA_ARCH__ >= 900
#define ASM_SM90(...) asm volatile(__VA_ARGS__)
#else
#define ASM_SM90(...) asm volatile("trap;")
#endif
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define ASM_SM90A(...) asm volatile(__VA_ARGS__)
constexpr bool kSm90a = true;
#else
#define ASM_SM90A(...) asm volatile("trap;")
constexpr bool kSm90a = false;
#endif

namespace BACKEND {

// ------------------------ barriers, TMA

// Returns the thread's warpgroup, four warps, in the block (Hopper). The shuffle tells the
// compiler that all lanes of a warp have the same value, so that it can use uniform registers.
__device__ inline int warpgroup() { return __shfl_sync(~0u, int(threadIdx.x / 128), 0); }

// These use two named barriers of N threads, `which` 0 or 1. bar_sync arrives and waits; bar_arrive
// only arrives. The barriers' numbers are constants: with a number in a register, a block would
// reserve all sixteen barriers.
template <int N> __device__ void bar_sync(int which) {
    if (which == 0) asm volatile("bar.sync 1, %0;" :: "n"(N) : "memory");
    else asm volatile("bar.sync 2, %0;" :: "n"(N) : "memory");
}
template <int N> __device__ void bar_arrive(int which) {
    if (which == 0) asm volatile("bar.arrive 1, %0;" :: "n"(N) : "memory");
    else asm volatile("bar.arrive 2, %0;" :: "n"(N) : "memory");
}

// An mbarrier's phase ends when n threads have arrived and
// all bytes that were announced for it have come.
__device__ inline void mbar_init(uint64_t* bar, int n) {
    ASM_SM90("mbarrier.init.shared::cta.b64 [%0], %1;"
             :: "r"(shared_address(bar)), "r"(n) : "memory");
}
__device__ inline void mbar_fence_init() {
    ASM_SM90("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// Arrives, and announces the bytes that TMA loads will bring in this phase.
__device__ inline void mbar_arrive(uint64_t* bar, int bytes = 0) {
    if (bytes)
        ASM_SM90("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :: "r"(shared_address(bar)), "r"(bytes) : "memory");
    else
        ASM_SM90("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(shared_address(bar)) : "memory");
}
// Waits until the phase with this parity has ended. In a
// new barrier the phase with parity 1 counts as ended.
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

// tma_load starts to load the box at column x, row y of a matrix (of matrix z of several) into rows
// of 128 bytes; `bar` counts its bytes. 16-byte chunk c of row r is stored at chunk c xor r mod 8.
// Elements outside of the matrix are 0.
#define TMA_LOAD ".shared::cluster.global.mbarrier::complete_tx::bytes"
__device__ inline void tma_load(void* dst, const CUtensorMap* map, uint64_t* bar, int x, int y) {
    ASM_SM90("cp.async.bulk.tensor.2d" TMA_LOAD
             " [%0], [%1, {%3, %4}], [%2];" ::"r"(shared_address(dst)),
             "l"(map), "r"(shared_address(bar)), "r"(x), "r"(y)
             : "memory");
}
__device__ inline void tma_load(void* dst, const CUtensorMap* map, uint64_t* bar, int x, int y,
                                int z) {
    ASM_SM90("cp.async.bulk.tensor.3d" TMA_LOAD
             " [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(shared_address(dst)),
             "l"(map), "r"(shared_address(bar)), "r"(x), "r"(y), "r"(z)
             : "memory");
}
// Prefetches the tensor map itself.
__device__ inline void tma_prefetch(const CUtensorMap* m) {
    ASM_SM90("prefetch.tensormap [%0];" :: "l"(m) : "memory");
}

// ------------------------ wgmma

// These write the assembly of wgmma. Its operands are the accumulators, number 0 to N/2-1, and
// after them a, b, the flag for adding, and whether a and b are MN-major.
#define TEN(t) "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4," \
    "%" #t "5,%" #t "6,%" #t "7,%" #t "8,%" #t "9"
#define SIXTY TEN() "," TEN(1) "," TEN(2) "," TEN(3) "," TEN(4) "," TEN(5)
#define REGISTERS_32 TEN() "," TEN(1) "," TEN(2) ",%30,%31"
#define REGISTERS_64 SIXTY ",%60,%61,%62,%63"
#define REGISTERS_80 SIXTY "," TEN(6) "," TEN(7)
#define REGISTERS_128 REGISTERS_80 "," TEN(8) "," TEN(9) "," TEN(10) "," TEN(11) \
    ",%120,%121,%122,%123,%124,%125,%126,%127"
#define BIND4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define BIND16(i) BIND4(i), BIND4(i + 4), BIND4(i + 8), BIND4(i + 12)
#define BIND64(i) BIND16(i), BIND16(i + 16), BIND16(i + 32), BIND16(i + 48)
#define WGMMA(n, registers, a_b, flag, majors)                                       \
    "{\n.reg .pred add;\nsetp.ne.b32 add, " flag                                     \
    ", 0;\n"                                                                         \
    "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" registers "}, " a_b \
    ", add, 1, 1, " majors ";\n}"
#define TWO_DESCRIPTORS "l"(a), "l"(b), "r"(int(accumulate)), "n"(int(TA)), "n"(int(TB))
#define A_IN_REGISTERS "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), \
    "r"(int(accumulate)), "n"(int(TB))

// Starts a product m64nNk16: d = a b, or d += a b if `accumulate` is set. TA, TB: a, b is MN-major.
template <int N, bool TA, bool TB>
__device__ void wgmma(float (&d)[N / 2], uint64_t a, uint64_t b, bool accumulate) {
    static_assert(N == 8 || N == 64 || N == 128 || N == 160 || N == 256);
    if constexpr (N == 8)
        ASM_SM90A(WGMMA(8, "%0,%1,%2,%3", "%4, %5", "%6", "%7, %8") : BIND4(0) : TWO_DESCRIPTORS);
    else if constexpr (N == 64)
        ASM_SM90A(WGMMA(64, REGISTERS_32, "%32, %33", "%34", "%35, %36")
                  : BIND16(0), BIND16(16) : TWO_DESCRIPTORS);
    else if constexpr (N == 128)
        ASM_SM90A(WGMMA(128, REGISTERS_64, "%64, %65", "%66", "%67, %68")
                  : BIND64(0) : TWO_DESCRIPTORS);
    else if constexpr (N == 160)
        ASM_SM90A(WGMMA(160, REGISTERS_80, "%80, %81", "%82", "%83, %84")
                  : BIND64(0), BIND16(64) : TWO_DESCRIPTORS);
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
        ASM_SM90A(WGMMA(128, REGISTERS_64, "{%64,%65,%66,%67}, %68", "%69", "%70")
                  : BIND64(0) : A_IN_REGISTERS);
}

// wgmma_fence must come before the first product of a group; wgmma_commit ends the group.
__device__ inline void wgmma_fence() { ASM_SM90A("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() {
    ASM_SM90A("wgmma.commit_group.sync.aligned;" ::: "memory");
}
__device__ inline void hold(float& x) { asm volatile("" : "+f"(x)); }
__device__ inline void hold(unsigned& x) { asm volatile("" : "+r"(x)); }
// Tells the compiler that d may change here, so that code
// after it does not use an earlier copy of d.
template <class T, size_t R> __device__ void wgmma_hold(T (&d)[R]) {
    for (size_t i = 0; i < R; i++) hold(d[i]);
}
// Waits until all groups but the newest N are done. The
// compiler does not move reads of d in front of it.
template <int N, class... D> __device__ void wgmma_wait(D&... d) {
    ASM_SM90A("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory");
    (wgmma_hold(d), ...);
}

// setmaxnreg: raises or lowers the registers of each thread of the calling warpgroup to R.
template <int R> __device__ void registers_up() {
    ASM_SM90A("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(R));
}
template <int R> __device__ void registers_down() {
    ASM_SM90A("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(R));
}

// ------------------------ descriptors and the ring

// Returns TMA's description (tensor map) of a matrix of bf16, or of `count` matrices. pitch is
// the distance from row to row and `distance` that from matrix to matrix, both in elements.
inline CUtensorMap tensor_map(const bf16* p, size_t columns, size_t rows, size_t pitch,
                              int box_columns, int box_rows, size_t count = 0,
                              size_t distance = 0) {
    // dlsym finds the driver's function, so that no program is linked with the driver's library.
    static const auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(
        dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuTensorMapEncodeTiled"));
    if (!encode)
        die(kExitOther, "gpu: libcuda.so.1 has no cuTensorMapEncodeTiled; the driver is too old");
    CUtensorMap map;
    const cuuint64_t size[3] = {columns, rows, count},
                     stride[2] = {pitch * sizeof(bf16), distance * sizeof(bf16)};
    const cuuint32_t box[3] = {cuuint32_t(box_columns), cuuint32_t(box_rows), 1},
                     step[3] = {1, 1, 1};
    const CUresult result =
        encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, count ? 3 : 2, const_cast<bf16*>(p), size,
               stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS)
        die(kExitOther, "gpu: cuTensorMapEncodeTiled: error %d for a %zux%zu matrix", int(result),
            rows, columns);
    return map;
}

// Returns wgmma's descriptor of an operand in swizzled rows of 128 bytes, 1024-byte aligned. lbo
// and sbo (leading and stride byte offset) are in bytes; the descriptor's 14-bit fields have units
// of 16 bytes. Bits 62-63 = 1 mean the swizzle of 128 bytes.
//     K-major tile [rows][64 k]: sbo = 1024 (next 8 rows), lbo unused; next 16 k: 32 bytes on
//     MN-major tile [mn/64][64 k][64 mn]: sbo = 1024 (next 8 k), lbo = 8192 (next 64 mn); next
//     16 k: 2048 bytes on
__device__ inline uint64_t wgmma_desc(const void* tile, int lbo, int sbo) {
    const uint64_t start = (shared_address(tile) & 0x3ffffu) >> 4;
    return start | uint64_t(lbo >> 4) << 16 | uint64_t(sbo >> 4) << 32 | uint64_t(1) << 62;
}
// Returns the descriptor of what lies n * 16 bytes further on. The address
// does not overflow its field, so it is enough to add to the lower 32 bits.
__device__ inline uint64_t desc_later(uint64_t desc, unsigned n) {
    return desc >> 32 << 32 | (unsigned(desc) + n);
}

// Ring is a ring buffer of slots in shared memory (Hopper): one or more threads fill the slots,
// and warps read them in order. A slot has an mbarrier for "full" (the bytes have come) and one
// for "empty" (every reading warp is done). Each thread keeps its own place in the ring.
template <int SLOTS> struct Ring {
    uint64_t* bars;    // [full, empty][SLOTS], then one for tiles that stay in shared memory
    unsigned turn = 0;    // slots that this thread has filled or taken so far

    __device__ uint64_t* full(int slot) const { return bars + slot; }
    __device__ uint64_t* kept() const { return bars + 2 * SLOTS; }
    // All threads call this first. `fillers` threads report
    // a slot full, `readers` warps report it empty.
    __device__ void begin(int fillers, int readers, const CUtensorMap* map,
                          const CUtensorMap* other) const {
        if (threadIdx.x == 0) {
            for (int i = 0; i < SLOTS; i++) {
                mbar_init(bars + i, fillers);
                mbar_init(bars + SLOTS + i, readers);
            }
            mbar_init(kept(), 1);
            mbar_fence_init();
            tma_prefetch(map);
            tma_prefetch(other);
        }
        __syncthreads();
        grid_dependency_sync();
    }
    // A filling thread calls fill, which waits until no warp
    // reads the next slot any more, and returns the slot.
    __device__ int fill() {
        mbar_wait(bars + SLOTS + turn % SLOTS, (turn / SLOTS & 1) ^ 1);
        return int(turn++ % SLOTS);
    }
    // A reading warp calls take, which waits until the next slot is full and returns it. It calls
    // release when it has read the slot, after a wgmma_wait.
    __device__ int take() {
        mbar_wait(bars + turn % SLOTS, turn / SLOTS & 1);
        return int(turn++ % SLOTS);
    }
    __device__ void release(int slot) const {
        if (lane() == 0) mbar_arrive(bars + SLOTS + slot);
    }
};

}  // namespace BACKEND

#undef TEN
#undef SIXTY
#undef WGMMA
#undef ASM_SM90
#undef ASM_SM90A
