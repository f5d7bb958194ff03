// matmul.h -- matmuls: operands packed, blocks of the output as tasks, and what follows a sum: bias, GELU, "+=".
//
// k is cut into equal blocks of at most kDepth, by K alone. Within a block an element's products are added in order in
// a register, then the block's sum to those before: every element sees the same additions wherever tasks and tiles are
// cut. A panel of b stays in the first-level cache and a task's block of a in the second.
#pragma once
#include "kernels/cpu/micro.h"

namespace BACKEND::ISA {

// out[i][j] = epilogue( sum_k a[i][k] b[k][j] ), i < M, j < N, k < K.
enum class Epilogue { kStore, kGelu, kGeluBackward, kGradient, kGradientAdd };
struct Operand {
    const floatX* x;
    int ld;
    bool rows;                      // lane i (row of a, column of b) is at x + i * ld; else k is at x + k * ld
    int lanes = 0;
    Packed* packed = nullptr;       // [block of k][panel of kRows rows or kCols columns][k][lane]
};
struct Matmul {
    Operand a, b;
    int M, N, K;
    Epilogue epilogue;
    floatX* out = nullptr;          // (M,N) kStore: + bias; kGelu: gelu(pre); kGeluBackward: * gelu'(pre)
    floatX* pre = nullptr;          // (M,N) kGelu: written, sum + bias; kGeluBackward: read
    const floatX* bias = nullptr;   // (N)
    float* gradient = nullptr;      // (M,N) instead of out: kGradient "=", kGradientAdd "+="
};

// A part of the output, over products k .. k + deep - 1.
struct Part {
    Operand a, b;                   // of the part; b.packed null: each task packs its own
    int row, col, k, deep;
    float* sums;                    // [panel of b][panel of a][kRows][kCols], of the parts with smaller k
};

static int depth(int K) { return round_up(ceil_div(K, ceil_div(K, kDepth)), kStep); }

// `lanes` lanes from `first` on, and products from k on.
static Operand part_of(const Operand& o, int first, int lanes, int k, Packed* packed) {
    const size_t lane = size_t(first), ld = size_t(o.ld);
    return {o.rows ? o.x + lane * ld + k : o.x + k * ld + lane, o.ld, o.rows, lanes, packed};
}

// Where the panel that begins at this lane lies in the block of k from k0 to k0 + k.
template <bool kOfB> INLINE Packed* panel_at(const Operand& o, int lane, int k0, int k) {
    return o.packed + size_t(round_up(o.lanes, kOfB ? kCols : kRows)) * k0 + size_t(lane) * round_up(k, kStep);
}

template <bool kOfB> INLINE void pack_block(Packed* panel, const Operand& o, int lane, int k0, int k) {
    const Operand from = part_of(o, lane, o.lanes - lane, k0, nullptr);
    if (o.rows) pack_panel<kOfB, true>(panel, from.x, size_t(o.ld), from.lanes, k);
    else pack_panel<kOfB, false>(panel, from.x, size_t(o.ld), from.lanes, k);
}

// Packs lanes from `first` on. Where lanes are side by side in memory, kStep of k for all panels and then the next: a
// cache line holds lanes of several panels.
template <bool kOfB> static void pack(const Operand& o, int deep, int block, int first, int lanes) {
    constexpr int kLanes = kOfB ? kCols : kRows;
    for (int k0 = 0; k0 < deep; k0 += block) {
        const int k = min(block, deep - k0), piece = o.rows ? k : kStep;
        for (int at = 0; at < k; at += piece)
            for (int i = first; i < first + lanes; i += kLanes)
                pack_block<kOfB>(panel_at<kOfB>(o, i, k0, k) + at * kLanes, o, i, k0 + at, min(piece, k - at));
    }
}

// A tile of the output, at (i, j), of rows x cols, from its complete sums.
static void finish(const Matmul& m, const float* tile, int i, int rows, int j, int cols) {
    const auto each = [&](const auto& f) __attribute__((always_inline)) {
        const auto vectors = [&](int n) __attribute__((always_inline)) {
            for (int r = 0; r < rows; r++)
                for (int c = 0; c < n; c += kWidth) {
                    Vec x = load(tile + r * kCols + c);
                    if (m.bias) x += load(m.bias + j + c, n - c);
                    f(size_t(i + r) * m.N + j + c, x, n - c);
                }
        };
        if (cols == kCols) vectors(kCols);      // a length that the compiler knows
        else vectors(cols);
    };
    switch (m.epilogue) {
    case Epilogue::kStore: return each([&](size_t at, Vec x, int n) { store(m.out + at, x, n); });
    case Epilogue::kGelu:
        return each([&](size_t at, Vec x, int n) {
            store(m.pre + at, x, n);
            store(m.out + at, gelu(stored(m.pre, x)), n);       // of what backward will read
        });
    case Epilogue::kGeluBackward:
        return each([&](size_t at, Vec x, int n) { store(m.out + at, x * gelu_derivative(load(m.pre + at, n)), n); });
    case Epilogue::kGradient: return each([&](size_t at, Vec x, int n) { store(m.gradient + at, x, n); });
    case Epilogue::kGradientAdd:
        return each([&](size_t at, Vec x, int n) { store(m.gradient + at, load(m.gradient + at, n) + x, n); });
    }
}

// What the epilogue of a tile will read.
INLINE void prefetch_tile(const Matmul& m, int i, int rows, int j) {
    const bool adds = m.epilogue == Epilogue::kGradientAdd;
    if (!adds && m.epilogue != Epilogue::kGeluBackward) return;
    const size_t size = adds ? sizeof(float) : sizeof(floatX);
    const void* read = adds ? static_cast<const void*>(m.gradient) : m.pre;
    const char* from = static_cast<const char*>(read) + (size_t(i) * m.N + j) * size;
    for (int r = 0; r < rows; r++)
        for (size_t c = 0; c < kCols * size; c += 64) __builtin_prefetch(from + size_t(r) * m.N * size + c);
}

// One task: rows and columns of a part. Few rows leave the second-level cache room for several blocks of k of a: these
// go together, and the sums of a panel of b stay in the first-level cache meanwhile.
static void multiply(const Matmul& m, const Part& p, int row, int rows, int col, int cols) {
    const int tall = round_up(p.a.lanes, kRows), block = depth(m.K), together = block * max(1, kTaskRows / rows);
    alignas(64) float tile[kRows * kCols];
    alignas(64) Packed own_panel[kDepth * kCols];

    begin_products();
    for (int first = 0; first < p.deep; first += together)
        for (int j = col; j < col + cols; j += kCols)
            for (int k0 = first; k0 < min(first + together, p.deep); k0 += block) {
                const int k = min(block, p.deep - k0);
                const bool last = p.k + k0 + k == m.K;
                const Packed* b = p.b.packed ? panel_at<true>(p.b, j, k0, k) : own_panel;
                if (b == own_panel) pack_block<true>(own_panel, p.b, j, k0, k);
                const char* next = reinterpret_cast<const char*>(b + k * kCols);    // each tile fetches a part of it
                const int bytes = p.b.packed ? round_up(k * kCols * kRows / rows * int(sizeof(Packed)), 64) : 0;
                for (int i = row; i < row + rows; i += kRows) {
                    const int at_row = p.row + i, at_col = p.col + j, height = min(kRows, p.a.lanes - i);
                    float* sums = p.sums + size_t(j) * tall + size_t(i) * kCols;
                    for (const char* to = next + bytes; next < to; next += 64) __builtin_prefetch(next, 0, 2);
                    if (last) prefetch_tile(m, at_row, height, at_col);
                    const float* before = p.k + k0 > 0 ? sums : nullptr;
                    micro_kernel(last ? tile : sums, before, panel_at<false>(p.a, i, k0, k), b, k);
                    if (last) finish(m, tile, at_row, height, at_col, min(kCols, p.b.lanes - j));
                }
            }
    end_products();
}

// The same with few rows, as in generation: b is read once, as it lies, and each element is a dot product over k.
static void matvec(const Matmul& m, int col, int cols) {
    constexpr int kTogether = 4;
    alignas(64) float results[kCols];
    for (int j = 0; j < cols; j += kCols)
        for (int i = 0; i < m.M; i++) {
            const int n = min(kCols, cols - j);
            const floatX* a = m.a.x + size_t(i) * m.a.ld;
            for (int c = 0; c < n; c += kTogether) {
                Vec sums[kTogether] = {};
                const floatX* b[kTogether];
                for (int t = 0; t < kTogether; t++) b[t] = m.b.x + size_t(col + j + min(c + t, n - 1)) * m.b.ld;
                for (int k = 0; k < m.K; k += kWidth)
                    for (int t = 0; t < kTogether; t++)
                        sums[t] = fma(load(a + k, m.K - k), load(b[t] + k, m.K - k), sums[t]);
                for (int t = 0; t < kTogether; t++) results[c + t] = sum(sums[t]);
            }
            finish(m, results, i, 1, col + j, n);
        }
}

// sums[j] (+)= sum over n of x[n][j] for the kLine columns from col on; blocks of 256 rows, then the blocks in order.
constexpr int kLine = 64;           // whole cache lines
static void column_sums(float* sums, const floatX* x, int N, int C, int col, bool accumulate) {
    constexpr int kVecs = kLine / kWidth;
    const int cols = min(kLine, C - col);
    Vec total[kVecs] = {};
    for (int row = 0; row < N; row += 256) {
        Vec block[kVecs] = {};
        for (int i = row; i < min(row + 256, N); i++)
            for (int t = 0; t < kVecs; t++)
                if (t * kWidth < cols) block[t] += load(x + size_t(i) * C + col + t * kWidth, cols - t * kWidth);
        for (int t = 0; t < kVecs; t++) total[t] += block[t];
    }
    for (int t = 0; t * kWidth < cols; t++) {
        const int left = cols - t * kWidth;
        float* to = sums + col + t * kWidth;
        store(to, accumulate ? load(to, left) + total[t] : total[t], left);
    }
}

// ------------------------------------------------------------------------------------------------- cutting into tasks

constexpr int kFewRows = 4;         // packing the weights would cost more than it saves

// `all` in equal pieces of at most `most`, multiples of unit.
static int piece(int all, int most, int unit) { return round_up(ceil_div(all, ceil_div(all, max(most, unit))), unit); }

// Cuts a part into tasks, by the number of threads. Few rows stay together: each task then packs the columns of b that
// it alone reads. Many are cut so that two blocks of k fit the second-level cache.
struct Cut { int rows, cols; };
static Cut cut(int M, int N) {
    const int wanted = get_threads() == 1 ? 1 : 4 * get_threads();
    const bool few = M <= kTaskRows;
    int rows = few ? kTaskRows : kTaskRows / 2, cols = kTaskCols;
    while (ceil_div(M, rows) * ceil_div(N, cols) < wanted && (rows > 4 * kRows || cols > 4 * kCols))
        ((few || rows < cols) && cols > 4 * kCols ? cols : rows) /= 2;
    return {piece(M, rows, kRows), piece(N, cols, kCols)};
}

static void pack_part(const Part& p, int block, bool pack_a, bool pack_b) {
    const auto lanes = [&](const Operand& o, int unit) {        // of a task: whole cache lines
        return round_up(max(o.rows ? 1 : 48, kTaskElements / p.deep), unit);
    };
    const int a_lanes = lanes(p.a, kRows), b_lanes = lanes(p.b, kCols);
    const int a_tasks = pack_a ? ceil_div(p.a.lanes, a_lanes) : 0, b_tasks = pack_b ? ceil_div(p.b.lanes, b_lanes) : 0;
    parallel_for(a_tasks + b_tasks, [&](int i) {
        const int row = i * a_lanes, col = (i - a_tasks) * b_lanes;
        if (i < a_tasks) pack<false>(p.a, p.deep, block, row, min(a_lanes, p.a.lanes - row));
        else pack<true>(p.b, p.deep, block, col, min(b_lanes, p.b.lanes - col));
    });
}

// The output in parts whose packed operands stay small beside the weights.
static void run_matmul(const Matmul& m) {
    CHECK(m.N % 8 == 0 && (m.K % 8 == 0 || !(m.a.rows || m.b.rows)), "matmul: %d x %d x %d, want multiples of 8",
          m.M, m.N, m.K);
    if (m.M <= 0) return;
    if (m.a.rows && m.b.rows && m.M <= kFewRows) {
        const int cols = round_up(max(1, 65536 / m.K), kCols);
        parallel_for(ceil_div(m.N, cols), [&](int task) { matvec(m, task * cols, min(cols, m.N - task * cols)); });
        return;
    }
    constexpr int kLanes = 2048, kBlocks = 8;                   // rows or columns, and blocks of k, of a part
    const int rows = piece(m.M, kLanes, kRows), cols = piece(m.N, kLanes, kCols), deep = min(m.K, kBlocks * depth(m.K));
    const Cut task = cut(rows, cols);
    const bool pack_b = task.rows < rows, whole_k = deep == m.K;
    const auto floats = [&](int lanes) {                        // of a packed operand, in whole cache lines
        return (size_t(lanes) * round_up(deep, kStep) * sizeof(Packed) + 63) / 64 * 16;
    };
    const size_t a_floats = floats(rows), b_floats = pack_b ? floats(cols) : 0;
    float* buffer = caller_buffer(a_floats + b_floats + size_t(rows) * cols);
    Packed* const a = reinterpret_cast<Packed*>(buffer);
    Packed* const b = pack_b ? reinterpret_cast<Packed*>(buffer + a_floats) : nullptr;
    for (int row = 0; row < m.M; row += rows)
        for (int col = 0; col < m.N; col += cols)
            for (int k = 0; k < m.K; k += deep) {
                const Part p = {part_of(m.a, row, min(rows, m.M - row), k, a),
                                part_of(m.b, col, min(cols, m.N - col), k, b), row, col, k, min(deep, m.K - k),
                                buffer + a_floats + b_floats};
                const bool a_there = col > 0 && whole_k, b_there = row > 0 && whole_k && cols >= m.N;
                pack_part(p, depth(m.K), !a_there, pack_b && !b_there);
                const int row_tasks = ceil_div(p.a.lanes, task.rows);
                parallel_for(row_tasks * ceil_div(p.b.lanes, task.cols), [&](int t) {
                    const int i = t % row_tasks * task.rows, j = t / row_tasks * task.cols;
                    multiply(m, p, i, min(task.rows, p.a.lanes - i), j, min(task.cols, p.b.lanes - j));
                });
            }
}

// pre null: without gelu.
static void matmul_gelu_forward(floatX* out, floatX* pre, const floatX* inp, const floatX* weight, const floatX* bias,
                                int N, int C, int OC, Stream) {
    run_matmul({.a = {inp, C, true}, .b = {weight, C, true}, .M = N, .N = OC, .K = C,
                .epilogue = pre ? Epilogue::kGelu : Epilogue::kStore, .out = out, .pre = pre, .bias = bias});
}

static void matmul_forward(floatX* out, const floatX* inp, const floatX* weight, const floatX* bias, int N, int C,
                           int OC, Stream s) {
    matmul_gelu_forward(out, nullptr, inp, weight, bias, N, C, OC, s);
}

static void gelu_forward(floatX* out, const floatX* pre, size_t n, Stream) {
    for_elements(n, [&](size_t begin, size_t count) {
        for (size_t i = begin; i < begin + count; i += kWidth) {
            const int left = int(begin + count - i);
            store(out + i, gelu(load(pre + i, left)), left);
        }
    });
}

// pre null: without gelu'.
static void matmul_gelu_backward_input(floatX* dpre, const floatX* dout, const floatX* weight, const floatX* pre,
                                       int N, int C, int OC, Stream) {
    run_matmul({.a = {dout, OC, true}, .b = {weight, C, false}, .M = N, .N = C, .K = OC,
                .epilogue = pre ? Epilogue::kGeluBackward : Epilogue::kStore,
                .out = dpre, .pre = const_cast<floatX*>(pre)});
}

static void matmul_backward_input(floatX* dinp, const floatX* dout, const floatX* weight, int N, int C, int OC,
                                  Stream s) {
    matmul_gelu_backward_input(dinp, dout, weight, nullptr, N, C, OC, s);
}

static void matmul_backward_params(float* dweight, float* dbias, const floatX* dout, const floatX* inp, int N, int C,
                                   int OC, bool accumulate, Stream) {
    run_matmul({.a = {dout, OC, false}, .b = {inp, C, false}, .M = OC, .N = C, .K = N,
                .epilogue = accumulate ? Epilogue::kGradientAdd : Epilogue::kGradient, .gradient = dweight});
    if (!dbias) return;
    parallel_for(ceil_div(OC, kLine), [&](int task) { column_sums(dbias, dout, N, OC, task * kLine, accumulate); });
}

}  // namespace BACKEND::ISA
