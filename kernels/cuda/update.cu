// update.cu -- what happens to the gradient after backward: it is summed over replicas, measured,
// clipped, and applied by the optimizer.
//
// All operations give the bits of ref.cpp on every backend, so tests compare
// them exactly. With fused products and sums they would not, so this file is compiled with
// --fmad=false. The norm and the clip factor stay on the device. update_kernel calls the
// optimizer's rule, which multiplies the gradient by step.grad_scale: this is the clipping. Per
// element tree_reduce moves 4 (count + 1) bytes, and update 14 bytes and 8 more per state array.
#include <bit>
#include <cmath>
#include <iterator>
#include "build/optimizers.h"
#include "kernels/cuda/common.cuh"

namespace BACKEND {
namespace {

constexpr int kThreads = 256;

// ------------------------ tree_reduce

struct Terms { const float4* at[kGpuTerms]; int count; };

// Sums terms at four elements, float4 i: COUNT terms from `first`
// on by Tree::kBalanced, or with COUNT 0 all of them by kNested.
template <int COUNT> __device__ float4 sum_terms(const Terms& terms, size_t i, int first = 0) {
    if constexpr (COUNT == 0) {
        float4 sum = terms.at[terms.count - 1][i];
        for (int k = terms.count - 2; k >= 0; k--) sum = terms.at[k][i] + sum;
        return sum;
    } else if constexpr (COUNT == 1) {
        return terms.at[first][i];
    } else if constexpr (COUNT == kGpuTerms) {
        // The second half is a loop of one turn, whose bound nvcc does not know. Unrolled, 64 loads
        // would need too many registers.
        float4 sum = sum_terms<COUNT / 2>(terms, i);
        for (int half = COUNT / 2; half < terms.count; half += COUNT / 2)
            sum = sum + sum_terms<COUNT / 2>(terms, i, half);
        return sum;
    } else {
        return sum_terms<COUNT / 2>(terms, i, first) +
               sum_terms<COUNT / 2>(terms, i, first + COUNT / 2);
    }
}

// One block per unit. A thread reads all terms of an element before it writes the element, so out
// may be one of them. For the sum of squares the unit is kept in shared memory, and lanes 0..15 of
// the first warp compute the 16 partial sums. Lanes 16..31 compute the same again; nobody reads it.
template <int COUNT> __global__ void __launch_bounds__(kThreads)
tree_reduce_kernel(float4* out, float* partials, const __grid_constant__ Terms terms) {
    constexpr int kFours = int(kUnit) / 4;
    // With few terms a thread loads its 4 places at once, so that enough loads are in flight.
    constexpr int kAhead = COUNT == 1 || COUNT == 2 ? kFours / kThreads : 1;
    __shared__ float4 kept[kFours];
    grid_dependency_sync();
    const size_t begin = size_t(blockIdx.x) * kFours;
    for (int first = int(threadIdx.x); first < kFours; first += kAhead * kThreads) {
        float4 sum[kAhead];
        for (int k = 0; k < kAhead; k++)
            sum[k] = sum_terms<COUNT>(terms, begin + size_t(first + k * kThreads));
        for (int k = 0; k < kAhead; k++) {
            const int i = first + k * kThreads;
            if (COUNT != 1 || terms.at[0] != out) out[begin + i] = sum[k];
            kept[i] = sum[k];
        }
    }
    if (!partials) return;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    constexpr int kSquares = 16, kBatch = 16;
    const float* const mine = reinterpret_cast<const float*>(kept) + threadIdx.x % kSquares;
    float squares = 0, total = 0;    // 0 + s0 is s0: squares are not -0
    for (int i = 0; i < int(kUnit); i += kSquares * kBatch) {
        float x[kBatch];
        for (int k = 0; k < kBatch; k++) x[k] = mine[i + k * kSquares];
        for (int k = 0; k < kBatch; k++) squares = __fadd_rn(squares, __fmul_rn(x[k], x[k]));
    }
    for (int j = 0; j < kSquares; j++) total += __shfl_sync(~0u, squares, j);
    if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

template <int COUNT>
void launch_reduce(float* out, float* partials, const Terms& terms, size_t n, Stream stream) {
    launch(tree_reduce_kernel<COUNT>, n / kUnit, kThreads, 0, stream,
           reinterpret_cast<float4*>(out), partials, terms);
}

// ------------------------ norm

// 256 threads call this. Thread j adds x[j], x[j + 256], ... in double; thread 0 returns ((s0 + s1)
// + s2) + ... + s255.
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

// One block computes the sum.
__global__ void __launch_bounds__(kSums)
sum_in_order_kernel(double* total, const float* x, size_t n) {
    grid_dependency_sync();
    const double sum = block_sum_in_order(x, n);
    if (threadIdx.x == 0) *total = sum;
}

// One block computes norm and factor.
__global__ void __launch_bounds__(kSums)
clip_scale_kernel(StepState* state, double* norm, const float* partials, size_t units,
                  double clip) {
    grid_dependency_sync();
    const double sum = block_sum_in_order(partials, units);
    if (threadIdx.x != 0) return;
    const double tokens = state->tokens, length = sqrt(sum) / tokens, ratio = clip / (length + 1e-6);
    const double factor = clip > 0 && ratio < 1 ? ratio : 1;
    norm[0] = length;
    // NaN is not less than anything
    state->grad_scale = length < INFINITY ? float(factor / tokens) : NAN;
}

// ------------------------ update

// + 1, because C++ has no array of length 0
template <int ARRAYS> struct State { float* at[ARRAYS + 1]; };

// One block per unit. A thread updates 4 neighbouring elements at a time.
template <class Rule, int STAGE> __global__ void __launch_bounds__(kThreads)
update_kernel(floatX* param, float* master,
              const __grid_constant__ State<Rule::kState[STAGE]> state, const float* grad,
              const Rates* rates, const StepState* step_in_memory) {
    constexpr int kArrays = Rule::kState[STAGE];
    grid_dependency_sync();
    const StepState step = *step_in_memory;
    if (!(fabsf(step.grad_scale) < INFINITY)) return;
    const Rates own_rates = rates[blockIdx.x];
    const size_t end = (size_t(blockIdx.x) + 1) * kUnit;
    for (size_t i = size_t(blockIdx.x) * kUnit + threadIdx.x * 4; i < end; i += kThreads * 4) {
        alignas(16) float w[4], g[4], own[kArrays + 1][4];
        as<float4>(w) = as<float4>(master + i);
        as<float4>(g) = as<float4>(grad + i);
        for (int k = 0; k < kArrays; k++) as<float4>(own[k]) = as<float4>(state.at[k] + i);
        for (int j = 0; j < 4; j++) {
            float arrays[kArrays + 1];
            for (int k = 0; k < kArrays; k++) arrays[k] = own[k][j];
            Rule::element(STAGE, w[j], arrays, g[j], own_rates, step);
            for (int k = 0; k < kArrays; k++) own[k][j] = arrays[k];
        }
        as<float4>(master + i) = as<float4>(w);
        for (int k = 0; k < kArrays; k++) as<float4>(state.at[k] + i) = as<float4>(own[k]);
        as<uint2>(param + i) = {pack2(w[0], w[1]), pack2(w[2], w[3])};
    }
}

template <class Rule, int STAGE> void launch_update(const Update& u, Stream stream) {
    if constexpr (STAGE < int(std::size(Rule::kState))) {
        const auto& [n, param, master, state, grad, rates, step] = u;
        State<Rule::kState[STAGE]> arrays = {};
        for (int k = 0; k < Rule::kState[STAGE]; k++) arrays.at[k] = state[k];
        launch(update_kernel<Rule, STAGE>, unsigned(n / kUnit), kThreads, 0, stream, param, master,
               arrays, grad, rates, step);
    }
}

}  // namespace

void tree_reduce(float* out, float* partials, const float* const* terms, int count, Tree tree,
                 size_t n, Stream stream) {
    constexpr decltype(&launch_reduce<1>) kBalanced[] = {
        launch_reduce<1>,  launch_reduce<2>,  launch_reduce<4>, launch_reduce<8>,
        launch_reduce<16>, launch_reduce<32>, launch_reduce<64>};
    // For two terms both trees are the same.
    const bool nested = tree == Tree::kNested && count > 2;
    CHECK(
        count > 0 && count <= kGpuTerms && (nested || (count & (count - 1)) == 0) && n % kUnit == 0,
        "tree_reduce: %d terms of %zu elements", count, n);
    if (n == 0 || (count == 1 && terms[0] == out && !partials)) return;
    Terms t = {{}, count};
    for (int i = 0; i < count; i++) t.at[i] = reinterpret_cast<const float4*>(terms[i]);
    (nested ? launch_reduce<0> : kBalanced[std::countr_zero(unsigned(count))])(out, partials, t, n,
                                                                               stream);
}

void sum_in_order(double* total, const float* x, size_t n, Stream stream) {
    launch(sum_in_order_kernel, 1, kSums, 0, stream, total, x, n);
}

void clip_scale(StepState* state, double* norm, const float* partials, size_t units, double clip,
                Stream stream) {
    launch(clip_scale_kernel, 1, kSums, 0, stream, state, norm, partials, units, clip);
}

void update(int optimizer, int stage, const Update& arrays, Stream stream) {
#define X(name) OPTIMIZER_STAGES(launch_update, name),
    static constexpr decltype(&launch_update<adamw_rule, 0>) kLaunches[][kMaxStages] = {
        OPTIMIZERS(X)};
#undef X
    CHECK(arrays.n % kUnit == 0, "update: %zu elements", arrays.n);
    if (arrays.n == 0) return;
    kLaunches[optimizer][stage](arrays, stream);
}

}  // namespace BACKEND
