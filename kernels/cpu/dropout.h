// dropout.h -- the random numbers of src/base/numbers.h, a
// vector of blocks at a time, and dropout with them.
#pragma once
#include "kernels/cpu/micro.h"

namespace BACKEND::ISA {

// Mask is a dropout site. keep is 1 / (1 - rate), or 1 if rate is 0.
struct Mask { float rate, keep; RandomKey key; };

static Mask mask_of(const Dropout& drop) {
    if (drop.rate <= 0) return {0, 1, {}};
    return {drop.rate, 1.0f / (1.0f - drop.rate),
            {drop.state->seed, drop.purpose, drop.state->step, drop.micro_batch}};
}

// Multiplies 32-bit lanes by factor. *low and *high become the halves of the 64-bit products.
INLINE void multiply_wide(VecBits x, uint32_t factor, VecBits* low, VecBits* high) {
    const uint64_t lower = 0xffffffffu;
    const VecWide f = VecWide{} + factor, even = multiply_even((VecWide)x, f),
                  odd = multiply_even((VecWide)x >> 32, f);
    *low = (VecBits)((even & lower) | odd << 32);
    *high = (VecBits)(even >> 32 | (odd & ~lower));
}

// Sets numbers[k][i] to number k, of 4, of block first + i,
// i < kWidth. No later block may be a multiple of 2^32.
INLINE void philox(VecBits* numbers, const RandomKey& key, uint64_t first) {
    VecBits c0 = VecBits{} + uint32_t(first),
            c1 = VecBits{} + ((uint32_t(first >> 32) & 0xffffu) | key.purpose << 16);
    VecBits c2 = VecBits{} + key.step, c3 = VecBits{} + key.micro_batch;
    for (int i = 0; i < kWidth; i++) c0[i] += uint32_t(i);
    uint32_t k0 = uint32_t(key.seed), k1 = uint32_t(key.seed >> 32);
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        VecBits low0, high0, low1, high1;
        multiply_wide(c0, 0xD2511F53u, &low0, &high0);
        multiply_wide(c2, 0xCD9E8D57u, &low1, &high1);
        c0 = high1 ^ c1 ^ k0; c1 = low1;
        c2 = high0 ^ c3 ^ k1; c3 = low0;
    }
    numbers[0] = c0; numbers[1] = c1; numbers[2] = c2; numbers[3] = c3;
}

// Sets factors[i], i < n, to what element first + i is multiplied by: 0 or keep.
static void dropout_factors(float* factors, const Mask& mask, uint64_t first, int n) {
    // Whole vectors of blocks: none straddles a multiple of 2^32
    constexpr uint64_t kGroup = 4 * kWidth;
    for (uint64_t begin = first / kGroup * kGroup; begin < first + uint64_t(n); begin += kGroup) {
        VecBits numbers[4];
        Vec factor[4];
        float all[kGroup];
        philox(numbers, mask.key, begin / 4);
        for (int k = 0; k < 4; k++) {
            const Vec uniform =
                __builtin_convertvector((VecInt)(numbers[k] >> 8), Vec) * (1.0f / 16777216.0f);
            factor[k] = uniform >= mask.rate ? broadcast(mask.keep) : Vec{};
        }
        interleave<4>(factor, 2);    // now element 4 i + k is number k of block i
        memcpy(all, factor, sizeof all);
        const int skip = begin < first ? int(first - begin) : 0,
                  at = int(begin + uint64_t(skip) - first);
        memcpy(factors + at, all + skip, size_t(min(int(kGroup) - skip, n - at)) * sizeof(float));
    }
}

constexpr int kFactors = 256;               // how many dropout factors are computed at a time

// Calls f(i, left, factor) as for_vectors does, where element i has index `index` + i.
template <class F> INLINE void each_dropped(int n, const Mask& mask, uint64_t index, const F& f) {
    if (mask.rate <= 0)
        return for_vectors(n, [&](int i, int left) { f(i, left, broadcast(1.0f)); });
    alignas(64) float factors[kFactors];
    for (int begin = 0; begin < n; begin += kFactors) {
        const int count = min(n - begin, kFactors);
        dropout_factors(factors, mask, index + uint64_t(begin), count);
        for_vectors(count, [&](int i, int left) { f(begin + i, left, load(factors + i, left)); });
    }
}

// Computes out = a + drop(b); element 0 of b has index `index`.
template <class Out> static void add_dropped(Out* out, const Out* a, const floatX* b, int n,
                                             const Mask& mask, uint64_t index) {
    each_dropped(n, mask, index, [&](int i, int left, Vec factor) {
        store(out + i, fma(load(b + i, left), factor, load(a + i, left)), left);
    });
}

static void dropout_backward(floatX* dinp, const floatX* dout, size_t n, const Dropout& drop,
                             Stream) {
    const Mask mask = mask_of(drop);
    for_elements(n, [&](size_t begin, size_t count) {
        each_dropped(int(count), mask, begin, [&](int i, int left, Vec factor) {
            store(dinp + begin + i, load(dout + begin + i, left) * factor, left);
        });
    });
}

}  // namespace BACKEND::ISA
