// classifier.cu -- softmax and cross entropy over the vocabulary, with the gradient written over the logits.
//
//   forward    loss = log(sum_j exp(x_j - max)) - (x_target - max)
//   backward   dx_j = exp(x_j - max) / sum - (j == target),   0 in the padding V..Vp-1
//
// The logits are the largest array of a step: a row waits in shared memory between the two passes. Where a block cannot
// have that much, the second pass reads it again. Maximum and sum in one pass: arXiv 1805.02867. exp is of an exact
// difference: with logits in the thousands the rounding of two products would show.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include "kernels/cuda/common.cuh"
#include "kernels/kernels.h"
#include "src/base/common.h"

namespace BACKEND {
namespace {

constexpr int kMaxThreads = 512;    // two such blocks share a multiprocessor that has room for two rows
constexpr int kUnrolled = 4;    // loads of a thread in flight

// The eight logits of pack i; those outside the vocabulary are -infinity.
DEVICE Pack8 logits_of(const uint4& raw, int i, int V) {
    Pack8 x = unpack8(raw);
    if (i * 8 + 8 > V)
        for (int k = 0; k < 8; k++) x.x[k] = i * 8 + k < V ? x.x[k] : -INFINITY;
    return x;
}

// One block per row; a thread takes every blockDim-th pack of 8. keep: the row is kept in shared memory.
__global__ void __launch_bounds__(kMaxThreads, 2)
classifier_kernel(float* losses, floatX* logits, const int* targets, int V, int Vp, bool backward, bool keep) {
    DYNAMIC_SHARED(memory);
    SHARED(float, warp_max_of, kMaxThreads / 32);
    SHARED(float, warp_sum_of, kMaxThreads / 32);
    grid_dependency_sync();
    uint4* const kept = reinterpret_cast<uint4*>(memory);
    uint4* const row = reinterpret_cast<uint4*>(logits + size_t(blockIdx.x) * Vp);
    const int packs = Vp / 8, threads = int(blockDim.x), thread = int(threadIdx.x), warps = threads / 32;
    const int target = targets[blockIdx.x];
    const float target_logit = to_float(reinterpret_cast<const floatX*>(row)[target]);      // before it is overwritten

    float max = -FLT_MAX, sum = 0;    // of this thread: sum of exp(x - max)
    for (int begin = thread; begin < packs; begin += threads * kUnrolled) {
        uint4 raw[kUnrolled];
        EACH(u, kUnrolled) if (begin + u * threads < packs) raw[u] = row[begin + u * threads];
        EACH(u, kUnrolled) {
            const int i = begin + u * threads;
            if (i >= packs) continue;
            if (keep) kept[i] = raw[u];
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
    // The block's sum, in a fixed order: lanes, then warps.
    const float of_warp = warp_max(max);
    sum = warp_sum(__fmul_rn(sum, __expf(max - of_warp)));
    if (lane() == 0) {
        warp_max_of[warp()] = of_warp;
        warp_sum_of[warp()] = sum;
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
        const uint4 raw = keep ? kept[i] : row[i];
        Pack8 x = logits_of(raw, i, V);
        for (int k = 0; k < 8; k++) x.x[k] = __fmul_rn(__expf(x.x[k] - max), scale);    // 0 outside the vocabulary
        if (i == target / 8)
            for (int k = 0; k < 8; k++) x.x[k] = __fadd_rn(x.x[k], k == target % 8 ? -1.0f : 0.0f);
        store8(reinterpret_cast<floatX*>(row + i), x);
    }
}

// One block.
__global__ void __launch_bounds__(kSums) sum_in_order_kernel(double* total, const float* x, size_t n) {
    grid_dependency_sync();
    const double sum = block_sum_in_order(x, n);
    if (threadIdx.x == 0) *total = sum;
}

}  // namespace

void classifier(float* losses, floatX* logits, const int* targets, int N, int V, int Vp, bool backward, Stream stream) {
    CHECK(V <= Vp && Vp % 16 == 0, "classifier: V is %d, Vp %d", V, Vp);
    const size_t row = Vp * sizeof(floatX);    // and 1 KB for the kernel's own arrays
    const bool keep = backward && row + 1024 <= shared_memory_of_block();
    const int threads = std::min(kMaxThreads, div_up(Vp / 8, 32 * kUnrolled) * 32);
    launch(classifier_kernel, N, threads, keep ? row : 0, stream, losses, logits, targets, V, Vp, backward, keep);
}

void sum_in_order(double* total, const float* x, size_t n, Stream stream) {
    launch(sum_in_order_kernel, 1, kSums, 0, stream, total, x, n);
}

}  // namespace BACKEND
