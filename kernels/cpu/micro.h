// micro.h -- packing and the micro-kernel, which all matmuls and attention use.
//
// A matmul is cut into tiles of kRows x kCols that live in registers while k runs. The operands are
// copied ("packed") so that the micro-kernel reads both as one stream: panels of kRows rows of a,
// a[k][kRows], and of kCols columns of b, b[k][kCols] (Goto and van de Geijn, Anatomy of
// High-Performance Matrix Multiplication, 2008). amx.h is for AMX.
#pragma once
#include "kernels/cpu/isa.h"

namespace BACKEND::ISA {

// Interleaves the elements of n vectors. A round takes all elements in the order of memory, a0 a1
// ... in the first half and b0 b1 ... in the second, and stores them as a0 b0 a1 b1 ... log2(n)
// rounds transpose x[n][lanes]: element [i][j] is then at [j][i] of x[lanes][n].
template <int n, class V, int... I>
INLINE void interleave(V* x, int rounds, std::integer_sequence<int, I...>) {
    constexpr int kLanes = sizeof...(I);
#pragma GCC unroll 4
    for (int round = 0; round < rounds; round++) {
        V y[n];
#pragma GCC unroll 8
        for (int i = 0; i < n / 2; i++) {
            const V a = x[i], b = x[i + n / 2];
            y[2 * i] = __builtin_shufflevector(a, b, (I / 2 + I % 2 * kLanes)...);
            y[2 * i + 1] = __builtin_shufflevector(a, b, (kLanes / 2 + I / 2 + I % 2 * kLanes)...);
        }
#pragma GCC unroll 16
        for (int i = 0; i < n; i++) x[i] = y[i];
    }
}
template <int n> INLINE void interleave(Vec* x, int rounds) {
    interleave<n>(x, rounds, std::make_integer_sequence<int, kWidth>());
}
// Transposes kWidth vectors: x[i][j] becomes x[j][i].
INLINE void transpose(Vec* x) { interleave<kWidth>(x, kWidth == 16 ? 4 : kWidth == 8 ? 3 : 2); }

// A panel is [k / kOf][lane][kOf]: 4 bytes hold one float, or the bf16 of kOf = 2 successive k.
template <class P> constexpr int kOf = int(sizeof(float) / sizeof(P));

// Loads kWidth panel elements, each of kOf k, of one lane whose k lie side by side
// at x: the first n k, then 0. The first argument gives the type of the panel.
template <class F> INLINE Vec elements(const float*, const F* x, int n) { return load(x, n); }
INLINE Vec elements(const bf16*, const bf16* x, int n) {
    if (n >= 2 * kWidth) return load(reinterpret_cast<const float*>(x));
    bf16 all[2 * kWidth] = {};
    memcpy(all, x, size_t(n) * sizeof(bf16));
    return load(reinterpret_cast<const float*>(all));
}
// Loads kWidth lanes that lie side by side at x: the first `lanes`, then 0. next: these lanes at
// the next k, or null.
template <class F> INLINE Vec elements(const float*, const F* x, const F*, int lanes) {
    return load(x, lanes);
}
INLINE Vec elements(const bf16*, const bf16* x, const bf16* next, int lanes) {
    const VecBits high = next ? (VecBits)load(next, lanes) : VecBits{};
    return (Vec)(high | (VecBits)load(x, lanes) >> 16);
}
// Packs x (lanes,K), lane i at x + i * ld, as panel[k][W]; K a multiple of kOf. Missing lanes
// repeat the last. Blocks of kWidth x kWidth keep few cache lines in use at a time: rows a power of
// two apart evict each other from the cache.
template <int W, class P, class F>
static void pack_rows(P* panel, const F* x, size_t ld, int lanes, int K) {
    float* to = reinterpret_cast<float*>(panel);
    for (int k = 0; k < K; k += kWidth * kOf<P>, to += kWidth * W)
#pragma GCC unroll 4
        for (int i = 0; i < W; i += kWidth) {
            Vec rows[kWidth] = {};
#pragma GCC unroll 16
            for (int t = 0; t < kWidth; t++)
                if (i + t < W)
                    rows[t] = elements(panel, x + size_t(min(i + t, lanes - 1)) * ld + k, K - k);
            transpose(rows);
#pragma GCC unroll 16
            for (int t = 0; t < kWidth; t++)
                if (k + t * kOf<P> < K) store(to + t * W + i, rows[t], W - i);
        }
}
// Packs x (K,lanes), row k at x + k * ld, as panel[k][W]. Missing lanes become 0.
template <int W, class P, class F>
static void pack_cols(P* panel, const F* x, size_t ld, int lanes, int K) {
    float* to = reinterpret_cast<float*>(panel);
    for (int k = 0; k < K; k += kOf<P>, x += kOf<P> * ld, to += W) {
        __builtin_prefetch(x + 16 * ld);  // the hardware prefetcher does not follow strides of rows
#pragma GCC unroll 4
        for (int i = 0; i < W; i += kWidth) {
            const Vec y = lanes > i
                              ? elements(panel, x + i, k + 1 < K ? x + ld + i : nullptr, lanes - i)
                              : Vec{};
            store(to + i, y, W - i);
        }
    }
}
}  // namespace BACKEND::ISA

