// matmul.h -- packing the operands of a matmul, and one task: a block of the output, over all of k.
//
// k is cut into equal blocks of at most kDepth, by K alone. Within a block an element's products are added in order in a register,
// then the block's sum is added to those before: every element sees the same additions wherever tasks and tiles are cut.
// The cut keeps a panel of b in the first-level cache and a task's block of a in the second, and makes sums of 50,000 terms more
// exact. Every element is packed once, by any thread: a task that packed for itself would do it again for each block beside it.
// Where no block is beside it, with few rows, it does pack b for itself, a panel at a time, into the first-level cache.
#pragma once
#include "micro.h"

namespace BACKEND::ISA {

static int depth(int K) {
    const int blocks = (K + kDepth - 1) / kDepth;
    return ceil_to((K + blocks - 1) / blocks, kStep);
}

// A packed operand: [k block][panel of kRows rows, or kCols columns][k][lane].
static size_t packed_size(int lanes, int deep) { return size_t(lanes) * size_t(ceil_to(deep, kStep)) * sizeof(Packed); }

// Calls f(k0, k, place) for the blocks of k from `from` to `to`, in a part; place(lanes, lane) is where the panel that begins at this lane
// lies in an operand of so many (whole panels).
template <class F> INLINE void each_block(const Matmul& m, const Packing& p, int from, int to, const F& f) {
    for (int k0 = from; k0 < to; k0 += depth(m.K)) {
        const int k = min(depth(m.K), to - k0);
        f(k0, k, [&](int lanes, int lane) { return size_t(lanes) * size_t(k0 - p.k) + size_t(lane) * size_t(ceil_to(k, kStep)); });
    }
}

// One panel, of a block of k: rows i .. of a, or columns i .. of b.
template <bool kOfB> INLINE void pack_panel(Packed* panel, const Matmul& m, const Packing& p, int i, int k0, int k) {
    const size_t at = size_t(kOfB ? p.col + i : p.row + i), ld = kOfB ? m.ldb : m.lda;
    const bool rows = kOfB ? m.b_rows : m.a_rows;
    const floatX* x = (kOfB ? m.b : m.a) + (rows ? at * ld + size_t(k0) : size_t(k0) * ld + at);
    const int lanes = kOfB ? p.cols - i : p.rows - i;
    if (kOfB && rows) pack_b_rows(panel, x, ld, lanes, k);
    else if (kOfB) pack_b_cols(panel, x, ld, lanes, k);
    else if (rows) pack_a_rows(panel, x, ld, lanes, k);
    else pack_a_cols(panel, x, ld, lanes, k);
}

// Where lanes lie side by side in memory, kStep of k for all panels and then the next: a cache line holds lanes of several panels, and of
// lines that lie a power of two apart the first-level cache keeps only eight.
template <bool kOfB> static void pack(const Matmul& m, const Packing& p, int first, int lanes) {
    constexpr int kLanes = kOfB ? kCols : kRows;
    Packed* packed = static_cast<Packed*>(kOfB ? p.b : p.a);
    each_block(m, p, p.k, p.k + p.deep, [&](int k0, int k, const auto& place) {
        const int piece = (kOfB ? m.b_rows : m.a_rows) ? k : kStep;
        for (int at = 0; at < k; at += piece)
            for (int i = first; i < first + lanes; i += kLanes)
                pack_panel<kOfB>(packed + place(ceil_to(kOfB ? p.cols : p.rows, kLanes), i) + at * kLanes, m, p, i, k0 + at, min(piece, k - at));
    });
}

// One vector of the output: x is the complete sum of n elements at (i, j).
template <Epilogue epilogue> INLINE void finish(const Matmul& m, Vec x, int i, int j, int n) {
    const size_t at = size_t(i) * size_t(m.N) + size_t(j);
    if (m.bias) x += load(m.bias + j, n);
    switch (epilogue) {
    case Epilogue::kStore: store(m.out + at, x, n); break;
    case Epilogue::kGelu:
        store(m.pre + at, x, n);
        store(m.out + at, gelu(stored(m.pre, x)), n);           // of what backward will read
        break;
    case Epilogue::kGeluBackward: store(m.out + at, x * gelu_derivative(load(m.pre + at, n)), n); break;
    case Epilogue::kGradient: store(m.gradient + at, x, n); break;
    case Epilogue::kGradientAdd: store(m.gradient + at, load(m.gradient + at, n) + x, n); break;
    }
}

// A tile of the output, at (i, j), of rows x cols.
template <Epilogue epilogue> static void finish_tile(const Matmul& m, const float* tile, int i, int rows, int j, int cols) {
    if (cols == kCols)                          // the same with lengths that the compiler knows
        for (int r = 0; r < rows; r++, tile += kCols)
            for (int c = 0; c < kCols; c += kWidth) finish<epilogue>(m, load(tile + c), i + r, j + c, kWidth);
    else
        for (int r = 0; r < rows; r++, tile += kCols)
            for (int c = 0; c < cols; c += kWidth) finish<epilogue>(m, load(tile + c), i + r, j + c, cols - c);
}
using FinishTile = void (*)(const Matmul&, const float*, int, int, int, int);
static const FinishTile finishers[] = {             // in the order of Epilogue
    finish_tile<Epilogue::kStore>, finish_tile<Epilogue::kGelu>, finish_tile<Epilogue::kGeluBackward>,
    finish_tile<Epilogue::kGradient>, finish_tile<Epilogue::kGradientAdd>,
};

// What the epilogue of a tile will read, on its way while the products run.
INLINE void prefetch_tile(const Matmul& m, int i, int rows, int j) {
    const bool adds = m.epilogue == Epilogue::kGradientAdd;
    if (!adds && m.epilogue != Epilogue::kGeluBackward) return;
    const size_t size = adds ? sizeof(float) : sizeof(floatX);
    const char* from = (adds ? reinterpret_cast<const char*>(m.gradient) : reinterpret_cast<const char*>(m.pre)) + (size_t(i) * size_t(m.N) + size_t(j)) * size;
    for (int r = 0; r < rows; r++)
        for (size_t c = 0; c < kCols * size; c += 64) __builtin_prefetch(from + size_t(r) * size_t(m.N) * size + c);
}

// Rows row .. and columns col .. of a part. Few rows leave the second-level cache room for several blocks of k of a: these go together, and
// the sums of a panel of b stay in the first-level cache meanwhile.
static void matmul(const Matmul& m, const Packing& p, int row, int rows, int col, int cols) {
    const FinishTile finish_tile = finishers[int(m.epilogue)];
    const int tall = ceil_to(p.rows, kRows), wide = ceil_to(p.cols, kCols);
    const int end = p.k + p.deep, together = depth(m.K) * max(1, kTaskRows / rows);
    alignas(64) float tile[kRows * kCols];
    alignas(64) Packed panel[kDepth * kCols];

    begin_products();
    for (int first = p.k; first < end; first += together)
        for (int j = col; j < col + cols; j += kCols)
            each_block(m, p, first, min(first + together, end), [&](int k0, int k, const auto& place) {
                const bool last = k0 + k == m.K;
                const Packed* b = p.b ? static_cast<const Packed*>(p.b) + place(wide, j) : panel;
                if (!p.b) pack_panel<true>(panel, m, p, j, k0, k);
                const char* next = reinterpret_cast<const char*>(b + k * kCols);        // panel of b: each tile fetches its part of it
                const int bytes = p.b ? ceil_to(k * kCols * kRows / rows * int(sizeof(Packed)), 64) : 0;
                for (int i = row; i < row + rows; i += kRows) {
                    const Packed* a = static_cast<const Packed*>(p.a) + place(tall, i);
                    float* sums = p.sums + size_t(j) * size_t(tall) + size_t(i) * kCols;        // [panel of b][panel of a][kRows][kCols]
                    for (const char* to = next + bytes; next < to; next += 64) __builtin_prefetch(next, 0, 2);
                    if (last) prefetch_tile(m, p.row + i, min(kRows, p.rows - i), p.col + j);
                    if (k0 == 0) micro_kernel(last ? tile : sums, a, b, k);
                    else micro_kernel_add(last ? tile : sums, sums, a, b, k);
                    if (last) finish_tile(m, tile, p.row + i, min(kRows, p.rows - i), p.col + j, min(kCols, p.cols - j));
                }
            });
    end_products();
}

// The same with few rows, as in generation: memory gives the pace, so b is read once, as it lies, and each element is a dot
// product over k: kWidth sums side by side, then their sum. Four columns at a time, because one chain of additions would wait for itself.
static void matvec(const Matmul& m, int col, int cols) {
    constexpr int kTogether = 4;
    const FinishTile finish_tile = finishers[int(m.epilogue)];
    alignas(64) float results[kCols];
    for (int j = 0; j < cols; j += kCols)
        for (int i = 0; i < m.M; i++) {
            const int n = min(kCols, cols - j);
            const floatX* a = m.a + size_t(i) * m.lda;
            for (int c = 0; c < n; c += kTogether) {
                Vec sums[kTogether] = {};
                const floatX* b[kTogether];
                for (int t = 0; t < kTogether; t++) b[t] = m.b + size_t(col + j + min(c + t, n - 1)) * m.ldb;
                int k = 0;
                for (; k + kWidth <= m.K; k += kWidth)
                    for (int t = 0; t < kTogether; t++) sums[t] = fma(load(a + k), load(b[t] + k), sums[t]);
                if (k < m.K)
                    for (int t = 0; t < kTogether; t++) sums[t] = fma(load(a + k, m.K - k), load(b[t] + k, m.K - k), sums[t]);
                for (int t = 0; t < kTogether; t++) results[c + t] = sum(sums[t]);
            }
            finish_tile(m, results, i, 1, col + j, n);
        }
}

// sums[j] (+)= sum over n of x[n][j] for columns col .. col + cols - 1; blocks of 256 rows, then the blocks in order. 64 columns go
// together: whole cache lines of a row.
static void column_sums(float* sums, const floatX* x, int N, int C, int col, int cols, bool accumulate) {
    constexpr int kTogether = 64 / kWidth;
    for (int j = col; j < col + cols; j += kTogether * kWidth) {
        const int n = min(kTogether * kWidth, col + cols - j);
        Vec total[kTogether] = {};
        for (int row = 0; row < N; row += 256) {
            Vec block[kTogether] = {};
            for (int i = row; i < min(row + 256, N); i++) {
                const floatX* from = x + size_t(i) * size_t(C) + j;
                if (n == kTogether * kWidth)
                    for (int t = 0; t < kTogether; t++) block[t] += load(from + t * kWidth);
                else
                    for (int t = 0; t * kWidth < n; t++) block[t] += load(from + t * kWidth, n - t * kWidth);
            }
            for (int t = 0; t < kTogether; t++) total[t] += block[t];
        }
        for (int t = 0; t * kWidth < n; t++) {
            float* to = sums + j + t * kWidth;
            store(to, accumulate ? load(to, n - t * kWidth) + total[t] : total[t], n - t * kWidth);
        }
    }
}

}  // namespace BACKEND::ISA
