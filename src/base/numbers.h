// numbers.h -- what all backends compute with: types, random numbers, and functions with the same
// bits on every CPU.
//
// No function here depends on a backend's storage type: the linker would merge it with another
// backend's.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include "src/base/common.h"

#ifdef __CUDACC__
#define HOST_DEVICE __host__ __device__
#else
#define HOST_DEVICE
#endif

// A type for storage only: kernels widen it to float when they load it.
struct bf16 { uint16_t bits; };
// A cudaStream_t on a GPU, a worker thread on a CPU; null: the main stream.
using Stream = struct StreamTag*;

// Gradients, weights and optimizer state are cut only at units of this many elements, so that no
// element's arithmetic depends on where a rank's or a thread's part begins.
constexpr size_t kUnit = 4096;

// The bits of a NaN that no arithmetic makes. A gradient that still has them was not written.
constexpr uint32_t kPoison = 0x7fc5eed5;

// Limits of the GPU kernels: channels in LayerNorm, where a block keeps a row in registers, and
// terms in tree_reduce.
constexpr int kGpuChannels = 8192, kGpuTerms = 64;

// The tokens that stand before and behind each document of the data; -1: none does. A document
// starts at `begin`, or behind `end` where nothing stands before it.
struct DocumentTokens {
    int begin = -1, end = -1;
    bool start_at(int token) const { return token == begin; }
    bool start_behind(int token) const { return begin < 0 && token == end; }
};

// What an optimizer may treat otherwise from tensor to tensor: a model's table says it, and a rule
// gets it.
struct Rates {
    float lr = 1;               // factor of the learning rate
    // Factor of weight decay; kByShape: 1 for a matrix, 0 for a vector. Rules get a factor.
    float decay = kByShape;
    int group = 0;              // for an optimizer that knows what the model means by it
    static constexpr float kByShape = -1;
};

// The values that change from step to step. Kernels read them from memory, so a captured CUDA graph
// needs no new arguments.
struct StepState {
    uint64_t seed;
    uint32_t step;
    float lr;
    float grad_scale;       // 1 / tokens of the step, times the clip factor
    float values[16] = {};  // of the optimizer, set by its prepare()
    double tokens = 0;      // tokens that the step trains on
};

// What a GPU's sensors say: power, clock of the multiprocessors, temperature; 0: not known.
struct Sensors { unsigned milliwatts, mhz, celsius; };

// Counter-based dropout. Element i of site `purpose` is kept if
// uniform01(random4({seed, purpose, step, micro_batch}, i / 4).v[i % 4]) >= rate.
// A CPU multiplies a kept element by 1.0f / (1.0f - rate), rounded to float, and any other by 0. A
// GPU divides a kept element by 1.0f - rate, so the last bit of the float may differ. Backward
// computes the same random numbers again.
struct Dropout {
    float rate;             // 0 = none
    uint32_t purpose;       // RandomPurpose
    uint32_t micro_batch;   // its number within the step
    const StepState* state; // seed and step
};

// What attention computes, beside its arrays. Each set of kernels takes it apart into all of its
// members, by `const auto& [B, T, ...] = attention`: with a new member none compiles until it says
// what it does with it.
struct Attention {
    int B, T;           // sequences, and positions of each
    int NH, NK, HS;     // heads; heads of keys and values, a divisor of NH; head size, at most 128
    Dropout drop = {};  // of the probabilities; the element's index is ((b*NH + h)*T + t)*T + u
    float scale = 0;    // of the scores; 0: 1 / sqrt(HS)
    // (B,T): the first key that each query sees, which is at most the query's own position and does
    // not fall along a sequence; null: 0 for all
    const int* begin = nullptr;
};

// What the embedding computes, beside its arrays. Each set of kernels takes it apart, too.
struct Embedding {
    int B, T, C;            // sequences, positions of each, channels
    Dropout drop = {};      // of the sum; the element's index is its place in (B,T,C)
    // (B,T): where in its sequence each token's document begins. The position of token n is
    // n % T - begin[n], which is 0 or more; null: n % T
    const int* begin = nullptr;
};

// The order in which terms are added. kBalanced: a balanced binary tree, for terms that are sums
// over equal numbers of replicas. kNested: terms[0] + (terms[1] + (...)), which ddp.cpp uses inside
// a rank. There the terms are sums over 4, 2, 1 and 1 replicas, for example: each term but the last
// covers as many replicas as all later ones together. So these are additions of the same balanced
// tree over single replicas.
enum class Tree { kBalanced, kNested };

// ---- random numbers, as a function of a key and an index, not as a stream
//
// random4(key, i) is a pure function: no state to save, no order to keep, the same on every rank,
// thread and device. Generator: Philox 4x32-10 (Salmon et al., Parallel Random Numbers: As Easy as
// 1, 2, 3, SC'11).

// What a number is for. GPT-2's dropout sites are
// kRandomDropout + 4 * layer + {0 attention, 1 projection, 2 MLP}, and kRandomDropout - 1 for the
// embedding.
enum RandomPurpose : uint32_t {
    kRandomInit = 1, kRandomData = 2, kRandomSample = 3, kRandomStory = 4, kRandomDropout = 0x100
};

// purpose is less than 65536.
struct RandomKey { uint64_t seed; uint32_t purpose; uint32_t step; uint32_t micro_batch; };
struct Random4 { uint32_t v[4]; };

