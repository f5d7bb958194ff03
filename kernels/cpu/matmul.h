// matmul.h -- one task of a matmul: a block of the output, over all of k.
//
// k is cut into equal blocks of at most kDepth, by K alone. Within a block an element's products are added in order in a register,
// then the block's sum is added to those before: every element sees the same additions wherever tasks and tiles are cut.
// The cut keeps a panel of b in the first-level cache and the block of a in the second, and makes sums of 50,000 terms more exact.
#pragma once
#include "micro.h"

namespace BACKEND::ISA {

static int depth(int K) {
    const int blocks = (K + kDepth - 1) / kDepth;
    return ceil_to((K + blocks - 1) / blocks, kStep);
}

static size_t matmul_buffer(int rows, int cols, int K) {
    const size_t m = size_t(ceil_to(rows, kRows)), n = size_t(ceil_to(cols, kCols)), k = size_t(depth(K));
    return m * n + ((m + kCols) * k + kSpill) * sizeof(Packed) / sizeof(float);
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

static void matmul(const Matmul& m, int row, int rows, int col, int cols, float* buffer) {
    const FinishTile finish_tile = finishers[int(m.epilogue)];
    const int k_block = depth(m.K), tall = ceil_to(rows, kRows), wide = ceil_to(cols, kCols);
    float* sums = buffer;                                                   // [panel of b][panel of a][kRows][kCols]
    Packed* a_packed = reinterpret_cast<Packed*>(sums + size_t(tall) * size_t(wide));      // [panel of a][k][kRows]
    Packed* panel = a_packed + size_t(tall) * size_t(k_block);              // of b: [k][kCols]
    alignas(64) float tile[kRows * kCols];

    begin_products();
    for (int k0 = 0; k0 < m.K; k0 += k_block) {
        const int k = min(k_block, m.K - k0);
        const bool last = k0 + k == m.K;
        for (int i = 0; i < rows; i += kRows) {
            Packed* a = a_packed + size_t(i) * size_t(k_block);
            if (m.a_rows) pack_a_rows(a, m.a + size_t(row + i) * m.lda + k0, m.lda, rows - i, k);
            else pack_a_cols(a, m.a + size_t(k0) * m.lda + row + i, m.lda, rows - i, k);
        }
        for (int j = 0; j < cols; j += kCols) {
            if (m.b_rows) pack_b_rows(panel, m.b + size_t(col + j) * m.ldb + k0, m.ldb, cols - j, k);
            else pack_b_cols(panel, m.b + size_t(k0) * m.ldb + col + j, m.ldb, cols - j, k);
            for (int i = 0; i < rows; i += kRows) {
                const Packed* a = a_packed + size_t(i) * size_t(k_block);
                float* before = sums + size_t(j) * size_t(tall) + size_t(i) * kCols;
                if (k0 == 0) micro_kernel(last ? tile : before, a, panel, k);
                else micro_kernel_add(last ? tile : before, before, a, panel, k);
                if (last) finish_tile(m, tile, row + i, min(kRows, rows - i), col + j, min(kCols, cols - j));
            }
        }
    }
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
