// micro.h -- packing and the micro-kernel, under every matmul and in attention.
//
// A matmul is cut into tiles of kRows x kCols that live in registers while k runs. The operands are copied ("packed")
// so that the micro-kernel reads both as one stream: panels of kRows rows of a, a[k][kRows], and of kCols columns of b,
// b[k][kCols] (Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008). AMX: amx.h.
#pragma once
#include "kernels/cpu/isa.h"

namespace BACKEND::ISA {

#ifndef TILES
// Calls done(at, x) for each vector x of the tile sum over k of a[k][:] b[k][:], k in order, four k a round.
template <class F> INLINE void micro_tile(const float* a, const float* b, int k, const F& done) {
    Vec sum[kRows][kVectors] = {};
    const auto products = [&](const float* a_k, const float* b_k) __attribute__((always_inline)) {
        Vec row[kVectors];
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; v++) row[v] = load(b_k + v * kWidth);
#pragma GCC unroll 16
        for (int i = 0; i < kRows; i++) {
            const Vec a_ik = broadcast(a_k[i]);
#pragma GCC unroll 4
            for (int v = 0; v < kVectors; v++) sum[i][v] = fma(a_ik, row[v], sum[i][v]);
        }
    };
    for (; k >= 4; k -= 4, a += 4 * kRows, b += 4 * kCols) {
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++) products(a + u * kRows, b + u * kCols);
    }
    for (; k > 0; k--, a += kRows, b += kCols) products(a, b);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; v++) done(i * kCols + v * kWidth, sum[i][v]);
}

// tile[kRows][kCols] = that sum, plus before[kRows][kCols] if there is one.
static void micro_kernel(float* tile, const float* before, const float* a, const float* b, int k) {
    if (!before) return micro_tile(a, b, k, [&](int at, Vec x) { store(tile + at, x); });
    for (int i = 0; i < kRows * kCols; i += 16) __builtin_prefetch(before + i);
    micro_tile(a, b, k, [&](int at, Vec x) { store(tile + at, load(before + at) + x); });
}
#endif

typedef float Quad __attribute__((vector_size(16)));
typedef float QuadAt __attribute__((vector_size(16), aligned(4), may_alias));
typedef uint16_t HalfQuadAt __attribute__((vector_size(8), aligned(2), may_alias));
typedef uint32_t QuadBits __attribute__((vector_size(16)));

INLINE Quad load4(const float* p) { return *reinterpret_cast<const QuadAt*>(p); }
INLINE Quad load4(const bf16* p) {
    return (Quad)(__builtin_convertvector(*reinterpret_cast<const HalfQuadAt*>(p), QuadBits) << 16);
}
INLINE void store4(float* p, Quad x) { *reinterpret_cast<QuadAt*>(p) = x; }

// out[j][i] = x_i[j] for 4 x 4 elements, rows of out `ld` apart.
INLINE void transpose4(float* out, size_t ld, Quad x0, Quad x1, Quad x2, Quad x3) {
    const Quad a = __builtin_shufflevector(x0, x1, 0, 4, 1, 5), b = __builtin_shufflevector(x2, x3, 0, 4, 1, 5);
    const Quad c = __builtin_shufflevector(x0, x1, 2, 6, 3, 7), d = __builtin_shufflevector(x2, x3, 2, 6, 3, 7);
    store4(out + 0 * ld, __builtin_shufflevector(a, b, 0, 1, 4, 5));
    store4(out + 1 * ld, __builtin_shufflevector(a, b, 2, 3, 6, 7));
    store4(out + 2 * ld, __builtin_shufflevector(c, d, 0, 1, 4, 5));
    store4(out + 3 * ld, __builtin_shufflevector(c, d, 2, 3, 6, 7));
}
// panel[k][W] from x (rows,K), row i at x + i * ld; K a multiple of 4, W of 2. Missing rows repeat the last.
template <int W, class F> static void pack_rows(float* panel, const F* x, size_t ld, int rows, int K) {
    for (int k = 0; k < K; k += 4) {
        if (k % int(64 / sizeof(F)) == 0)                   // the panel after this one, into the second-level cache
            for (int i = W; i < 2 * W; i++) __builtin_prefetch(x + i * ld + k, 0, 2);
        const auto row = [&](int r) { return load4(x + size_t(min(r, rows - 1)) * ld + k); };
        for (int i = 0; i + 4 <= W; i += 4)
            transpose4(panel + k * W + i, W, row(i), row(i + 1), row(i + 2), row(i + 3));
        if (W % 4 == 0) continue;
        const Quad x0 = row(W - 2), x1 = row(W - 1);
        for (int i = 0; i < 4; i++) {
            panel[(k + i) * W + W - 2] = x0[i];
            panel[(k + i) * W + W - 1] = x1[i];
        }
    }
}

}  // namespace BACKEND::ISA

#ifdef TILES
#include "kernels/cpu/amx.h"
#else
namespace BACKEND::ISA {

// k of a panel is rounded up to kStep.
using Packed = float;
constexpr int kStep = 8, kDepth = 256;
constexpr int kTaskRows = 384, kTaskCols = 512;        // of a task, at most

// panel[k][W] from x (K,cols), row k at x + k * ld. Missing columns become 0.
template <int W, class F> static void pack_cols(float* panel, const F* x, size_t ld, int cols, int K) {
    const auto each = [&](const auto& element) __attribute__((always_inline)) {
        for (int k = 0; k < K; k++, panel += W, x += ld) {
            __builtin_prefetch(x + kStep * ld, 0, 2);       // hardware does not foresee a stride of rows
            for (int i = 0; i < W; i++) panel[i] = element(i);
        }
    };
    if (cols >= W) each([&](int i) { return to_float(x[i]); });
    else each([&](int i) { return i < cols ? to_float(x[i]) : 0.0f; });
}

INLINE void begin_products() {}
INLINE void end_products() {}
// A panel of the first operand (rows of a) or the second (columns of b); its lanes are rows in memory or columns.
template <bool kOfB, bool kLanesAreRows, class F>
INLINE void pack_panel(float* panel, const F* x, size_t ld, int lanes, int K) {
    constexpr int W = kOfB ? kCols : kRows;
    if (kLanesAreRows) pack_rows<W>(panel, x, ld, lanes, K);
    else pack_cols<W>(panel, x, ld, lanes, K);
}
// Sums, x[kRows][kCols], as a first operand; x[K][kCols] as a second one, which they are already.
INLINE void pack_a_sums(float* panel, const float* x) { pack_rows<kRows>(panel, x, kCols, kRows, kCols); }
INLINE const float* pack_b_sums(float*, const float* x, int) { return x; }

}  // namespace BACKEND::ISA
#endif