HOST_DEVICE inline Random4 philox(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t k0,
                                  uint32_t k1) {
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
    return philox(uint32_t(i), (uint32_t(i >> 32) & 0xffffu) | key.purpose << 16, key.step,
                  key.micro_batch, uint32_t(key.seed), uint32_t(key.seed >> 32));
}

// Returns a number of [0, 1).
HOST_DEVICE inline float uniform01(uint32_t bits) {
    return float(bits >> 8) * (1.0f / 16777216.0f);
}

// Mixes 64 bits (the last part of splitmix64: Steele, Lea and Flood 2014). It is static because the
// CPU kernels compile it for several instruction sets, and a linker keeps only one copy of an
// inline function.
HOST_DEVICE static inline uint64_t mix64(uint64_t z) {
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

// ---- log, exp, pow, sin and cos with the same bits on every CPU
//
// C libraries differ in the last bit. Each function here is a fixed sequence of +, -, * and /,
// which IEEE 754 rounds in one way, and of bit operations. -ffp-contract=off keeps compilers from
// fusing * and +. CUDA compilers fuse them and give other bits. The relative error is up to 4e-16,
// and (1 + |y log x|) times that for same_pow; the absolute error of same_sin and same_cos is up to
// 2e-16. The method reduces the argument to a short interval, with a constant in two parts so that
// the first product is exact (Cody and Waite 1980), and then sums a Taylor series.

// Returns c0 + x (c1 + x (c2 + ...)).
HOST_DEVICE static inline double horner(double, double c0) { return c0; }
template <class... C> HOST_DEVICE static inline double horner(double x, double c0, C... c) {
    return c0 + x * horner(x, c...);
}

constexpr double kLn2High = 0x1.62e42feep-1, kLn2Low = 0x1.a39ef35793c76p-33;
constexpr double kQuarterHigh = 0x1.921fb544p+0, kQuarterLow = 0x1.0b4611a626331p-34;   // pi / 2
constexpr double kToInteger = 0x1.8p52;     // adding it rounds to an integer, in the lowest bits

// log(x) for finite x >= 2^-1022. With x = 2^n m, sqrt(1/2) <= m < sqrt(2):
// log m = 2 artanh(s), s = (m - 1) / (m + 1).
HOST_DEVICE static inline double same_log(double x) {
    constexpr uint64_t kRootHalf = 0x3fe6a09e667f3bcd;      // the bits of sqrt(1/2)
    const uint64_t bits = std::bit_cast<uint64_t>(x) - kRootHalf;
    const double n = double(int64_t(bits) >> 52),
                 m = std::bit_cast<double>((bits & 0xfffffffffffff) + kRootHalf);
    const double s = (m - 1) / (m + 1), z = s * s;
    const double tail = horner(z, 2 / 3., 2 / 5., 2 / 7., 2 / 9., 2 / 11., 2 / 13., 2 / 15.,
                               2 / 17., 2 / 19., 2 / 21.);
    return n * kLn2High + (2 * s + (s * z * tail + n * kLn2Low));
}

// e^x; 0 for x < -708, infinite for x > 709. With x = n log 2 + r: 2^n e^r.
HOST_DEVICE static inline double same_exp(double x) {
    if (x < -708) return 0;
    if (x > 709) return __builtin_inf();
    const double shifted = x * (1 / (kLn2High + kLn2Low)) + kToInteger, n = shifted - kToInteger;
    const double r = (x - n * kLn2High) - n * kLn2Low;
    const double p =
        horner(r, 1., 1., 1 / 2., 1 / 6., 1 / 24., 1 / 120., 1 / 720., 1 / 5040., 1 / 40320.,
               1 / 362880., 1 / 3628800., 1 / 39916800., 1 / 479001600., 1 / 6227020800.);
    return p * std::bit_cast<double>((std::bit_cast<uint64_t>(shifted) + 1023) << 52);
}

// x^y for x >= 0, y > 0.
HOST_DEVICE static inline double same_pow(double x, double y) {
    return x > 0 ? same_exp(y * same_log(x)) : 0;
}

// sin(x + quarters pi / 2) for |x| < 1.6e6. With x = n pi / 2 + r: plus or minus the sine or the
// cosine of r.
HOST_DEVICE static inline double same_sin(double x, int quarters = 0) {
    const double shifted = x * (1 / (kQuarterHigh + kQuarterLow)) + kToInteger,
                 n = shifted - kToInteger;
    const double r = (x - n * kQuarterHigh) - n * kQuarterLow, z = -(r * r);
    const uint64_t turn = std::bit_cast<uint64_t>(shifted) + uint64_t(quarters);
    const double sine = r * horner(z, 1., 1 / 6., 1 / 120., 1 / 5040., 1 / 362880., 1 / 39916800.,
                                   1 / 6227020800., 1 / 1307674368000.);
    const double cosine = horner(z, 1., 1 / 2., 1 / 24., 1 / 720., 1 / 40320., 1 / 3628800.,
                                 1 / 479001600., 1 / 87178291200., 1 / 20922789888000.);
    const double size = turn & 1 ? cosine : sine;
    return turn & 2 ? -size : size;
}
HOST_DEVICE static inline double same_cos(double x) { return same_sin(x, 1); }
