// matmul.h -- matmuls: operands packed, tasks, and what follows a sum: bias, GELU, "+=".
//
// k is cut into equal blocks of at most kDepth, by K alone. Within a block an element's products are added in order in
// a register, by fused multiply-adds, then the block's sum to those before: every element sees the same operations
// wherever tasks and tiles are cut, and with every vector width (AMX has a rule of its own).
//
// A task has a strip of the output's longer side. It packs its own operand, which then stays in its second-level cache;
// the other operand is packed once, by all threads, and every task streams it past its own.
#pragma once
#include "kernels/cpu/micro.h"

namespace BACKEND::ISA {

// out[i][j] = epilogue( sum_k a[i][k] b[k][j] ), i < M, j < N, k < K.
enum class Epilogue { kStore, kGelu, kGeluBackward, kGradient, kGradientAdd };
struct Operand {
    const floatX* x;
    int ld;
    bool rows;                      // lane i (row of a, column of b) is at x + i * ld; else k is at x + k * ld
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

constexpr int kDepth = 768, kOwnBytes = (kWidth == 16 ? 448 : 224) << 10;   // of second-level caches of 1 MiB or 512 KiB

// Packs `lanes` lanes from `first` on, products k0 .. k0 + k - 1. Where lanes are side by side in memory, kStep of k for
// all panels and then the next: a cache line holds lanes of several panels.
template <bool kOfB> static void pack(Packed* to, const Operand& o, int first, int lanes, int all, int k0, int k) {
    constexpr int kLanes = kOfB ? kCols : kRows;
    const int piece = o.rows ? k : 2 * kStep;
    const size_t ld = size_t(o.ld);
    for (int at = 0; at < k; at += piece)
        for (int i = 0; i < lanes; i += kLanes) {
            Packed* const panel = to + size_t(i) * round_up(k, kStep) + size_t(at) * kLanes;
            const int lane = first + i, n = min(piece, k - at), left = all - lane;
            if (o.rows) pack_panel<kOfB, true>(panel, o.x + lane * ld + k0 + at, ld, left, n);
            else pack_panel<kOfB, false>(panel, o.x + (k0 + at) * ld + lane, ld, left, n);
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

// What the epilogue of a tile will touch.
INLINE void prefetch_tile(const Matmul& m, int i, int rows, int j) {
    const size_t size = m.gradient ? sizeof(float) : sizeof(floatX), at = size_t(i) * m.N + j;
    const char* to = m.gradient ? reinterpret_cast<const char*>(m.gradient + at)
                                : reinterpret_cast<const char*>((m.epilogue == Epilogue::kGeluBackward ? m.pre : m.out) + at);
    for (int r = 0; r < rows; r++)
        for (size_t c = 0; c < kCols * size; c += 64) __builtin_prefetch(to + size_t(r) * m.N * size + c, 1);
}

// One block of k of a product, while its tasks run.
struct Block {
    const Matmul& m;
    bool own_a;                     // a task packs rows of a; else columns of b
    int k0, k, lanes;               // lanes of a task
    Packed* shared;                 // the other operand, [panel][k][lane]
    float* sums;                    // [panel of b][panel of a][kRows][kCols], of smaller k
};

// Rows of a are read where they lie if packing would pay for few columns only, and if the rows are so close that they
// do not compete for lines of a cache.
static bool direct(const Block& b) {
    return sizeof(floatX) == sizeof(float) && b.own_a && b.m.a.rows && b.m.a.ld <= 512 &&
           b.m.N <= 256;
}

// Task number `task`: its lanes by all of the other operand.
static void multiply(const Block& block, int task) {
    const Matmul& m = block.m;
    const bool own_a = block.own_a, last = block.k0 + block.k == m.K;
    const int k = block.k, depth = round_up(k, kStep), first = task * block.lanes;
    const int all = own_a ? m.M : m.N, other = own_a ? m.N : m.M, lanes = min(block.lanes, all - first);
    const int unit = own_a ? kRows : kCols, other_unit = own_a ? kCols : kRows;
    const int in_place = direct(block) ? lanes / kRows * kRows : 0;
    const int tall = round_up(m.M, kRows);
    alignas(64) float tile[kRows * kCols];
    Packed* const own = reinterpret_cast<Packed*>(thread_buffer(size_t(round_up(block.lanes, unit)) * depth));
    if (own_a) pack<false>(own + size_t(in_place) * depth, m.a, first + in_place, lanes - in_place, m.M, block.k0, k);
    else pack<true>(own, m.b, first, lanes, m.N, block.k0, k);

    begin_products();
    for (int o = 0; o < other; o += other_unit) {
        const Packed* const theirs = block.shared + size_t(o) * depth;
        const char* const after = reinterpret_cast<const char*>(theirs + size_t(other_unit) * depth);
        for (int w = 0; w < lanes; w += unit) {
            const int i = own_a ? first + w : o, j = own_a ? o : first + w, rows = min(kRows, m.M - i);
            const Packed* const mine = own + size_t(w) * depth;
            const size_t fetched = size_t(w / unit) * size_t(k / 4 * 64) % (size_t(other_unit) * depth * sizeof(Packed));
            float* const sums = block.sums + size_t(j) * tall + size_t(i) * kCols;
            const float* const before = block.k0 > 0 ? sums : nullptr;
            Panel a = {own_a ? mine : theirs};
            if (w < in_place) a = rows_of(m.a.x + size_t(i) * m.a.ld + block.k0, m.a.ld);
            if (last) prefetch_tile(m, i, rows, j);
            micro_kernel(last ? tile : sums, before, a, own_a ? theirs : mine, after + fetched, k, rows);
            if (last) finish(m, tile, i, rows, j, min(kCols, m.N - j));
        }
    }
    end_products();
}

// The same with few rows, as in generation: b is read once, as it lies, and each element is a dot product over k.
static void matvec(const Matmul& m, int col, int cols) {
    alignas(64) float results[kCols];
    for (int j = col; j < col + cols; j += kCols)
        for (int i = 0; i < m.M; i++) {
            const int n = min(kCols, col + cols - j);
            const floatX* a = m.a.x + size_t(i) * m.a.ld;
            for (int c = 0; c < n; c++) {
                const floatX* b = m.b.x + size_t(j + c) * m.b.ld;
                Sums sums;
                for_parts(m.K, [&](int k, int left, int part) {
                    sums.part[part] = fma(load(a + k, left), load(b + k, left), sums.part[part]);
                });
                results[c] = sums.total();
            }
            finish(m, results, i, 1, j, n);
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

constexpr int kFewRows = 4;         // packing the weights would cost more than it saves

static void run_matmul(const Matmul& m) {
    CHECK(m.N % 8 == 0 && (m.K % 8 == 0 || !(m.a.rows || m.b.rows)), "matmul: %d x %d x %d, want multiples of 8",
          m.M, m.N, m.K);
    if (m.M <= 0) return;
    if (m.a.rows && m.b.rows && m.M <= kFewRows) {
        const int cols = round_up(max(1, 65536 / m.K), kCols);
        parallel_for(ceil_div(m.N, cols), [&](int task) { matvec(m, task * cols, min(cols, m.N - task * cols)); });
        return;
    }
    const bool own_a = m.M >= m.N;
    const int depth = round_up(ceil_div(m.K, ceil_div(m.K, kDepth)), kStep);
    const int all = own_a ? m.M : m.N, unit = own_a ? kRows : kCols, other = own_a ? m.N : m.M;
    const int room = max(unit, kOwnBytes / int(sizeof(Packed)) / depth / unit * unit);
    const int wanted = max(ceil_div(all, room), get_threads() == 1 ? 1 : 4 * get_threads());
    const int lanes = round_up(ceil_div(all, wanted), unit), tasks = ceil_div(all, lanes);
    const int other_unit = own_a ? kCols : kRows;
    const int share = round_up(max(1, kTaskElements / 2 / depth), other_unit), shares = ceil_div(other, share);
    const size_t shared = (size_t(round_up(other, other_unit)) * depth * sizeof(Packed) + 63) / 64 * 16;
    const size_t sums = m.K > depth ? size_t(round_up(m.M, kRows)) * round_up(m.N, kCols) : 0;
    float* const buffer = caller_buffer(shared + sums);
    Block block = {m, own_a, 0, 0, lanes, reinterpret_cast<Packed*>(buffer), buffer + shared};
    for (; block.k0 < m.K; block.k0 += depth) {
        block.k = min(depth, m.K - block.k0);
        parallel_for(shares, [&](int i) {
            const int lane = i * share, n = min(share, other - lane);
            Packed* const to = block.shared + size_t(lane) * round_up(block.k, kStep);
            if (own_a) pack<true>(to, m.b, lane, n, m.N, block.k0, block.k);
            else pack<false>(to, m.a, lane, n, m.M, block.k0, block.k);
        });
        parallel_for(tasks, [&](int task) { multiply(block, task); });
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
        for_vectors(int(count), [&](int i, int left) {
            store(out + begin + i, gelu(load(pre + begin + i, left)), left);
        });
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
