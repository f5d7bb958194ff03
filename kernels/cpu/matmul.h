// matmul.h -- matmuls: packs the operands, splits the work into tasks, and applies the epilogue:
// bias, GELU, "+=".
//
// An element's products are added one after another, by fused multiply-adds. k is split into blocks
// of kDepth, and a block continues with the sums of the block before: so blocks, tasks, tiles and
// vector widths do not change the bits. AMX, AVX512-BF16 and matvec have other orders; x86 without
// AVX2 rounds the products.
//
// A task computes a strip of the output, which is cut along its longer side. It packs the strip's
// operand, which then stays in the second-level cache of its core. Every task reads all of the
// other operand, packed.
#pragma once
#include "kernels/cpu/micro.h"

namespace BACKEND::ISA {

// out[i][j] = epilogue( sum_k a[i][k] b[k][j] ), i < M, j < N, k < K.
enum class Epilogue { kStore, kGelu, kGeluBackward, kGradient, kGradientAdd };
struct Operand {
    const floatX* x;
    int ld;
    bool rows;    // lane i (row of a, column of b) is at x + i * ld; else k is at x + k * ld
};
struct Matmul {
    Operand a, b;
    int M, N, K;
    Epilogue epilogue;
    // (M,N) kStore: sum + bias; kGelu: gelu(pre); kGeluBackward: sum * gelu'(pre)
    floatX* out = nullptr;
    floatX* pre = nullptr;          // (M,N) kGelu: written, sum + bias; kGeluBackward: read
    const floatX* bias = nullptr;   // (N)
    float* gradient = nullptr;      // (M,N) instead of out: kGradient "=", kGradientAdd "+="
};

constexpr int kDepth = 768;    // k of a block: an operand's panel stays in L1 or L2
constexpr int kCacheBytes = (kWidth == 16 ? 896 : 448) << 10;   // most of 1 MiB or 512 KiB of L2

// An operand. Its lanes are the rows of a or the columns of b; a panel has `unit` lanes.
struct Side {
    const Operand& x;
    int lanes;
    bool of_b;
    int unit = of_b ? kCols : kRows;
};

// Packs `lanes` lanes from `first` on, for k from k0 to k0 + k - 1. If lanes are side by side in
// memory, it packs 2 * kStep k of all panels and then the next 2 * kStep k, because a cache line
// holds lanes of several panels.
template <bool kOfB>
static void pack(Packed* to, const Side& s, int first, int lanes, int k0, int k) {
    const int piece = s.x.rows ? k : 2 * kStep;
    const size_t ld = size_t(s.x.ld);
    for (int at = 0; at < k; at += piece)
        for (int i = 0; i < lanes; i += s.unit) {
            Packed* const panel = to + size_t(i) * round_up(k, kStep) + size_t(at) * s.unit;
            const int lane = first + i, left = s.lanes - lane, n = min(piece, k - at);
            if (s.x.rows) pack_panel<kOfB, true>(panel, s.x.x + lane * ld + k0 + at, ld, left, n);
            else pack_panel<kOfB, false>(panel, s.x.x + (k0 + at) * ld + lane, ld, left, n);
        }
}
static void pack(Packed* to, const Side& s, int first, int lanes, int k0, int k) {
    if (s.of_b) pack<true>(to, s, first, lanes, k0, k);
    else pack<false>(to, s, first, lanes, k0, k);
}

// Applies the epilogue to a tile of complete sums and stores it: rows x cols of the output from
// (i, j) on. m is a copy, because a store of vectors could change what a reference refers to, and
// its members would be read again after each.
static void finish(const Matmul m, const float* tile, int i, int rows, int j, int cols) {
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
    floatX *const out = m.out, *const pre = m.pre;
    float* const sums = m.gradient;
    switch (m.epilogue) {
    case Epilogue::kStore: return each([&](size_t at, Vec x, int n) { store(out + at, x, n); });
    case Epilogue::kGelu:
        return each([&](size_t at, Vec x, int n) {
            store(pre + at, x, n);
            store(out + at, gelu(stored(pre, x)), n);  // of pre as stored: backward reads that
        });
    case Epilogue::kGeluBackward:
        return each([&](size_t at, Vec x, int n) {
            store(out + at, x * gelu_derivative(load(pre + at, n)), n);
        });
    case Epilogue::kGradient: return each([&](size_t at, Vec x, int n) { store(sums + at, x, n); });
    case Epilogue::kGradientAdd:
        return each([&](size_t at, Vec x, int n) { store(sums + at, load(sums + at, n) + x, n); });
    }
}

// Prefetches one array that the epilogue of a tile reads or writes: gradient, pre or out.
INLINE void prefetch_tile(const Matmul& m, int i, int rows, int j) {
    const size_t size = m.gradient ? sizeof(float) : sizeof(floatX), stride = size_t(m.N) * size;
    const floatX* const stored = m.epilogue == Epilogue::kGeluBackward ? m.pre : m.out;
    const void* const x = m.gradient ? static_cast<const void*>(m.gradient) : stored;
    const char* row = static_cast<const char*>(x) + size_t(i) * stride + size_t(j) * size;
    for (int r = 0; r < rows; r++, row += stride)
        for (size_t c = 0; c < kCols * size; c += 64) __builtin_prefetch(row + c, 1);
}

// Block is one block of k of a product. A task has a strip of `own`; numbers of panels in strips
// differ by at most 1.
struct Block {
    const Matmul& m;
    const Side &own, &other;
    int strips;
    bool lying;             // whole panels of `own` are read where they lie
    float* sums;  // [panel of b][panel of a][kRows][kCols]: sums of the blocks of k before this one
    int k0 = 0, k = 0;
};

// others: `other`, packed: [panel][k][lane]
static void multiply(const Block& block, const Packed* others, int task) {
    const Matmul& m = block.m;
    const Side &own = block.own, &other = block.other;
    const int k = block.k, depth = round_up(k, kStep), panels = ceil_div(own.lanes, own.unit);
    const auto begin = [&](int strip) { return strip * panels / block.strips * own.unit; };
    const int first = begin(task), lanes = min(begin(task + 1), own.lanes) - first,
              lying = block.lying ? lanes / own.unit * own.unit : 0,
              fetched = k / kOf<Packed> / 4 * 64;
    const bool last = block.k0 + k == m.K;
    const size_t tall = size_t(round_up(m.M, kRows)),
                 bytes = size_t(other.unit) * depth * sizeof(Packed);
    alignas(64) float tile[kRows * kCols];
    Packed* const packed =
        reinterpret_cast<Packed*>(thread_buffer(size_t(round_up(lanes - lying, own.unit)) * depth));
    pack(packed, own, first + lying, lanes - lying, block.k0, k);
    begin_products();
    for (int o = 0; o < other.lanes; o += other.unit) {
        const Packed* const theirs = others + size_t(o) * depth;
        // The offset in the panel after theirs from which the next tile prefetches
        size_t ahead = 0;
        for (int w = 0; w < lanes; w += own.unit, ahead = (ahead + fetched) % bytes) {
            const size_t ld = w < lying ? size_t(own.x.ld) : 0;
            const Packed* const mine =
                ld > 0 ? reinterpret_cast<const Packed*>(own.x.x + size_t(first + w) * ld)
                       : packed + size_t(w - lying) * depth;
            const Packed *const a = own.of_b ? theirs : mine, *const b = own.of_b ? mine : theirs;
            const int i = own.of_b ? o : first + w, j = own.of_b ? first + w : o,
                      rows = min(kRows, m.M - i);
            const int cols = min(kCols, m.N - j);
            float* const sums = block.sums + j * tall + size_t(i) * kCols;
            if (last) prefetch_tile(m, i, rows, j);
            if (block.k0 > 0) {
                const float* const next_sums = sums + (own.of_b ? tall : kRows) * kCols;
                for (int s = 0; s < kRows * kCols; s += 16) __builtin_prefetch(next_sums + s);
            }
            micro_kernel(last ? tile : sums, block.k0 > 0 ? sums : nullptr, a, ld, b,
                         reinterpret_cast<const char*>(theirs) + bytes + ahead, k, rows, cols);
            if (last) finish(m, tile, i, rows, j, cols);
        }
    }
    end_products();
}

// Computes few rows, as in generation, without packing. An element is a dot product with partial
// sums (Sums), so its bits differ from a tile's.
static void matvec(const Matmul& m, int col, int cols) {
    alignas(64) float results[kCols];
    for (int j = col; j < col + cols; j += kCols)
        for (int i = 0; i < m.M; i++) {
            const int n = min(kCols, col + cols - j);
            const floatX* a = m.a.x + size_t(i) * m.a.ld;
            for (int c = 0; c < n; c++) {
                const floatX* b = m.b.x + size_t(j + c) * m.b.ld;
                results[c] = sum_products(m.K, [&](int k, int left) { return load(a + k, left); },
                                          [&](int k, int left) { return load(b + k, left); });
            }
            finish(m, results, i, 1, j, n);
        }
}

constexpr int kFewRows = 4;         // for so few rows packing the weights costs more than it saves

// Runs a product. With several threads there are at least 8 strips for each, if there are enough
// panels. A small `other` is packed by each thread for itself: lines that another core wrote take
// longer to read. Then strips may be short, and rows of a that need no conversion are not packed.
static void run_matmul(const Matmul& m) {
    CHECK(m.N % 8 == 0 && (m.K % 8 == 0 || !(m.a.rows || m.b.rows)),
          "matmul: %d x %d x %d, want multiples of 8", m.M, m.N, m.K);
    if (m.M <= 0) return;
    if (m.a.rows && m.b.rows && m.M <= kFewRows) {
        const int cols = round_up(max(1, 65536 / m.K), kCols);  // a task reads 65,536 elements of b
        return parallel_for(ceil_div(m.N, cols),
                            [&](int t) { matvec(m, t * cols, min(cols, m.N - t * cols)); });
    }
    const Side a = {m.a, m.M, false}, b = {m.b, m.N, true}, &own = m.M >= m.N ? a : b,
               &other = m.M >= m.N ? b : a;
    const int depth = min(round_up(m.K, kStep), kDepth), threads = get_threads();
    const size_t others = size_t(round_up(other.lanes, other.unit)) * depth;
    const bool small = others * sizeof(Packed) <= kCacheBytes && own.lanes >= 64 * threads,
               lying = !kTiled && sizeof(floatX) == sizeof(Packed) && small && !own.of_b &&
                       own.x.rows && m.K <= depth;
    const int room = kCacheBytes / (lying ? 32 : small ? 8 : 2) / int(sizeof(Packed)) / depth;
    const int panels = ceil_div(own.lanes, own.unit), least = threads == 1 ? 1 : 8 * threads,
              strips = min(panels, round_up(ceil_div(panels, max(1, room / own.unit)), least));
    const int share = round_up(max(1, kTaskElements / 2 / depth), other.unit);
    const size_t floats = (others * sizeof(Packed) + 63) / 64 * 16;
    const size_t sums = m.K > depth ? size_t(round_up(m.M, kRows)) * round_up(m.N, kCols) : 0;
    float* const buffer = caller_buffer(floats + sums);
    Packed* const shared = small ? nullptr : reinterpret_cast<Packed*>(buffer);
    Block block = {m, own, other, strips, lying, buffer + floats};
    for (; block.k0 < m.K; block.k0 += depth) {
        block.k = min(depth, m.K - block.k0);
        const auto pack_others = [&](Packed* to, int lane, int lanes) {
            pack(to + size_t(lane) * round_up(block.k, kStep), other, lane,
                 min(lanes, other.lanes - lane), block.k0, block.k);
        };
        if (shared) parallel_for(ceil_div(other.lanes, share),
                                 [&](int i) { pack_others(shared, i * share, share); });
        int next = 0;
        parallel_for(threads, [&](int) {
            Packed* packed = shared;
            for (int task; (task = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED)) < strips;) {
                if (!packed) {
                    packed = reinterpret_cast<Packed*>(thread_buffer(others, 1));
                    pack_others(packed, 0, other.lanes);
                }
                multiply(block, packed, task);
            }
        });
    }
}

