// classifier.cu -- softmax and cross entropy over the vocabulary, with the gradient written over the logits; and the sum of losses.
//
//   forward    loss = log(sum_j exp(x_j - max)) - (x_target - max)
//   backward   dx_j = exp(x_j - max) / sum - (j == target),   0 in the padding V..Vp-1
//
//   Traffic    the logits once in and once out: 6.6 GB each way for 65536 rows of 50304, the largest array of a step. The row waits in
//              shared memory between the two passes; where a block cannot have that much the second pass reads it again from
//              the L2, where it still is, and computes the same bits.
//   Precision  fp32. One pass finds maximum and sum together: a thread that meets a larger number scales what it has.
//   Why        exp of an exact difference, not of two products: with logits in the thousands the products' rounding would show.
//   Source     the maximum and sum in one pass: Milakov and Gimelshein 2018, arXiv 1805.02867.
#include "common.cuh"
#include "kernels.h"

#include <cfloat>
#include <cmath>
#include "common.h"

namespace BACKEND {

namespace {

constexpr int kMaxThreads = 512;                    // two blocks of them share a multiprocessor that has room for two rows
constexpr int kUnrolled = 4;                        // loads of a thread in flight

// Eight logits of pack i; what is not of the vocabulary cannot be chosen.
DEVICE Pack8 logits_of(const uint4& raw, int i, int V) {
    Pack8 x = load8(reinterpret_cast<const floatX*>(&raw));
    if (i * 8 + 8 > V)
        for (int k = 0; k < 8; k++) x.x[k] = i * 8 + k < V ? x.x[k] : -INFINITY;
    return x;
}

// One block per row; a thread takes every blockDim-th pack of 8. KEEP: the row is kept in shared memory.
template <bool KEEP>
__global__ void __launch_bounds__(kMaxThreads, 2)
classifier_kernel(float* losses, floatX* logits, const int* targets, int V, int Vp, bool backward) {
    DYNAMIC_SHARED(memory);
    SHARED(float, warp_max_of, kMaxThreads / 32);
    SHARED(float, warp_sum_of, kMaxThreads / 32);
    grid_dependency_sync();
    uint4* const kept = reinterpret_cast<uint4*>(memory);
    uint4* const row = reinterpret_cast<uint4*>(logits + size_t(blockIdx.x) * size_t(Vp));
    const int packs = Vp / 8, threads = int(blockDim.x), thread = int(threadIdx.x), warps = threads / 32;
    const int target = targets[blockIdx.x];
    const float target_logit = to_float(reinterpret_cast<const floatX*>(row)[target]);     // now: soon it is a gradient

    float max = -FLT_MAX, sum = 0;                  // of this thread: sum of exp(x - max)
    for (int begin = thread; begin < packs; begin += threads * kUnrolled) {
        uint4 raw[kUnrolled];
        UNROLL
        for (int u = 0; u < kUnrolled; u++)
            if (begin + u * threads < packs) raw[u] = row[begin + u * threads];
        UNROLL
        for (int u = 0; u < kUnrolled; u++) {
            const int i = begin + u * threads;
            if (i >= packs) continue;
            if (KEEP) kept[i] = raw[u];
            const Pack8 x = logits_of(raw[u], i, V);
            float largest = x.x[0];
            for (int k = 1; k < 8; k++) largest = fmaxf(largest, x.x[k]);
            if (largest > max) {
                sum = __fmul_rn(sum, __expf(max - largest));
                max = largest;
            }
            for (int k = 0; k < 8; k++) sum = __fadd_rn(sum, __expf(x.x[k] - max));
        }
    }
    // The block's, in a fixed order: lanes, then warps.
    const float of_warp = warp_max(max);
    sum = warp_sum(__fmul_rn(sum, __expf(max - of_warp)));
    if (thread % 32 == 0) {
        warp_max_of[thread / 32] = of_warp;
        warp_sum_of[thread / 32] = sum;
    }
    __syncthreads();
    max = warp_max_of[0];
    for (int w = 1; w < warps; w++) max = fmaxf(max, warp_max_of[w]);
    sum = 0;
    for (int w = 0; w < warps; w++) sum = __fadd_rn(sum, __fmul_rn(warp_sum_of[w], __expf(warp_max_of[w] - max)));

    if (thread == 0) losses[blockIdx.x] = logf(sum) - (target_logit - max);
    if (!backward) return;

    // A thread reads back only what it has read before.
    const float scale = 1.0f / sum;
    for (int i = thread; i < packs; i += threads) {
        const uint4 raw = KEEP ? kept[i] : row[i];
        Pack8 x = logits_of(raw, i, V);
        for (int k = 0; k < 8; k++) x.x[k] = __fmul_rn(__expf(x.x[k] - max), scale);
        if (i == target / 8)
            for (int k = 0; k < 8; k++) x.x[k] = __fadd_rn(x.x[k], k == target % 8 ? -1.0f : 0.0f);
        if (i * 8 + 8 > V)
            for (int k = 0; k < 8; k++) x.x[k] = i * 8 + k < V ? x.x[k] : 0.0f;
        store8(reinterpret_cast<floatX*>(row + i), x);
    }
}

constexpr int kSums = 256;                          // the order that kernels.h gives

// One block; thread j has sum j, thread 0 adds them up.
__global__ void __launch_bounds__(kSums) sum_in_order_kernel(double* total, const float* x, size_t n) {
    SHARED(double, sums, kSums);
    constexpr size_t batch = 8;                     // loads in flight
    grid_dependency_sync();
    double sum = 0;
    for (size_t i = threadIdx.x; i < n; i += kSums * batch) {
        float v[batch];
        UNROLL
        for (size_t b = 0; b < batch; b++) v[b] = i + b * kSums < n ? x[i + b * kSums] : 0.0f;
        UNROLL
        for (size_t b = 0; b < batch; b++)
            if (i + b * kSums < n) sum += double(v[b]);
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int j = 1; j < kSums; j++) sum += sums[j];
    *total = sum;
}

// Shared memory that a block may ask for, in bytes, of the device in use.
size_t shared_memory_limit() {
    int device = 0, bytes = 0;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) != cudaSuccess) return 48 * 1024;
    return size_t(bytes);
}

}  // namespace

void classifier(float* losses, floatX* logits, const int* targets, int N, int V, int Vp, bool backward, Stream stream) {
    CHECK(V <= Vp && Vp % 16 == 0, "classifier: V is %d, Vp %d", V, Vp);
    static const size_t limit = shared_memory_limit();
    constexpr size_t own = 1024;                    // what the kernel's own arrays take of it: dynamic memory begins at a multiple of 1024
    const size_t row = size_t(Vp) * sizeof(floatX);
    const bool keep = backward && row + own <= limit;
    const int wanted = div_up(Vp / 8, 32 * kUnrolled) * 32, threads = wanted < kMaxThreads ? wanted : kMaxThreads;
    launch(keep ? classifier_kernel<true> : classifier_kernel<false>, unsigned(N), unsigned(threads), keep ? row : 0, stream, losses, logits,
           targets, V, Vp, backward);
}

void sum_in_order(double* total, const float* x, size_t n, Stream stream) {
    launch(sum_in_order_kernel, 1, kSums, 0, stream, total, x, n);
}

}  // namespace BACKEND
