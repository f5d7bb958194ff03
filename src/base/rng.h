// rng.h -- random numbers as a function of a key and an index, not as a stream.
//
// random4(key, i) is a pure function: no state to save, no order to keep, the same on every rank, thread and device.
// Generator: Philox 4x32-10 (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC'11).
#pragma once
#include <cstdint>

#ifdef __CUDACC__
#define HOST_DEVICE __host__ __device__
#else
#define HOST_DEVICE
#endif

// What a number is for. GPT-2's dropout sites are kRandomDropout + 4 * layer + {0 attention, 1 projection, 2 MLP}, and
// kRandomDropout - 1 for the embedding.
enum RandomPurpose : uint32_t {
    kRandomInit = 1, kRandomData = 2, kRandomSample = 3, kRandomStory = 4, kRandomDropout = 0x100
};

struct RandomKey { uint64_t seed; uint32_t purpose; uint32_t step; uint32_t micro_batch; };   // purpose < 65536
struct Random4 { uint32_t v[4]; };

HOST_DEVICE inline Random4 philox(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t k0, uint32_t k1) {
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = uint64_t(0xD2511F53u) * c0, p1 = uint64_t(0xCD9E8D57u) * c2;
        c0 = uint32_t(p1 >> 32) ^ c1 ^ k0;
        c1 = uint32_t(p1);
        c2 = uint32_t(p0 >> 32) ^ c3 ^ k1;
        c3 = uint32_t(p0);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
}

// Returns four random 32-bit numbers for block i (elements 4i .. 4i+3), i < 2^48.
HOST_DEVICE inline Random4 random4(const RandomKey& key, uint64_t i) {
    return philox(uint32_t(i), (uint32_t(i >> 32) & 0xffffu) | key.purpose << 16, key.step, key.micro_batch,
                  uint32_t(key.seed), uint32_t(key.seed >> 32));
}

HOST_DEVICE inline float uniform01(uint32_t bits) { return float(bits >> 8) * (1.0f / 16777216.0f); }   // [0, 1)

// Mixes 64 bits (the last part of splitmix64: Steele, Lea and Flood 2014). It is static because the CPU kernels compile
// it for several instruction sets, and a linker keeps only one copy of an inline function.
HOST_DEVICE static inline uint64_t mix64(uint64_t z) {
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}