// If pre is null, gelu is left out.
static void matmul_gelu_forward(floatX* out, floatX* pre, const floatX* inp, const floatX* weight,
                                const floatX* bias, int N, int C, int OC, Stream) {
    run_matmul({.a = {inp, C, true}, .b = {weight, C, true}, .M = N, .N = OC, .K = C,
                .epilogue = pre ? Epilogue::kGelu : Epilogue::kStore,
                .out = out, .pre = pre, .bias = bias});
}

static void matmul_forward(floatX* out, const floatX* inp, const floatX* weight, const floatX* bias,
                           int N, int C, int OC, Stream s) {
    matmul_gelu_forward(out, nullptr, inp, weight, bias, N, C, OC, s);
}

static void gelu_forward(floatX* out, const floatX* pre, size_t n, Stream) {
    for_elements(n, [&](size_t begin, size_t count) {
        for_vectors(int(count), [&](int i, int left) {
            store(out + begin + i, gelu(load(pre + begin + i, left)), left);
        });
    });
}

// If pre is null, the factor gelu' is left out.
static void matmul_gelu_backward_input(floatX* dpre, const floatX* dout, const floatX* weight,
                                       const floatX* pre, int N, int C, int OC, Stream) {
    run_matmul({.a = {dout, OC, true}, .b = {weight, C, false}, .M = N, .N = C, .K = OC,
                .epilogue = pre ? Epilogue::kGeluBackward : Epilogue::kStore,
                .out = dpre, .pre = const_cast<floatX*>(pre)});
}

