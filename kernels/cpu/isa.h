// isa.h -- what differs between instruction sets, and the vector arithmetic built on it.
//
// hot.cpp and the headers it includes are compiled once per instruction set, with -DISA=portable, avx2, avx512 or amx. All of it is
// static inside namespace ISA, and no std:: template or inline function of another header is called: the linker keeps one
// copy of those, and it could be the one with instructions that an older CPU does not have.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "hot.h"
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define LOCKSTEP_TEXT(x) #x
#define LOCKSTEP_NAME(x) LOCKSTEP_TEXT(x)
#define INLINE static inline __attribute__((always_inline))

namespace BACKEND::ISA {

// Floats per vector, and the micro tile of a matmul: kRows x (kVectors vectors). kRows * kVectors accumulators, kVectors of b and
// one of a must fit the registers: 16 of them with AVX2, 32 with AVX-512 and on Arm. Enough accumulators to hide the latency of
// two multiply-adds per cycle: 2 x 4 = 8 at least. With AMX they are the tile registers', 32 x 32 (amx.h).
#if defined(TILES) && defined(__AVX512F__)
constexpr int kWidth = 16, kRows = 32, kVectors = 2;
#elif defined(TILES)                                    // in software, for tests
constexpr int kWidth = 8, kRows = 32, kVectors = 4;
#elif defined(__AVX512F__)
constexpr int kWidth = 16, kRows = 12, kVectors = 2;
#elif defined(__AVX2__)
constexpr int kWidth = 8, kRows = 6, kVectors = 2;
#else
constexpr int kWidth = 4, kRows = 6, kVectors = 2;
#endif
constexpr int kCols = kWidth * kVectors;

typedef float Vec __attribute__((vector_size(4 * kWidth)));
typedef int32_t VecInt __attribute__((vector_size(4 * kWidth)));
typedef uint32_t VecBits __attribute__((vector_size(4 * kWidth)));
typedef float VecAt __attribute__((vector_size(4 * kWidth), aligned(4), may_alias));         // anywhere in memory

// a * b + c
#if defined(__AVX512F__)
INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
#elif defined(__FMA__)
INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
#elif defined(__aarch64__)
INLINE Vec fma(Vec a, Vec b, Vec c) { return vfmaq_f32(c, a, b); }
#else
INLINE Vec fma(Vec a, Vec b, Vec c) { return a * b + c; }
#endif

INLINE Vec broadcast(float x) { return x - Vec{}; }

// a > b ? a : b and a < b ? a : b: b where one is NaN. One instruction, which the compilers do not find.
#if defined(__AVX512F__)
INLINE Vec max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
INLINE Vec min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
#elif defined(__AVX2__)
INLINE Vec max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
INLINE Vec min(Vec a, Vec b) { return _mm256_min_ps(a, b); }
#else
INLINE Vec max(Vec a, Vec b) { return a > b ? a : b; }
INLINE Vec min(Vec a, Vec b) { return a < b ? a : b; }
#endif
INLINE int min(int a, int b) { return a < b ? a : b; }
INLINE int max(int a, int b) { return a > b ? a : b; }
INLINE constexpr int ceil_to(int a, int b) { return (a + b - 1) / b * b; }

// The 64-bit products of 32-bit lanes: low and high halves.
typedef uint64_t VecWide __attribute__((vector_size(4 * kWidth)));
#if defined(__AVX512F__)
INLINE VecWide multiply_even(VecWide a, VecWide b) { return (VecWide)_mm512_maskz_mul_epu32(0xff, (__m512i)a, (__m512i)b); }
#elif defined(__AVX2__)
INLINE VecWide multiply_even(VecWide a, VecWide b) { return (VecWide)_mm256_mul_epu32((__m256i)a, (__m256i)b); }
#elif defined(__x86_64__)
INLINE VecWide multiply_even(VecWide a, VecWide b) { return (VecWide)_mm_mul_epu32((__m128i)a, (__m128i)b); }
#else
INLINE VecWide multiply_even(VecWide a, VecWide b) { return (a & 0xffffffffu) * (b & 0xffffffffu); }
#endif
INLINE void multiply_wide(VecBits x, uint32_t factor, VecBits* low, VecBits* high) {
    const uint64_t lower = 0xffffffffu;
    const VecWide f = VecWide{} + factor, even = multiply_even((VecWide)x, f), odd = multiply_even((VecWide)x >> 32, f);
    *low = (VecBits)((even & lower) | odd << 32);
    *high = (VecBits)(even >> 32 | (odd & ~lower));
}

// Storage <-> float. bf16 is the upper half of a float; stores round to nearest even and keep NaNs.
typedef uint16_t HalfAt __attribute__((vector_size(2 * kWidth), aligned(2), may_alias));

INLINE Vec load(const float* p) { return *reinterpret_cast<const VecAt*>(p); }
INLINE Vec load(const bf16* p) { return (Vec)(__builtin_convertvector(*reinterpret_cast<const HalfAt*>(p), VecBits) << 16); }
INLINE void store(float* p, Vec x) { *reinterpret_cast<VecAt*>(p) = x; }
INLINE VecBits round_to_half(Vec x) {           // the upper half, rounded; the lower half is 0
    const VecBits bits = (VecBits)x, rounded = bits + 0x7fff + (bits >> 16 & 1);
    return (x == x ? rounded : bits | 0x400000) & 0xffff0000u;
}
INLINE void store(bf16* p, Vec x) { *reinterpret_cast<HalfAt*>(p) = __builtin_convertvector(round_to_half(x) >> 16, HalfAt); }

// x as it will be read after store(p, x). Reading it back instead would wait for the store.
INLINE Vec stored(const float*, Vec x) { return x; }
INLINE Vec stored(const bf16*, Vec x) { return (Vec)round_to_half(x); }
INLINE float to_float(float x) { return x; }
INLINE float to_float(bf16 x) {
    const uint32_t bits = uint32_t(x.bits) << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// The first n elements only, 0 < n <= kWidth; the other lanes are `fill`. An element's arithmetic is the same as in a full vector.
template <class F> INLINE Vec load(const F* p, int n, float fill = 0) {
    if (n >= kWidth) return load(p);
    Vec x = broadcast(fill);
    for (int i = 0; i < n; i++) x[i] = to_float(p[i]);
    return x;
}
template <class F> INLINE void store(F* p, Vec x, int n) {
    if (n >= kWidth) return store(p, x);
    F all[kWidth];
    store(all, x);
    memcpy(p, all, size_t(n) * sizeof(F));
}

// Across the lanes: halves onto halves, the same order for the same width.
INLINE float sum(Vec x) {
    float lane[kWidth];
    store(lane, x);
    for (int n = kWidth / 2; n > 0; n /= 2)
        for (int i = 0; i < n; i++) lane[i] += lane[i + n];
    return lane[0];
}
INLINE float max(Vec x) {
    float lane[kWidth];
    store(lane, x);
    for (int n = kWidth / 2; n > 0; n /= 2)
        for (int i = 0; i < n; i++) lane[i] = lane[i] > lane[i + n] ? lane[i] : lane[i + n];
    return lane[0];
}

// e^x to 2 ulp for x <= 88.7; 0 below -87.3, NaN stays. x = n ln 2 + r with |r| <= ln(2)/2, ln 2 in two parts so that
// n * high is exact (Cody and Waite); the series of e^r to r^7 leaves 5e-9; n is added to the exponent.
INLINE Vec exp(Vec x) {
    const float low = -87.3f, to_integer = 12582912.0f;                          // 1.5 * 2^23: adding it rounds to an integer
    const Vec y = max(broadcast(low), x), shifted = fma(y, broadcast(1.44269504f), broadcast(to_integer)), n = shifted - to_integer;
    const Vec r = fma(n, broadcast(2.12194440e-4f), fma(n, broadcast(-0.693359375f), y));
    Vec p = broadcast(1.0f / 5040);
    p = fma(p, r, broadcast(1.0f / 720));
    p = fma(p, r, broadcast(1.0f / 120));
    p = fma(p, r, broadcast(1.0f / 24));
    p = fma(p, r, broadcast(1.0f / 6));
    p = fma(p, r, broadcast(0.5f));
    p = fma(p, r, broadcast(1.0f));
    p = fma(p, r, broadcast(1.0f));
    const VecInt scaled = (VecInt)p + ((VecInt)shifted << 23);
    return (Vec)(x < low ? VecInt{} : scaled);
}

// tanh-GELU without tanh: (1 + tanh u)/2 = 1/(1 + e^-2u), where nothing cancels for negative u. s is that, and rest = 1 - s.
constexpr float kTwiceK = 2 * 0.7978845608f, kCubic = 0.044715f;                 // 2u = kTwiceK (x + kCubic x^3)
struct Sigmoid { Vec s, rest; };
INLINE Sigmoid gelu_sigmoid(Vec x) {
    const Vec minus_2u = x * fma(x * x, broadcast(-kTwiceK * kCubic), broadcast(-kTwiceK));
    const Vec e = exp(min(broadcast(80.0f), minus_2u));                          // e * s stays finite
    const Vec s = 1.0f / (1.0f + e);
    return {s, e * s};
}
INLINE Vec gelu(Vec x) { return x * gelu_sigmoid(x).s; }
INLINE Vec gelu_derivative(Vec x) {
    const Sigmoid g = gelu_sigmoid(x);
    return fma(g.s * g.rest, x * fma(x * x, broadcast(3 * kTwiceK * kCubic), broadcast(kTwiceK)), g.s);
}

}  // namespace BACKEND::ISA
