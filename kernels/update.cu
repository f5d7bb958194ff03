// update.cu -- what happens to the gradient after backward: sums over replicas, its norm, the clip factor, AdamW, and hashes.
//
//   fold            out = sum of terms, as a tree; squares of each unit      4 (count + 1) bytes per element; of one term in place, 4
//   clip_scale      norm and state->grad_scale from the partials             nothing: one block
//   adamw_update    m, v, master and param from the gradient                 30 bytes, 32 where the state is checked
//   hash_floats     64 bits that tell any two arrays apart                   4 bytes
//
//   Precision  exact: the same bits as ref.cpp and as every other backend, because replicas' agreement is built on them. So additions and
//              multiplications that could be fused are written as functions that cannot.
//   Why        All are bound by memory: 16-byte accesses, each byte once. Nothing returns to the host but a hash; norm and clip factor stay
//              on the device, and the step is put on the stream without waiting for them.
#include "common.cuh"
#include "kernels.h"

#include <bit>
#include <cmath>
#include <vector>
#include "common.h"

namespace BACKEND {

namespace {

constexpr int kThreads = 256;

// ------------------------------------------------------------------------------------------------------------- fold

struct Terms { const float4* at[kGpuTerms]; int count; };

DEVICE float4 add(const float4& a, const float4& b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

// COUNT terms by halves; 0: terms.count of them from the back.
template <int COUNT> DEVICE float4 sum_terms(const Terms& terms, size_t i, int first = 0) {
    if constexpr (COUNT == 0) {
        float4 sum = terms.at[terms.count - 1][i];
        for (int k = terms.count - 2; k >= 0; k--) sum = add(terms.at[k][i], sum);
        return sum;
    } else if constexpr (COUNT == 1) {
        return terms.at[first][i];
    } else if constexpr (COUNT == kGpuTerms) {      // one half after the other, which a loop makes sure of: the registers do not hold 64 terms
        float4 sum = sum_terms<COUNT / 2>(terms, i);
        for (int half = COUNT / 2; half < terms.count; half += COUNT / 2) sum = add(sum, sum_terms<COUNT / 2>(terms, i, half));
        return sum;
    } else {
        return add(sum_terms<COUNT / 2>(terms, i, first), sum_terms<COUNT / 2>(terms, i, first + COUNT / 2));
    }
}

// One block per unit. A thread has read all its terms of an element when it writes it, so out may be one of them. For the sum of squares the
// unit is kept in shared memory too, and the first warp's lanes 0..15 have the 16 sums; lanes 16..31 do the same, and nothing of it is used.
template <int COUNT> __global__ void __launch_bounds__(kThreads) fold_kernel(float4* out, float* partials, const __grid_constant__ Terms terms) {
    constexpr int kFours = int(kUnit) / 4, kAhead = COUNT == 1 || COUNT == 2 ? kFours / kThreads : 1;     // 16-byte pieces; of a thread's, asked for at a time
    SHARED(float4, kept, kFours);
    grid_dependency_sync();
    const size_t begin = size_t(blockIdx.x) * kFours;
    for (int first = int(threadIdx.x); first < kFours; first += kAhead * kThreads) {
        float4 sum[kAhead];
        UNROLL for (int k = 0; k < kAhead; k++) sum[k] = sum_terms<COUNT>(terms, begin + size_t(first + k * kThreads));
        UNROLL for (int k = 0; k < kAhead; k++) {
            const int i = first + k * kThreads;
            if (COUNT != 1 || terms.at[0] != out) out[begin + size_t(i)] = sum[k];
            kept[i] = sum[k];
        }
    }
    if (!partials) return;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    constexpr int kSums = 16, kBatch = 16;
    const float* const mine = reinterpret_cast<const float*>(kept) + threadIdx.x % kSums;
    float squares = 0, total = 0;                   // 0 + s0 is s0: squares are not -0
    for (int i = 0; i < int(kUnit); i += kSums * kBatch) {
        float x[kBatch];
        UNROLL for (int k = 0; k < kBatch; k++) x[k] = mine[i + k * kSums];
        UNROLL for (int k = 0; k < kBatch; k++) squares = __fadd_rn(squares, __fmul_rn(x[k], x[k]));
    }
    for (int j = 0; j < kSums; j++) total += __shfl_sync(~0u, squares, j);
    if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

template <int COUNT> void launch_fold(float* out, float* partials, const Terms& terms, size_t n, Stream stream) {
    launch(fold_kernel<COUNT>, unsigned(n / kUnit), kThreads, 0, stream, reinterpret_cast<float4*>(out), partials, terms);
}

// ------------------------------------------------------------------------------------------------- norm and clip factor

constexpr int kSums = 256;                          // the order that kernels.h gives

// One block; thread j has sum j, thread 0 adds them up.
__global__ void __launch_bounds__(kSums)
clip_scale_kernel(StepState* state, double* norm, const float* partials, size_t units, double clip, double tokens) {
    SHARED(double, sums, kSums);
    constexpr size_t batch = 8;
    grid_dependency_sync();
    double sum = 0;
    for (size_t k = threadIdx.x; k < units; k += kSums * batch) {
        float x[batch];
        UNROLL
        for (size_t b = 0; b < batch; b++)
            if (k + b * kSums < units) x[b] = partials[k + b * kSums];
        UNROLL
        for (size_t b = 0; b < batch; b++)
            if (k + b * kSums < units) sum += double(x[b]);
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int j = 1; j < kSums; j++) sum += sums[j];
    const double length = sqrt(sum) / tokens, ratio = clip / (length + 1e-6);
    const double factor = clip > 0 && ratio < 1 ? ratio : 1;
    norm[0] = length;
    const bool spike = state->norm_limit > 0 && length > double(state->norm_limit);
    state->grad_scale = length < INFINITY && !spike ? float(factor / tokens) : NAN;    // NaN is not less than anything
}

// ------------------------------------------------------------------------------------------------------------ AdamW

DEVICE void adamw_element(float& master, float& m, float& v, float grad, const AdamW& adamw, const StepState& state, float decay) {
    const float g = __fmul_rn(grad, state.grad_scale);
    m = __fadd_rn(__fmul_rn(adamw.beta1, m), __fmul_rn(1 - adamw.beta1, g));
    v = __fadd_rn(__fmul_rn(adamw.beta2, v), __fmul_rn(1 - adamw.beta2, __fmul_rn(g, g)));
    const float step = __fdiv_rn(__fdiv_rn(m, state.bias1), __fadd_rn(__fsqrt_rn(__fdiv_rn(v, state.bias2)), adamw.eps));
    const float shrink = __fmul_rn(decay, master);
    master = __fadd_rn(master, -__fmul_rn(state.lr, __fadd_rn(step, shrink)));
}

DEVICE unsigned bits4(const float4& x) { return __float_as_uint(x.x) + __float_as_uint(x.y) + __float_as_uint(x.z) + __float_as_uint(x.w); }

// Sum over a block, in thread 0.
DEVICE unsigned block_sum(unsigned x, unsigned* warps) {
    for (int o = 16; o; o /= 2) x += __shfl_xor_sync(~0u, x, o);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
    __syncthreads();
    unsigned sum = 0;
    for (int w = 0; w < kThreads / 32 && threadIdx.x == 0; w++) sum += warps[w];
    return sum;
}

// One block per unit; a thread takes 4 neighbours at a time.
__global__ void __launch_bounds__(kThreads)
adamw_update_kernel(floatX* param, float* master, float* m, float* v, const float* grad, const uint8_t* decay, AdamW adamw,
                    const StepState* state_of_step, StateSums check) {
    SHARED(unsigned, warps, 3 * (kThreads / 32));
    grid_dependency_sync();
    unsigned before = 0, after = 0, wrong = 0;
    const StepState state = *state_of_step;
    if (!(fabsf(state.grad_scale) < INFINITY)) return;
    const float shrink = __fmul_rn(float(decay[blockIdx.x]), adamw.weight_decay);
    const size_t end = (size_t(blockIdx.x) + 1) * kUnit;
    for (size_t i = size_t(blockIdx.x) * kUnit + threadIdx.x * 4; i < end; i += kThreads * 4) {
        float4 master4 = *reinterpret_cast<const float4*>(master + i), m4 = *reinterpret_cast<const float4*>(m + i);
        float4 v4 = *reinterpret_cast<const float4*>(v + i), grad4 = *reinterpret_cast<const float4*>(grad + i);
        before += bits4(master4) + bits4(m4) + bits4(v4);
        if (check.sums) {
            const uint2 was = *reinterpret_cast<const uint2*>(param + i);
            wrong += was.x != pack2(master4.x, master4.y) || was.y != pack2(master4.z, master4.w);
        }
        adamw_element(master4.x, m4.x, v4.x, grad4.x, adamw, state, shrink);
        adamw_element(master4.y, m4.y, v4.y, grad4.y, adamw, state, shrink);
        adamw_element(master4.z, m4.z, v4.z, grad4.z, adamw, state, shrink);
        adamw_element(master4.w, m4.w, v4.w, grad4.w, adamw, state, shrink);
        after += bits4(master4) + bits4(m4) + bits4(v4);
        *reinterpret_cast<float4*>(master + i) = master4;
        *reinterpret_cast<float4*>(m + i) = m4;
        *reinterpret_cast<float4*>(v + i) = v4;
        *reinterpret_cast<uint2*>(param + i) = {pack2(master4.x, master4.y), pack2(master4.z, master4.w)};
    }
    if (!check.sums) return;
    before = block_sum(before, warps);
    after = block_sum(after, warps + kThreads / 32);
    wrong = block_sum(wrong, warps + 2 * (kThreads / 32));
    if (threadIdx.x != 0) return;
    if (before != check.sums[blockIdx.x] || wrong) check.changed[0] = blockIdx.x + 1;
    check.sums[blockIdx.x] = after;
}

// ------------------------------------------------------------------------------------------------------------- hash

HOST_DEVICE uint64_t mix(uint64_t z) {
    z ^= z >> 30; z *= 0xbf58476d1ce4e5b9u;
    z ^= z >> 27; z *= 0x94d049bb133111ebu;
    return z ^ z >> 31;
}
DEVICE uint64_t hash_element(unsigned bits, size_t i) { return mix(uint64_t(i + 1) << 32 | bits); }

// One warp per unit.
__global__ void __launch_bounds__(kThreads) hash_kernel(uint64_t* sums, const float* x, size_t n) {
    grid_dependency_sync();
    const size_t unit = size_t(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32, begin = unit * kUnit;
    if (begin >= n) return;
    const size_t count = n - begin < kUnit ? n - begin : kUnit;
    uint64_t sum = 0;
    for (size_t i = threadIdx.x % 32 * 4; i < count; i += 128) {
        if (i + 4 <= count) {
            const uint4 bits = *reinterpret_cast<const uint4*>(x + begin + i);
            sum += hash_element(bits.x, i) + hash_element(bits.y, i + 1) + hash_element(bits.z, i + 2) + hash_element(bits.w, i + 3);
        } else {
            for (size_t k = i; k < count; k++) sum += hash_element(__float_as_uint(x[begin + k]), k);
        }
    }
    for (int o = 16; o; o /= 2) sum += __shfl_xor_sync(~0u, sum, o);
    if (threadIdx.x % 32 == 0) sums[unit] = sum;
}

}  // namespace

void fold(float* out, float* partials, const float* const* terms, int count, Tree tree, size_t n, Stream stream) {
    constexpr decltype(&launch_fold<1>) kByHalves[] = {launch_fold<1>, launch_fold<2>, launch_fold<4>, launch_fold<8>, launch_fold<16>, launch_fold<32>, launch_fold<64>};
    const bool stack = tree == Tree::kStack && count > 2;              // of two both trees are the same
    CHECK(count > 0 && count <= kGpuTerms && (stack || (count & (count - 1)) == 0) && n % kUnit == 0, "fold: %d terms of %zu elements", count, n);
    if (n == 0 || (count == 1 && terms[0] == out && !partials)) return;
    Terms t = {{}, count};
    for (int i = 0; i < count; i++) t.at[i] = reinterpret_cast<const float4*>(terms[i]);
    (stack ? launch_fold<0> : kByHalves[std::countr_zero(unsigned(count))])(out, partials, t, n, stream);
}

void clip_scale(StepState* state, double* norm, const float* partials, size_t units, double clip, double tokens, Stream stream) {
    launch(clip_scale_kernel, 1, kSums, 0, stream, state, norm, partials, units, clip, tokens);
}

void adamw_update(floatX* param, float* master, float* m, float* v, const float* grad, const uint8_t* decay, size_t n,
                  const AdamW& adamw, const StepState* state, const StateSums& check, Stream stream) {
    CHECK(n % kUnit == 0, "adamw_update: %zu elements", n);
    if (n == 0) return;
    launch(adamw_update_kernel, unsigned(n / kUnit), kThreads, 0, stream, param, master, m, v, grad, decay, adamw, state, check);
}

uint64_t hash_floats(const float* x, size_t n, Stream stream) {
    const size_t units = div_up(n, kUnit);
    std::vector<uint64_t> sums(units);
    if (units) {
        uint64_t* const device_sums = static_cast<uint64_t*>(scratch(units * sizeof(uint64_t), stream));
        launch(hash_kernel, unsigned(div_up(units, size_t(kThreads / 32))), kThreads, 0, stream, device_sums, x, n);
        copy_to_host(sums.data(), device_sums, units * sizeof(uint64_t), stream);
    }
    uint64_t hash = n;
    for (const uint64_t unit : sums) hash = mix(hash ^ unit);
    return hash;
}

}  // namespace BACKEND