static void matmul_backward_input(floatX* dinp, const floatX* dout, const floatX* weight, int N,
                                  int C, int OC, Stream s) {
    matmul_gelu_backward_input(dinp, dout, weight, nullptr, N, C, OC, s);
}

constexpr int kLine = 64;           // columns of a task of column_sums: whole cache lines
// sums[j] (+)= sum over n of x[n][j] for kLine columns from col on.
static void column_sums(float* sums, const floatX* x, int N, int C, int col, bool accumulate) {
    constexpr int kVecs = kLine / kWidth;
    const int cols = min(kLine, C - col);
    Vec total[kVecs] = {};
    for (int n = 0; n < N; n++)
        for (int t = 0; t < kVecs; t++)
            if (t * kWidth < cols)
                total[t] += load(x + size_t(n) * C + col + t * kWidth, cols - t * kWidth);
    for (int t = 0; t * kWidth < cols; t++) {
        const int left = cols - t * kWidth;
        float* const to = sums + col + t * kWidth;
        store(to, accumulate ? load(to, left) + total[t] : total[t], left);
    }
}

static void matmul_backward_params(float* dweight, float* dbias, const floatX* dout,
                                   const floatX* inp, int N, int C, int OC, bool accumulate,
                                   Stream) {
    if (N > 0)
        run_matmul({.a = {dout, OC, false}, .b = {inp, C, false}, .M = OC, .N = C, .K = N,
                    .epilogue = accumulate ? Epilogue::kGradientAdd : Epilogue::kGradient,
                    .gradient = dweight});
    else if (!accumulate) memset(dweight, 0, size_t(OC) * C * sizeof(float));
    if (!dbias) return;
    parallel_for(ceil_div(OC, kLine), [&](int task) {
        column_sums(dbias, dout, N, OC, task * kLine, accumulate);
    });
}

}  // namespace BACKEND::ISA