#ifdef AMX
#include "kernels/cpu/amx.h"
#else
namespace BACKEND::ISA {

// Computes the first R rows and V vectors of a tile: adds a[k][row] b[k][:], one k after the other,
// to `before`, or to 0 if that is null. a is a panel, or, if kLying, rows that lie ld floats apart.
// Every four k it prefetches one cache line of `next`: more would wait for line fill buffers.
template <int R, int V, bool kLying>
static void micro_tile(float* tile, const float* before, const float* a, size_t ld, const float* b,
                       const char* next, int k) {
    const float* third[ceil_div(R, 3)];     // every third row: 12 addresses need too many registers
    for (int i = 0; i < R; i += 3) third[i / 3] = a + size_t(i) * ld;
    Vec sum[R][V] = {};
    if (before) {
#pragma GCC unroll 16
        for (int i = 0; i < R; i++)
#pragma GCC unroll 4
            for (int v = 0; v < V; v++) sum[i][v] = load(before + i * kCols + v * kWidth);
    }
    const auto products = [&](int u) __attribute__((always_inline)) {
        Vec row[V];
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) row[v] = load(b + u * kCols + v * kWidth);
#pragma GCC unroll 16
        for (int i = 0; i < R; i++) {
            const Vec x = broadcast(kLying ? third[i / 3] + size_t(i % 3) * ld + u
                                           : a + u * kRows + i);
#pragma GCC unroll 4
            for (int v = 0; v < V; v++) sum[i][v] = add_product(sum[i][v], x, row[v]);
        }
    };
    const auto advance = [&](int n) __attribute__((always_inline)) {
        a += n * kRows;
        b += n * kCols;
        for (const float*& row : third) row += n;
    };
    for (; k >= 4; k -= 4, advance(4), next += 64) {
        __builtin_prefetch(next, 0, 2);
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++) products(u);
    }
    for (; k > 0; k--, advance(1)) products(0);
#pragma GCC unroll 16
    for (int i = 0; i < R; i++)
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) store(tile + i * kCols + v * kWidth, sum[i][v]);
}

// Returns the micro_tile of the fewest rows and vectors that has `rows` x `cols`.
template <bool kLying> static auto choose_tile(int rows, int cols) {
    if (cols <= kWidth) return micro_tile<kRows, 1, kLying>;
    if (rows <= kRows / 3) return micro_tile<kRows / 3, kVectors, kLying>;
    if (rows <= kRows * 2 / 3) return micro_tile<kRows * 2 / 3, kVectors, kLying>;
    return micro_tile<kRows, kVectors, kLying>;
}
// Computes a tile, at least its first `rows` x `cols`. a is a panel if ld is 0, else rows that lie
// ld elements apart. Prefetches `next`.
static void micro_kernel(float* tile, const float* before, const Packed* a, size_t ld,
                         const Packed* b, const void* next, int k, int rows, int cols) {
    const auto run = ld > 0 ? choose_tile<true>(rows, cols) : choose_tile<false>(rows, cols);
    const auto floats = [](const Packed* x) { return reinterpret_cast<const float*>(x); };
    run(tile, before, floats(a), ld / kOf<Packed>, floats(b), static_cast<const char*>(next),
        ceil_div(k, kOf<Packed>));
}

// Packs a panel of the first operand (rows of a) or the second (columns of b). A lane is a row of
// x, or a column.
template <bool kOfB, bool kLanesAreRows, class F>
INLINE void pack_panel(Packed* panel, const F* x, size_t ld, int lanes, int K) {
    constexpr int W = kOfB ? kCols : kRows;
    if (kLanesAreRows) pack_rows<W>(panel, x, ld, lanes, K);
    else pack_cols<W>(panel, x, ld, lanes, K);
}

INLINE void begin_products() {}
INLINE void end_products() {}
INLINE int pair_at(int k, int lane) { return k / 2 * kCols + lane; }

}  // namespace BACKEND::ISA
#endif

namespace BACKEND::ISA {

// Packs sums x[K][kCols] as a panel of the second operand, and returns it. Floats need no packing:
// then it returns x.
INLINE const float* pack_b_sums(float*, const float* x, int) { return x; }
INLINE const bf16* pack_b_sums(bf16* panel, const float* x, int K) {
    for (int k = 0; k < round_up(K, kStep); k += 2)
        for (int lane = 0; lane < kCols; lane += kWidth) {
            const VecBits even = k < K ? round_to_bf16(load(x + k * kCols + lane)) : VecBits{};
            const VecBits odd = k + 1 < K ? round_to_bf16(load(x + (k + 1) * kCols + lane))
                                          : VecBits{};
            store(reinterpret_cast<float*>(panel) + pair_at(k, lane), (Vec)(even >> 16 | odd));
        }
    return panel;
}

}  // namespace BACKEND::ISA
