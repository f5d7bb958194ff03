// isa.h -- what differs between instruction sets, and the vector arithmetic built on it.
//
// isa.cpp and the headers it includes are compiled once per instruction set, all inside namespace
// ISA. Inline functions of other headers are called only if they are static, or std::bit_cast,
// which -O3 inlines: of any other inline function the linker keeps one copy, perhaps one with
// instructions that an older CPU lacks.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <utility>
#include "kernels/cpu/runtime.h"
#include "src/base/common.h"
#include "src/base/numbers.h"
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define INLINE static inline __attribute__((always_inline))

namespace BACKEND::ISA {

#if defined(__AVX512F__)
constexpr int kWidth = 16;                              // floats per vector
#elif defined(__AVX2__)
constexpr int kWidth = 8;
#else
constexpr int kWidth = 4;
#endif
// kRows x kCols is a matmul's micro tile. kRows * kVectors sums, kVectors of b and one of a must
// fit the vector registers: 16 with AVX2, 32 with AVX-512 and on Arm. At least 8 sums are needed to
// hide the latency of two multiply-adds per cycle. With AMX the sums are in tile registers (amx.h).
// A panel's k is rounded up to kStep.
#if defined(AMX)
constexpr int kRows = 32, kCols = 32, kStep = 32;
#elif defined(__aarch64__)
constexpr int kRows = 6, kCols = 4 * kWidth, kStep = 8;
#else
constexpr int kRows = kWidth == 16 ? 12 : 6, kCols = 2 * kWidth, kStep = 8;
#endif
// Packed operands are bf16 where the CPU multiplies these
// (AMX, and AVX512-BF16, in pairs of k), and else floats.
#if defined(AMX) || defined(__AVX512BF16__)
using Packed = bf16;
#else
using Packed = float;
#endif
constexpr int kVectors = kCols / kWidth;
// With AMX panels of a consist of tiles of kRows x kStep. Without it rows of a may also lie apart.
constexpr bool kTiled = kStep == kRows;

typedef float Vec __attribute__((vector_size(4 * kWidth)));
typedef int32_t VecInt __attribute__((vector_size(4 * kWidth)));
typedef uint32_t VecBits __attribute__((vector_size(4 * kWidth)));
// At any address
typedef float VecAt __attribute__((vector_size(4 * kWidth), aligned(4), may_alias));
typedef uint16_t Bf16At __attribute__((vector_size(2 * kWidth), aligned(2), may_alias));

typedef uint64_t VecWide __attribute__((vector_size(4 * kWidth)));

constexpr float kInfinity = __builtin_inff();
INLINE Vec broadcast(float x) { return x - Vec{}; }
INLINE Vec lane_numbers() {     // 0, 1, ... kWidth - 1
    Vec x;
    for (int i = 0; i < kWidth; i++) x[i] = float(i);
    return x;
}

// add_product: sum + a * b, rounded once (on x86 without AVX2 twice); of bf16 pairs sum + a1 * b1 +
// a0 * b0. fma: a * b + c. max: a > b ? a : b. min: a < b ? a : b. So both are b if one is NaN.
// multiply_even: 64-bit products of the even 32-bit lanes. load_some, store_some: the first n
// lanes, n < kWidth. Most are one instruction that compilers do not find. add_product and
// broadcast(p) are assembly: g++ 12 otherwise copies a micro-kernel's sums between registers.
#if defined(__AVX2__)
INLINE Vec add_product(Vec sum, Vec a, Vec b) {
    if constexpr (sizeof(Packed) == 2)
        asm volatile("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    else
        asm volatile("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}
INLINE Vec broadcast(const float* p) {
    Vec x;
    asm volatile("vbroadcastss %1, %0" : "=v"(x) : "m"(*p));
    return x;
}
#else
INLINE Vec broadcast(const float* p) { return broadcast(*p); }
#endif
#if defined(__AVX512F__)
INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
INLINE Vec max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
INLINE Vec min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
INLINE VecWide multiply_even(VecWide a, VecWide b) {
    return (VecWide)_mm512_maskz_mul_epu32(0xff, (__m512i)a, (__m512i)b);
}
INLINE Vec load_some(const float* p, int n) {
    return _mm512_maskz_loadu_ps(__mmask16((1u << n) - 1), p);
}
INLINE void store_some(float* p, Vec x, int n) {
    _mm512_mask_storeu_ps(p, __mmask16((1u << n) - 1), x);
}
#elif defined(__AVX2__)
INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
INLINE Vec max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
INLINE Vec min(Vec a, Vec b) { return _mm256_min_ps(a, b); }
INLINE VecWide multiply_even(VecWide a, VecWide b) {
    return (VecWide)_mm256_mul_epu32((__m256i)a, (__m256i)b);
}
#else
#if defined(__aarch64__)
INLINE Vec fma(Vec a, Vec b, Vec c) { return vfmaq_f32(c, a, b); }
#else
INLINE Vec fma(Vec a, Vec b, Vec c) { return a * b + c; }
#endif
INLINE Vec add_product(Vec sum, Vec a, Vec b) { return fma(a, b, sum); }
INLINE Vec max(Vec a, Vec b) { return a > b ? a : b; }
INLINE Vec min(Vec a, Vec b) { return a < b ? a : b; }
INLINE VecWide multiply_even(VecWide a, VecWide b) { return (a & 0xffffffffu) * (b & 0xffffffffu); }
#endif
INLINE int min(int a, int b) { return a < b ? a : b; }
INLINE int max(int a, int b) { return a > b ? a : b; }
INLINE constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
INLINE constexpr int round_up(int a, int b) { return ceil_div(a, b) * b; }

// load widens storage to floats; store rounds floats to storage, to nearest even; NaN stays NaN.
INLINE Vec load(const float* p) { return *reinterpret_cast<const VecAt*>(p); }
INLINE Vec load(const bf16* p) {
    return (Vec)(__builtin_convertvector(*reinterpret_cast<const Bf16At*>(p), VecBits) << 16);
}
INLINE void store(float* p, Vec x) { *reinterpret_cast<VecAt*>(p) = x; }
INLINE VecBits round_to_bf16(Vec x) {    // in the upper 16 bits of each lane; the lower ones are 0
    const VecBits bits = (VecBits)x, rounded = bits + 0x7fff + (bits >> 16 & 1);
    return (x == x ? rounded : bits | 0x400000) & 0xffff0000u;
}
INLINE void store(bf16* p, Vec x) {
    *reinterpret_cast<Bf16At*>(p) = __builtin_convertvector(round_to_bf16(x) >> 16, Bf16At);
}

// stored returns x as load reads it after store(p, x).
INLINE Vec stored(const float*, Vec x) { return x; }
INLINE Vec stored(const bf16*, Vec x) { return (Vec)round_to_bf16(x); }

// These load or store the first n elements, or kWidth if n is larger (_some: n < kWidth). Other
// lanes are 0, or `fill`.
template <class F> INLINE Vec load_some(const F* p, int n) {
    F all[kWidth] = {};
    memcpy(all, p, size_t(n) * sizeof(F));
    return load(all);
}
template <class F> INLINE void store_some(F* p, Vec x, int n) {
    F all[kWidth];
    store(all, x);
    memcpy(p, all, size_t(n) * sizeof(F));
}
template <class F> INLINE Vec load(const F* p, int n) {
    return n >= kWidth ? load(p) : load_some(p, n);
}
template <class F> INLINE void store(F* p, Vec x, int n) {
    return n >= kWidth ? store(p, x) : store_some(p, x, n);
}
template <class F> INLINE Vec load(const F* p, int n, float fill) {
    return lane_numbers() < float(n) ? load(p, n) : broadcast(fill);
}

// across joins all lanes to one number: each time the upper
// half with the lower one, in one order for every kWidth.
template <int half, int... I> INLINE Vec rotate(Vec x, std::integer_sequence<int, I...>) {
    return __builtin_shufflevector(x, x, ((I + half) % kWidth)...);
}
template <int half = kWidth / 2, class F> INLINE float across(Vec x, const F& join) {
    if constexpr (half == 0) return x[0];
    else
        return across<half / 2>(join(x, rotate<half>(x, std::make_integer_sequence<int, kWidth>())),
                                join);
}

// A sum along a row has kSums partial sums, of which number j takes terms j, j + kSums, ... Their
// number does not follow from kWidth, the width of a vector, so the width changes no bit.
constexpr int kSums = 64;
struct Sums {
    Vec part[kSums / kWidth] = {};
    float total() {
        for (int n = kSums / kWidth / 2; n > 0; n /= 2)
            for (int i = 0; i < n; i++) part[i] += part[i + n];
        return across(part[0], [](Vec a, Vec b) { return a + b; });
    }
};
// Calls f(i, left) for i = 0, kWidth, ... < n. left is kWidth, or less in the last call.
template <class F> INLINE void for_vectors(int n, const F& f) {
    int i = 0;
    for (; i + kWidth <= n; i += kWidth) f(i, kWidth);      // a length that the compiler knows
    if (i < n) f(i, n - i);
}
// Calls f(i, left, k) in the same order, for part[k] of
// Sums. left = n - i may exceed kWidth near the end.
template <class F> INLINE void for_parts(int n, const F& f) {
    constexpr int kParts = kSums / kWidth;
    int i = 0;
    for (; i + kSums <= n; i += kSums)
#pragma GCC unroll 16
        for (int k = 0; k < kParts; k++) f(i + k * kWidth, kWidth, k);
#pragma GCC unroll 16
    for (int k = 0; k < kParts; k++)
        if (i + k * kWidth < n) f(i + k * kWidth, n - i - k * kWidth, k);
}
// Returns the sum of all lanes of term(i, left), or of a(i, left) b(i, left). Their lanes from
// `left` on must be 0.
template <class F> INLINE float sum_over(int n, const F& term) {
    Sums sums;
    for_parts(n, [&](int i, int left, int k) { sums.part[k] += term(i, left); });
    return sums.total();
}
template <class A, class B> INLINE float sum_products(int n, const A& a, const B& b) {
    Sums sums;
    for_parts(n, [&](int i, int left, int k) {
        sums.part[k] = fma(a(i, left), b(i, left), sums.part[k]);
    });
    return sums.total();
}

// sum[0..n-1] (+)= partials 0, 1, ... count - 1, which are `stride` elements apart, in order.
static void add_partials(float* sum, const float* partials, int count, size_t stride, int n,
                         bool accumulate) {
    for_vectors(n, [&](int i, int left) {
        Vec total = load(partials + i, left);
        for (int k = 1; k < count; k++) total += load(partials + k * stride + i, left);
        store(sum + i, accumulate ? load(sum + i, left) + total : total, left);
    });
}

// Returns e^x to 2 ulp for x <= 88, 0 below -87.3; a NaN stays one. x = n ln 2 + r; ln 2 has two
// parts, so n times the high one is exact (Cody and Waite); e^r is a series to r^7, times 2^n.
INLINE Vec exp(Vec x) {
    // Adding 1.5 * 2^23 + 127 rounds to an integer. The sum's lowest bits are n + 127, the
    // exponent's bits of 2^n.
    const float to_integer = 12583039.0f;
    const Vec shifted = fma(x, broadcast(1.44269504f), broadcast(to_integer)),
              n = shifted - to_integer;
    const Vec r = fma(n, broadcast(2.12194440e-4f), fma(n, broadcast(-0.693359375f), x));
    Vec p = broadcast(1.0f / 5040);
    constexpr float coefficients[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6,
                                      0.5f,       1.0f,       1.0f};
#pragma GCC unroll 8
    for (const float c : coefficients) p = fma(p, r, broadcast(c));
    return x < -87.3f ? Vec{} : p * (Vec)((VecBits)shifted << 23);
}

// Returns the natural logarithm of x > 0; NaN for infinity
// and NaN. It has no branch, so that a loop becomes vectors.
INLINE float log(float x) { return float(same_log(double(x))) + (x - x); }

// tanh-GELU: s = (1 + tanh u)/2 = 1/(1 + e^-2u), where nothing cancels for negative u;
// rest = 1 - s. 2u = kTwiceK (x + kCubic x^3), K = sqrt(2 / pi)
constexpr float kTwiceK = 2 * 0.7978845608f, kCubic = 0.044715f;
struct Sigmoid { Vec s, rest; };
INLINE Sigmoid gelu_sigmoid(Vec x) {
    const Vec minus_2u = x * fma(x * x, broadcast(-kTwiceK * kCubic), broadcast(-kTwiceK));
    const Vec e = exp(min(broadcast(80.0f), minus_2u));         // e * s stays finite
    const Vec s = 1.0f / (1.0f + e);
    return {s, e * s};
}
INLINE Vec gelu(Vec x) { return x * gelu_sigmoid(x).s; }
INLINE Vec gelu_derivative(Vec x) {
    const Sigmoid g = gelu_sigmoid(x);
    return fma(g.s * g.rest, x * fma(x * x, broadcast(3 * kTwiceK * kCubic), broadcast(kTwiceK)),
               g.s);
}

constexpr int kTaskElements = 16384;        // fewer elements are not worth the start of a task

// Calls f(n) for n = 0 .. N - 1, rows of `cols` elements. A task has a block of rows, so f may
// prefetch the next row.
template <class F> static void for_rows(int N, int cols, const F& f) {
    const int rows = max(max(1, kTaskElements / max(cols, 1)), N / (16 * get_threads()));
    parallel_for(ceil_div(N, rows), [&](int task) {
        for (int n = task * rows; n < min(N, (task + 1) * rows); n++) f(n);
    });
}

// Calls f(begin, count) for blocks that cover 0 .. n - 1. A task has one block.
template <class F> static void for_elements(size_t n, const F& f) {
    parallel_for(int((n + kTaskElements - 1) / kTaskElements), [&](int task) {
        const size_t begin = size_t(task) * kTaskElements;
        f(begin, n - begin < kTaskElements ? n - begin : kTaskElements);
    });
}

}  // namespace BACKEND::ISA
