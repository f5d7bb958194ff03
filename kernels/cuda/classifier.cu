// classifier.cu -- softmax and cross entropy over the
// vocabulary, with the gradient written over the logits.
//
//   forward    loss = log(sum_j exp(x_j - max)) - (x_target - max)
//   backward   dx_j = exp(x_j - max) / sum - (j == target),   0 in the padding V..Vp-1
//
// Pass 1 computes maximum and sum together (arXiv 1805.02867), pass 2 the gradient. The logits are
// the largest array of a step, so a row stays in shared memory between the passes; if a row is too
// large for that, pass 2 reads it again from global memory. x - max is computed before the factor
// log2 e is applied, because it is exact: with logits in the thousands the rounding of x log2 e and
// max log2 e would matter.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include "kernels/cuda/common.cuh"
#include "kernels/kernels.h"
#include "src/base/common.h"

namespace BACKEND {
namespace {

// Two such blocks share a multiprocessor that has room for two rows
constexpr int kMaxThreads = 512;
constexpr int kUnrolled = 4, kAhead = 2;    // a group is 4 packs of a thread; 2 are being loaded
constexpr float kLog2e = 1.44269504f, kLn2 = 0.693147181f;

__device__ float exp_of(float x) { return exp2_fast(x * kLog2e); }

// Returns the eight logits of pack i; those outside the vocabulary are -infinity.
__device__ Pack8 logits_of(const uint4& raw, int i, int V) {
    Pack8 x = unpack8(raw);
    for (int k = 0; k < 8; k++) x.x[k] = i * 8 + k < V ? x.x[k] : -INFINITY;
    return x;
}

// Holds the largest logit so far, and the sum of exp(x - max) so far.
struct Softmax {
    float max = -FLT_MAX, sum = 0;

    template <int N> __device__ void add(const Pack8 (&x)[N]) {
        float largest = x[0].x[0];
        for (int u = 0; u < N; u++) for (int k = 0; k < 8; k++) largest = fmaxf(largest, x[u].x[k]);
        if (largest > max) {
            sum = __fmul_rn(sum, exp_of(max - largest));
            max = largest;
        }
        for (int u = 0; u < N; u++)
            for (int k = 0; k < 8; k++) sum = __fadd_rn(sum, exp_of(x[u].x[k] - max));
    }
    // All threads call this. It merges the lanes' results, then the warps', in a fixed order.
    __device__ void reduce() {
        __shared__ float max_of[kMaxThreads / 32];
        __shared__ float sum_of[kMaxThreads / 32];
        const int warps = int(blockDim.x) / 32;
        const float of_warp = warp_max(max);
        sum = warp_sum(__fmul_rn(sum, exp_of(max - of_warp)));
        if (lane() == 0) {
            max_of[warp()] = of_warp;
            sum_of[warp()] = sum;
        }
        __syncthreads();
        max = max_of[0];
        for (int w = 1; w < warps; w++) max = fmaxf(max, max_of[w]);
        sum = 0;
        for (int w = 0; w < warps; w++)
            sum = __fadd_rn(sum, __fmul_rn(sum_of[w], exp_of(max_of[w] - max)));
    }
};

// One block per row. A thread takes every blockDim-th pack of 8 and reads a group of kUnrolled
// packs at a time. If `keep` is set it copies groups to shared memory, kAhead of them in advance;
// they stay there for pass 2.
__global__ void __launch_bounds__(kMaxThreads, 2)
classifier_kernel(float* losses, floatX* logits, const int* targets, int V, int Vp, bool backward,
                  bool keep) {
    extern __shared__ __align__(1024) unsigned char memory[];
    grid_dependency_sync();
    uint4* const kept = reinterpret_cast<uint4*>(memory);
    uint4* const row = reinterpret_cast<uint4*>(logits + size_t(blockIdx.x) * Vp);
    const int full = V / 8, packs = Vp / 8;     // packs without padding, and all packs
    const int threads = int(blockDim.x), thread = int(threadIdx.x), target = targets[blockIdx.x];
    if (target < 0) {
        if (thread == 0) losses[blockIdx.x] = 0;
        for (int i = thread; backward && i < packs; i += threads) row[i] = uint4{};
        return;
    }
    // Before it is overwritten
    const float target_logit = to_float(reinterpret_cast<const floatX*>(row)[target]);

    const auto copy_group = [&](int first) {
        for (int u = 0; u < kUnrolled; u++) {
            const int i = first + u * threads;
            if (keep && i < packs) cp_async16(kept + i, row + i);
        }
        cp_async_commit();      // even an empty group: cp_async_wait counts groups
    };
    Softmax softmax;
    for (int g = 0; g < kAhead; g++) copy_group(thread + g * kUnrolled * threads);
    for (int first = thread; first < packs; first += kUnrolled * threads) {
        copy_group(first + kAhead * kUnrolled * threads);
        cp_async_wait<kAhead>();
        if (first + (kUnrolled - 1) * threads < full) {
            uint4 raw[kUnrolled];
            Pack8 x[kUnrolled];
            for (int u = 0; u < kUnrolled; u++)
                raw[u] = keep ? kept[first + u * threads] : row[first + u * threads];
            for (int u = 0; u < kUnrolled; u++) x[u] = unpack8(raw[u]);
            softmax.add(x);
            continue;
        }
        for (int i = first; i < packs; i += threads) {
            const Pack8 x[1] = {logits_of(keep ? kept[i] : row[i], i, V)};
            softmax.add(x);
        }
    }
    softmax.reduce();
    const float max = softmax.max, log2_sum = log2f(softmax.sum);
    const auto log2_prob = [&](float x) { return fmaf(x - max, kLog2e, -log2_sum); };
    if (thread == 0) losses[blockIdx.x] = -log2_prob(target_logit) * kLn2;
    if (!backward) return;

    // A thread reads only packs that it has copied, so no barrier is needed.
    const auto finish = [&](int i, Pack8 x) {
        // 0 outside the vocabulary
        for (int k = 0; k < 8; k++) x.x[k] = exp2_fast(log2_prob(x.x[k]));
        store8(reinterpret_cast<floatX*>(row + i), x);
    };
    int i = thread;
    for (; i < full; i += threads) finish(i, unpack8(keep ? kept[i] : row[i]));
    for (; i < packs; i += threads) finish(i, logits_of(keep ? kept[i] : row[i], i, V));
    if (thread == target / 8 % threads)
        reinterpret_cast<floatX*>(row)[target] = to_bf16(exp2_fast(log2_prob(target_logit)) - 1.0f);
}

}  // namespace

void classifier(float* losses, floatX* logits, const int* targets, int N, int V, int Vp,
                bool backward, Stream stream) {
    CHECK(V <= Vp && Vp % 16 == 0, "classifier: V is %d, Vp %d", V, Vp);
    const size_t row = Vp * sizeof(floatX);    // bytes; below, 1 KB is left for static arrays
    const bool keep = backward && row + 1024 <= shared_memory_of_block();
    const int threads = std::min(kMaxThreads, div_up(Vp / 8, 32 * kUnrolled) * 32);
    launch(classifier_kernel, N, threads, keep ? row : 0, stream, losses, logits, targets, V, Vp,
           backward, keep);
}

}  // namespace BACKEND
