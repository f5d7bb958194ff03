// common.cuh -- the helpers that all CUDA kernels share. `#pragma unroll` marks loops that nvcc would not unroll by
// itself: their arrays are in registers only if they are unrolled.
#pragma once
#include "kernels/cuda/cuda.cuh"
#include "src/base/numbers.h"

namespace BACKEND {

template <class T> constexpr T div_up(T a, T b) { return (a + b - 1) / b; }

// These return the thread's lane in its warp, its warp in the block and, below, its number in a grid of one dimension.
__device__ inline int lane() { return int(threadIdx.x % 32); }
__device__ inline int warp() { return int(threadIdx.x / 32); }
// Returns the thread's warpgroup, four warps, in the block (Hopper). The shuffle tells the
// compiler that all lanes of a warp have the same value, so that it can use uniform registers.
__device__ inline int warpgroup() { return __shfl_sync(~0u, int(threadIdx.x / 128), 0); }
__device__ inline size_t thread_of_grid() { return size_t(blockIdx.x) * blockDim.x + threadIdx.x; }

// Returns the memory at p as a T, to read or write it in one access. p must be aligned for a T.
template <class T> __device__ T& as(void* p) { return *static_cast<T*>(p); }
template <class T> __device__ const T& as(const void* p) { return *static_cast<const T*>(p); }

// bf16 is the upper half of a float. These convert it; to_bf16 rounds to nearest even, and a NaN stays a NaN.
__device__ inline float to_float(bf16 x) { return __uint_as_float(unsigned(x.bits) << 16); }
__device__ inline bf16 to_bf16(float x) { return {uint16_t(pack2(x, 0.0f))}; }
__device__ inline float low2(unsigned u) { return __uint_as_float(u << 16); }
__device__ inline float high2(unsigned u) { return __uint_as_float(u & 0xffff0000u); }

// Pack8 holds eight bf16, widened to float. They are 16 bytes in memory, the widest load of sm_80.
struct Pack8 { float x[8]; };
__device__ inline Pack8 unpack8(const uint4& u) {
    return {{low2(u.x), high2(u.x), low2(u.y), high2(u.y), low2(u.z), high2(u.z), low2(u.w), high2(u.w)}};
}
__device__ inline Pack8 load8(const bf16* p) { return unpack8(as<uint4>(p)); }
__device__ inline void store8(bf16* p, const Pack8& v) {
    as<uint4>(p) = {pack2(v.x[0], v.x[1]), pack2(v.x[2], v.x[3]), pack2(v.x[4], v.x[5]), pack2(v.x[6], v.x[7])};
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

// 256 threads call this. Thread j adds x[j], x[j + 256], ... in double; thread 0 returns ((s0 + s1) + s2) + ... + s255.
constexpr int kSums = 256;
__device__ inline double block_sum_in_order(const float* x, size_t n) {
    __shared__ double sums[kSums];
    constexpr size_t kBatch = 8;    // loads that a thread has in flight
    double sum = 0;
    for (size_t i = threadIdx.x; i < n; i += kSums * kBatch) {
        float v[kBatch];
        for (int b = 0; b < kBatch; b++) v[b] = i + b * kSums < n ? x[i + b * kSums] : 0.0f;
        for (int b = 0; b < kBatch; b++) if (i + b * kSums < n) sum += double(v[b]);
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x != 0) return 0;
    for (int j = 1; j < kSums; j++) sum += sums[j];
    return sum;
}

// Returns TMA's description (tensor map) of a matrix of bf16, or of `count` matrices. pitch is
// the distance from row to row and `distance` that from matrix to matrix, both in elements.
inline CUtensorMap tensor_map(const bf16* p, size_t columns, size_t rows, size_t pitch, int box_columns, int box_rows,
                            size_t count = 0, size_t distance = 0) {
    CUtensorMap map;
    const cuuint64_t size[3] = {columns, rows, count}, stride[2] = {pitch * sizeof(bf16), distance * sizeof(bf16)};
    const cuuint32_t box[3] = {cuuint32_t(box_columns), cuuint32_t(box_rows), 1}, step[3] = {1, 1, 1};
    const CUresult result = tensor_map_encoder()(
        &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, count ? 3 : 2, const_cast<bf16*>(p), size, stride, box, step,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS)
        die(kExitOther, "gpu: cuTensorMapEncodeTiled: error %d for a %zux%zu matrix", int(result), rows, columns);
    return map;
}

// Returns wgmma's descriptor of an operand in swizzled rows of 128 bytes, 1024-byte aligned. lbo and sbo (leading and
// stride byte offset) are in bytes; the descriptor's 14-bit fields have units of 16 bytes. Bits 62-63 = 1 mean the
// swizzle of 128 bytes.
//     K-major tile [rows][64 k]:           sbo = 1024 (next 8 rows), lbo unused; the next 16 k are 32 bytes on
//     MN-major tile [mn/64][64 k][64 mn]:  sbo = 1024 (next 8 k), lbo = 8192 (next 64 mn); next 16 k: 2048 on
__device__ inline uint64_t wgmma_desc(const void* tile, int lbo, int sbo) {
    const uint64_t start = (shared_address(tile) & 0x3ffffu) >> 4;
    return start | uint64_t(lbo >> 4) << 16 | uint64_t(sbo >> 4) << 32 | uint64_t(1) << 62;
}
// Returns the descriptor of what lies n * 16 bytes further on. The address
// does not overflow its field, so it is enough to add to the lower 32 bits.
__device__ inline uint64_t desc_later(uint64_t desc, unsigned n) { return desc >> 32 << 32 | (unsigned(desc) + n); }

// Ring is a ring buffer of slots in shared memory (Hopper): one or more threads fill the slots,
// and warps read them in order. A slot has an mbarrier for "full" (the bytes have come) and one
// for "empty" (every reading warp is done). Each thread keeps its own place in the ring.
template <int SLOTS> struct Ring {
    uint64_t* bars;    // [full, empty][SLOTS], then one for tiles that stay in shared memory
    unsigned turn = 0;    // slots that this thread has filled or taken so far

    __device__ uint64_t* full(int slot) const { return bars + slot; }
    __device__ uint64_t* kept() const { return bars + 2 * SLOTS; }
    // All threads call this first. `fillers` threads report a slot full, `readers` warps report it empty.
    __device__ void begin(int fillers, int readers, const CUtensorMap* map, const CUtensorMap* other) const {
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
    // A filling thread calls fill, which waits until no warp reads the next slot any more, and returns the slot.
    __device__ int fill() {
        mbar_wait(bars + SLOTS + turn % SLOTS, (turn / SLOTS & 1) ^ 1);
        return int(turn++ % SLOTS);
    }
    // A reading warp calls take, which waits until the next slot is full and returns it. It calls release when it has
    // read the slot, after a wgmma_wait.
    __device__ int take() {
        mbar_wait(bars + turn % SLOTS, turn / SLOTS & 1);
        return int(turn++ % SLOTS);
    }
    __device__ void release(int slot) const {
        if (lane() == 0) mbar_arrive(bars + SLOTS + slot);
    }
};

// These are in runtime.cu. hopper returns whether the device is a Hopper and the build has code for it. multiprocessors
// returns how many the device has, less those that spare_multiprocessors() keeps free. shared_memory_of_block returns a
// block's limit in bytes. scratch returns work space of the stream, which its next operation may overwrite.
bool hopper();
int multiprocessors();
size_t shared_memory_of_block();
void* scratch(size_t bytes, Stream stream);

}  // namespace BACKEND
