// random.h -- the numbers of src/rng.h (Philox 4x32-10), a vector of blocks at a time.
#pragma once
#include "micro.h"

namespace BACKEND::ISA {

// numbers[k] = number k of four of blocks first .. first + kWidth - 1, all on one side of a multiple of 2^32.
INLINE void philox(VecBits* numbers, const Mask& mask, uint64_t first) {
    VecBits c0 = VecBits{} + uint32_t(first), c1 = VecBits{} + ((uint32_t(first >> 32) & 0xffffu) | mask.purpose << 16);
    VecBits c2 = VecBits{} + mask.step, c3 = VecBits{} + mask.leaf;
    for (int i = 0; i < kWidth; i++) c0[i] += uint32_t(i);
    uint32_t k0 = mask.seed_low, k1 = mask.seed_high;
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        VecBits low0, high0, low1, high1;
        multiply_wide(c0, 0xD2511F53u, &low0, &high0);
        multiply_wide(c2, 0xCD9E8D57u, &low1, &high1);
        c0 = high1 ^ c1 ^ k0; c1 = low1;
        c2 = high0 ^ c3 ^ k1; c3 = low0;
    }
    numbers[0] = c0; numbers[1] = c1; numbers[2] = c2; numbers[3] = c3;
}

// factors[i] = what element first + i is multiplied with: 0 or keep.
static void dropout_factors(float* factors, const Mask& mask, uint64_t first, int n) {
    constexpr uint64_t kStep = 4 * kWidth;                  // whole vectors of blocks, so none straddles a multiple of 2^32
    for (uint64_t begin = first / kStep * kStep; begin < first + uint64_t(n); begin += kStep) {
        VecBits numbers[4];
        float rows[4][kWidth], all[kStep];
        philox(numbers, mask, begin / 4);
        for (int k = 0; k < 4; k++) {
            const Vec uniform = __builtin_convertvector((VecInt)(numbers[k] >> 8), Vec) * (1.0f / 16777216.0f);
            store(rows[k], uniform >= mask.rate ? broadcast(mask.keep) : Vec{});
        }
        for (int i = 0; i < kWidth; i += 4)                 // element 4 i + k is number k of block i
            transpose4(all + 4 * i, 4, load4(rows[0] + i), load4(rows[1] + i), load4(rows[2] + i), load4(rows[3] + i));
        const int skip = begin < first ? int(first - begin) : 0, at = int(begin + uint64_t(skip) - first);
        memcpy(factors + at, all + skip, size_t(min(int(kStep) - skip, n - at)) * sizeof(float));
    }
}

}  // namespace BACKEND::ISA
