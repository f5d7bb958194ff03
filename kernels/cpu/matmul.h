// matmul.h -- packing the operands of a matmul, and one task: a block of the output, over all of k.
//
// k is cut into equal blocks of at most kDepth, by K alone. Within a block an element's products are added in order in a register,
// then the block's sum is added to those before: every element sees the same additions wherever tasks and tiles are cut.
// The cut keeps a panel of b in the first-level cache and a task's block of a in the second, and makes sums of 50,000 terms more
// exact. Every element is packed once, by any thread: a task that packed for itself would do it again for each block beside it.
#pragma once
#include "micro.h"

namespace BACKEND::ISA {

static int depth(int K) {
    const int blocks = (K + kDepth - 1) / kDepth;
    return ceil_to((K + blocks - 1) / blocks, kStep);
}

// A packed operand: [k block][panel of kRows rows, or kCols columns][k][lane].
static size_t packed_size(int lanes, int deep) { return size_t(lanes) * size_t(ceil_to(deep, kStep)) * sizeof(Packed); }
static size_t packed_a(int rows, int deep) { return packed_size(ceil_to(rows, kRows), deep); }
static size_t packed_b(int cols, int deep) { return packed_size(ceil_to(cols, kCols), deep); }

// Calls f(k0, k, place) for the blocks of k in a part; place(lanes, lane) is where the panel that begins at this lane lies in an
// operand of so many (whole panels).
template <class F> INLINE void each_block(const Matmul& m, const Packing& p, const F& f) {
    for (int k0 = p.k; k0 < p.k + p.deep; k0 += depth(m.K)) {
        const int k = min(depth(m.K), p.k + p.deep - k0);
        f(k0, k, [&](int lanes, int lane) { return size_t(lanes) * size_t(k0 - p.k) + size_t(lane) * size_t(ceil_to(k, kStep)); });
    }
}

static void pack_a(const Matmul& m, const Packing& p, int row, int rows) {
    each_block(m, p, [&](int k0, int k, const auto& place) {
        for (int i = row; i < row + rows; i += kRows) {
            Packed* panel = static_cast<Packed*>(p.a) + place(ceil_to(p.rows, kRows), i);
            const size_t at = size_t(p.row + i), from = size_t(k0);
            if (m.a_rows) pack_a_rows(panel, m.a + at * m.lda + from, m.lda, p.rows - i, k);
            else pack_a_cols(panel, m.a + from * m.lda + at, m.lda, p.rows - i, k);
        }
    });
}

static void pack_b(const Matmul& m, const Packing& p, int col, int cols) {
    each_block(m, p, [&](int k0, int k, const auto& place) {
        for (int j = col; j < col + cols; j += kCols) {
            Packed* panel = static_cast<Packed*>(p.b) + place(ceil_to(p.cols, kCols), j);
            const size_t at = size_t(p.col + j), from = size_t(k0);
            if (m.b_rows) pack_b_rows(panel, m.b + at * m.ldb + from, m.ldb, p.cols - j, k);
            else pack_b_cols(panel, m.b + from * m.ldb + at, m.ldb, p.cols - j, k);
        }
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

// Rows row .. and columns col .. of a part.
static void matmul(const Matmul& m, const Packing& p, int row, int rows, int col, int cols) {
    const FinishTile finish_tile = finishers[int(m.epilogue)];
    const int tall = ceil_to(p.rows, kRows), wide = ceil_to(p.cols, kCols);
    alignas(64) float tile[kRows * kCols];

    begin_products();
    each_block(m, p, [&](int k0, int k, const auto& place) {
        const bool last = k0 + k == m.K;
        for (int j = col; j < col + cols; j += kCols) {
            const Packed* b = static_cast<const Packed*>(p.b) + place(wide, j);
            for (int i = row; i < row + rows; i += kRows) {
                const Packed* a = static_cast<const Packed*>(p.a) + place(tall, i);
                float* sums = p.sums + size_t(j) * size_t(tall) + size_t(i) * kCols;        // [panel of b][panel of a][kRows][kCols]
                if (k0 == 0) micro_kernel(last ? tile : sums, a, b, k);
                else micro_kernel_add(last ? tile : sums, sums, a, b, k);
                if (last) finish_tile(m, tile, p.row + i, min(kRows, p.rows - i), p.col + j, min(kCols, p.cols - j));
            }
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

// sums[j] (+)= sum over n of x[n][j] for columns col .. col + cols - 1; blocks of 256 rows, then the blocks in order.
static void column_sums(float* sums, const floatX* x, int N, int C, int col, int cols, bool accumulate) {
    for (int j = col; j < col + cols; j += kWidth) {
        const int n = min(kWidth, col + cols - j);
        Vec total = {};
        for (int row = 0; row < N; row += 256) {
            Vec block = {};
            for (int i = row; i < min(row + 256, N); i++) block += load(x + size_t(i) * size_t(C) + j, n);
            total += block;
        }
        store(sums + j, accumulate ? load(sums + j, n) + total : total, n);
    }
}

}  // namespace BACKEND::ISA
