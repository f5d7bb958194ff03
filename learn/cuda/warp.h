// warp.h -- what the 32 threads of a warp do together: sums, and products on tensor cores (sm_80 and later).
#pragma once
#include <cuda_bf16.h>

// Returns the sum of x over all threads of a warp, to each of them; warp_sum<4> that of 4 neighbours. A shuffle reads a
// register of another thread: after five exchanges, with the threads 16, 8, 4, 2 and 1 away, each has all. ~0u: all 32.
template <int kThreads = 32> __device__ float warp_sum(float x) {
    for (int distance = kThreads / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(~0u, x, distance);
    return x;
}
template <int kThreads = 32> __device__ float warp_max(float x) {
    for (int distance = kThreads / 2; distance > 0; distance /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, distance));
    return x;
}

// Computes d (16,8) += a (16,16) times the transpose of b (8,16), by a whole warp. matmul.cu shows who holds what.
inline __device__ void mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Writes d to rows that are `stride` apart: rows 0 to 7 times `upper`, rows 8 to 15 times `lower`.
inline __device__ void store(float* to, int stride, const float* d, float upper = 1, float lower = 1) {
    const int lane = threadIdx.x % 32;
    to += lane / 4 * stride + lane % 4 * 2;
    *reinterpret_cast<float2*>(to) = {d[0] * upper, d[1] * upper};
    *reinterpret_cast<float2*>(to + 8 * stride) = {d[2] * lower, d[3] * lower};
}
inline __device__ unsigned address(const void* shared) { return unsigned(__cvta_generic_to_shared(shared)); }
// Reads four squares of 8 x 8 bf16 from shared memory: threads 8i to 8i + 7 give the addresses of the rows of square i.
// Thread t gets of it, as r[i], row t / 4 and columns t % 4 * 2 and next. ldmatrix_transposed transposes each square.
#define LDMATRIX(form, r, row) \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" form ".shared.b16 {%0,%1,%2,%3}, [%4];" \
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address(row)) : "memory")
inline __device__ void ldmatrix(unsigned (&r)[4], const void* row) { LDMATRIX("", r, row); }
inline __device__ void ldmatrix_transposed(unsigned (&r)[4], const void* row) { LDMATRIX(".trans", r, row); }
