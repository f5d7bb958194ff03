// matmul.cu -- the matrix products of forward and backward, on the tensor cores of every GPU since sm_80.
//
//   forward     out  = inp weight^T + bias        sum over C         inp K-major, weight K-major
//   backward    dinp = dout weight                sum over OC        dout K-major, weight MN-major
//               dweight (+)= dout^T inp           sum over N         both MN-major
//               dbias (+)= column sums of dout
//
//   gelu_forward, of a number alone, is here because it must give the bits of the product's epilogue.
//
//   All are one kernel: out(m, n) = sum over k of A(m, k) B(n, k). An operand is K-major (neighbours in memory are neighbours in k) or
//   MN-major; ldmatrix transposes on the way to the registers, so both cost the same. What happens to a sum: epilogue.cuh.
//
//   Traffic    2 M N K flops. A tile of 128 x 256 moves 24 bytes from L2 per 1024 multiply-adds, what an A100's multiprocessor does in a
//              cycle; 128 x 128 moves 32, which is near what the L2 of an A100 or H100 can give to all of them.
//   Precision  bf16 x bf16 in fp32 accumulators, which start at the bias; one rounding at the store. An element's sum runs through k in
//              steps of 16, from 0 up, whatever the tile: the tile does not show in the bits (but in dbias's), the splitting of k does.
//   Splitting  dweight has few tiles and a long k: 768 x 768 is 18 tiles, for 100 multiprocessors and more. So several blocks take a part of
//              k each and write fp32 partial sums, which a second kernel adds in order. Tile and split are functions of M, N, K alone.
//   dbias      falls out of dweight's product: every warp has dout in its registers, and one more mma with a matrix of ones sums it over
//              16 k. The warps that hold the same rows take turns, step by step, and leave partial sums as well: 12 % more mma for the
//              warp whose turn it is. A kernel that reads dout once more would move N OC 2 bytes: 200 MB at N = 32768, OC = 3072.
//   Emulated   tests/emu runs all of it; a shape picks its tile, so the large tile needs an output like 514 x 3464, and a split of k N >= 400.
//   Hopper     more than 64 rows there go to matmul_sm90.cu, where its tiles are cheaper by the count of cycles below.
//   See        kernels.h (contract), epilogue.cuh, ref.cpp (specification), tests/test_kernels.cpp.
#include "common.h"
#include "kernels.h"
#include "matmul_plan.cuh"
#include <algorithm>

namespace BACKEND {

namespace {

// A block owns BM x BN of the output, WM x WN warps share it; STAGES tiles of BK k are in shared memory or on their way to it.
template <int BM_, int BN_, int BK_, int WM_, int WN_, int STAGES_, int BLOCKS_> struct Tile {
    static constexpr int BM = BM_, BN = BN_, BK = BK_, WM = WM_, WN = WN_, STAGES = STAGES_;
    static constexpr int kThreads = WM * WN * 32, kBlocks = BLOCKS_;              // blocks of a multiprocessor that registers must allow
    static constexpr int kStage = (BM + BN) * BK;                               // elements
    static constexpr size_t kBytes = size_t(STAGES) * kStage * sizeof(bf16);
    static constexpr int MT = BM / WM / 16, NT = BN / WN / 8;                     // a warp's accumulators: MT x NT pieces of 16 x 8
};
// 96 KB, 48 KB and 48 KB: sm_86, 89 and 120 give a block 99 KB and all blocks of a multiprocessor 100. Warps own 64 x 64 where there is
// work for all: fewer bytes of shared memory per mma than any smaller piece.
using Large = Tile<128, 256, 32, 2, 4, 4, 1>;
using Medium = Tile<128, 128, 32, 2, 2, 3, 2>;
using Small = Tile<64, 64, 64, 2, 2, 3, 2>;

// One operand of a block: SIZE of its rows (m or n) by BK of k, in shared memory as lines of 16-byte chunks. A line runs along k, or,
// where the operand is MN-major, along mn. ldmatrix reads chunks of eight lines at once: they are moved about within their line so that
// the eight lie in different banks.
template <bool MN, int SIZE, int BK, int THREADS> struct Operand {
    static constexpr int kChunks = (MN ? SIZE : BK) / 8;                        // of a line
    static constexpr int kLines = THREADS / kChunks;                            // that the block fetches at once
    static constexpr int kFetches = SIZE * BK / 8 / THREADS;                      // per thread and tile
    static_assert(kLines % 8 == 0 && kChunks >= 4);

    const bf16* src;        // this thread's first chunk of the next tile
    int ld, k, k_end;        // row length; k of that chunk
    int mn, mn_end;          // likewise

    // Where chunk c of line i is, in elements. With 4 chunks two lines share the 128 bytes that all banks have.
    static DEVICE int at(int i, int c) { return (i * kChunks + (c ^ (kChunks == 4 ? i / 2 % 4 : i % 8))) * 8; }

    DEVICE Operand(const bf16* base, int ld, int mn0, int mn_end, int k0, int k_end) : ld(ld), k_end(k_end), mn_end(mn_end) {
        const int line = int(threadIdx.x) / kChunks, chunk = int(threadIdx.x) % kChunks;
        k = k0 + (MN ? line : chunk * 8);
        mn = mn0 + (MN ? chunk * 8 : line);
        src = base + (MN ? size_t(k) * size_t(ld) + size_t(mn) : size_t(mn) * size_t(ld) + size_t(k));
    }
    // Starts the copy of the next tile. Outside of the matrix there are zeros, which add nothing.
    DEVICE void fetch(bf16* tile) {
        const int line = int(threadIdx.x) / kChunks, chunk = int(threadIdx.x) % kChunks;
        UNROLL for (int i = 0; i < kFetches; i++) {
            const bool valid = MN ? mn < mn_end && k + i * kLines < k_end : mn + i * kLines < mn_end && k < k_end;
            cp_async16(tile + at(line, chunk) + i * kLines * kChunks * 8, src + size_t(i * kLines) * size_t(ld), valid);
        }
        k += BK;
        src += MN ? size_t(BK) * size_t(ld) : size_t(BK);
    }
    // The 16 x 16 elements from (mn, k) of the tile on, both multiples of 16, as ldmatrix gives them: lanes 8i .. 8i+7 point at the lines
    // of matrix i. mma wants A as (mn, k), (mn + 8, k), (mn, k + 8), (mn + 8, k + 8), and B with the middle two exchanged.
    template <bool IS_A> static DEVICE void fragment(unsigned (&f)[4], const bf16* tile, int mn, int k) {
        const int lane = int(threadIdx.x) % 32, second = lane / 8 % 2, third = lane / 16;
        mn += (IS_A ? second : third) * 8;
        k += (IS_A ? third : second) * 8;
        if constexpr (MN) ldmatrix_x4<true>(f, tile + at(k + lane % 8, mn / 8));
        else ldmatrix_x4<false>(f, tile + at(mn + lane % 8, k / 8));
    }
};

// One block per tile and part of k; blockIdx.x counts tiles, blockIdx.y parts of `part` k (a multiple of BK) each. Epilogue as in
// epilogue.cuh; StoreFloat's `out` has an array for every part. row_sums, if not null: array part * turns + t gets the sums of A's rows
// over the steps of turn t.
//
// Two pipelines: cp.async brings the tiles of the next STAGES - 1 steps to shared memory, and while the tensor cores work on 16 k the
// fragments of the next 16 go from there to registers. One barrier per step: before the last 16 k of step s are multiplied, all warps
// have their fragments of step s, so its stage is free, and the tile of step s + 1 is there.
template <class T, bool TA, bool TB, class Epilogue>
__global__ void __launch_bounds__(T::kThreads, T::kBlocks)
matmul_kernel(const bf16* A, const bf16* B, Epilogue epilogue, float* row_sums, int M, int N, int K, int part) {
    using OperandA = Operand<TA, T::BM, T::BK, T::kThreads>;
    using OperandB = Operand<TB, T::BN, T::BK, T::kThreads>;
    constexpr bool kSplits = TA;                                               // dweight
    constexpr int kSteps16 = T::BK / 16;
    static_assert(kSteps16 >= 2 && T::MT * 16 * T::WM == T::BM && T::NT % 4 == 0);
    DYNAMIC_SHARED(raw);
    bf16* const shared = reinterpret_cast<bf16*>(raw);
    grid_dependency_sync();

    const int tiles_n = div_up(N, T::BN);
    const Place place = place_of(int(blockIdx.x), div_up(M, T::BM), tiles_n);
    const int m0 = place.m * T::BM, n0 = place.n * T::BN;
    const int k0 = int(blockIdx.y) * part, k_end = K - k0 < part ? K : k0 + part, steps = div_up(k_end - k0, T::BK);
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
    const int wm = warp / T::WN * (T::BM / T::WM), wn = warp % T::WN * (T::BN / T::WN);    // the warp's corner of the tile

    OperandA a(A, TA ? M : K, m0, M, k0, k_end);
    OperandB b(B, TB ? N : K, n0, N, k0, k_end);
    const auto fetch = [&](int step) {
        if (step < steps) {
            bf16* const stage = shared + step % T::STAGES * T::kStage;
            a.fetch(stage);
            b.fetch(stage + T::BM * T::BK);
        }
        cp_async_commit();                                                     // an empty group too: waiting counts groups
    };

    unsigned fa[2][T::MT][4], fb[2][T::NT / 2][4];
    const auto load_fragments = [&](int buffer, int step, int k) {
        const bf16* const stage = shared + step % T::STAGES * T::kStage;
        UNROLL for (int x = 0; x < T::MT; x++) OperandA::template fragment<true>(fa[buffer][x], stage, wm + x * 16, k);
        UNROLL for (int y = 0; y < T::NT / 2; y++)
            OperandB::template fragment<false>(fb[buffer][y], stage + T::BM * T::BK, wn + y * 16, k);
    };

    // The warps of all tiles with these rows take turns at summing them; those beyond kTurns have none.
    const int turns = tiles_n * T::WN < kTurns ? tiles_n * T::WN : kTurns, turn = place.n * T::WN + warp % T::WN;
    const bool sums_rows = kSplits && row_sums && turn < turns;
    int until_turn = turn;                                                     // steps
    float sums[T::MT][4] = {};
    const unsigned ones[2] = {0x3f803f80u, 0x3f803f80u};

    for (int s = 0; s < T::STAGES - 1; s++) fetch(s);
    float acc[T::MT][T::NT][4];
    start_sums(acc, epilogue, n0 + wn);
    cp_async_wait<T::STAGES - 2>();
    __syncthreads();
    load_fragments(0, 0, 0);
    for (int step = 0; step < steps; step++) {
        const bool my_turn = kSplits && sums_rows && until_turn == 0;
        if constexpr (kSplits) until_turn = until_turn == 0 ? turns - 1 : until_turn - 1;
        UNROLL for (int i = 0; i < kSteps16; i++) {
            if (i == kSteps16 - 1) {
                cp_async_wait<T::STAGES - 2>();
                __syncthreads();
                load_fragments(0, step + 1, 0);                                // behind the last step: nothing that is used
            } else {
                load_fragments((i + 1) % 2, step, (i + 1) * 16);
            }
            if (i == 0) fetch(step + T::STAGES - 1);
            UNROLL for (int x = 0; x < T::MT; x++)
                UNROLL for (int y = 0; y < T::NT; y++)
                    mma_m16n8k16(acc[x][y], fa[i % 2][x], {fb[i % 2][y / 2][y % 2 * 2], fb[i % 2][y / 2][y % 2 * 2 + 1]});
            if constexpr (kSplits)
                if (my_turn) UNROLL for (int x = 0; x < T::MT; x++) mma_m16n8k16(sums[x], fa[i % 2][x], ones);
        }
    }

    if constexpr (kSplits) {
        epilogue.out += size_t(blockIdx.y) * size_t(M) * size_t(N);
        if (sums_rows && lane % 4 == 0) {                                      // all eight columns are the same
            float* const out = row_sums + (size_t(blockIdx.y) * size_t(turns) + size_t(turn)) * size_t(M);
            UNROLL for (int r = 0; r < 2 * T::MT; r++) {
                const int m = m0 + wm + r * 8 + lane / 4;
                if (m < M) out[m] = sums[r / 2][r % 2 * 2];
            }
        }
    }
    store_sums(acc, epilogue, m0 + wm + lane / 4, n0 + wn);
}

// out (+)= parts[0] + parts[1] + ..., in this order: `count` arrays of n floats, one behind the other. A thread adds four columns, and
// reads eight parts ahead.
__global__ void __launch_bounds__(128) sum_parts_kernel(float* out, const float* parts, int count, size_t n, bool accumulate) {
    grid_dependency_sync();
    const size_t i = (size_t(blockIdx.x) * blockDim.x + threadIdx.x) * 4;
    if (i >= n) return;
    float4 sum = *reinterpret_cast<const float4*>(parts + i);
    for (int first = 1; first < count; first += 8) {
        float4 v[8];
        UNROLL for (int j = 0; j < 8; j++)
            if (first + j < count) v[j] = *reinterpret_cast<const float4*>(parts + size_t(first + j) * n + i);
        UNROLL for (int j = 0; j < 8; j++)
            if (first + j < count) sum = {sum.x + v[j].x, sum.y + v[j].y, sum.z + v[j].z, sum.w + v[j].w};
    }
    float4* const to = reinterpret_cast<float4*>(out + i);
    if (accumulate) sum = {to->x + sum.x, to->y + sum.y, to->z + sum.z, to->w + sum.w};
    *to = sum;
}

// One thread per pack of eight.
__global__ void __launch_bounds__(256) gelu_forward_kernel(bf16* out, const bf16* pre, size_t n) {
    grid_dependency_sync();
    const size_t i = (size_t(blockIdx.x) * blockDim.x + threadIdx.x) * 8;
    if (i >= n) return;
    Pack8 x = load8(pre + i);
    UNROLL for (int j = 0; j < 8; j++) x.x[j] = gelu(x.x[j]);
    store8(out + i, x);
}

// ------------------------------------------------------------------------------------------------ tile and split

// What a tile is good for, estimated: multiply-adds per cycle of a busy multiprocessor, how many blocks (ping-pong: tiles) make it busy, in
// halves, and how many k a tile's begin and end take as long as. The last three are Hopper's.
struct TileTraits { const char* name; int BM, BN, WN, rate, busy_halves, edge; };
constexpr int kPortable = 3;
constexpr TileTraits kTiles[] = {{"large", Large::BM, Large::BN, Large::WN, 900, 2, 80},
                                 {"medium", Medium::BM, Medium::BN, Medium::WN, 800, 3, 80},
                                 {"small", Small::BM, Small::BN, Small::WN, 500, 4, 80},
                                 {"wide", Wide::BM, Wide::BN, 1, 1780, 2, 112},
                                 {"fitting", Fitting::BM, Fitting::BN, 1, 1700, 2, 112},
                                 {"pingpong", PingPong::BM, PingPong::BN, 1, 1680, 3, 24}};

// The cheapest by a rough count of cycles. It knows no machine but whether it is a Hopper, or the split and with it the bits would differ
// from one to the next: 108 multiprocessors (A100) and 132 (H100) stand for all. LOCKSTEP_TILE=NAME takes that tile for every shape, where
// it is to be had: to measure and to test.
Plan choose(int M, int N, int K, int most_parts) {
    Plan best = {};
    int64_t best_cycles = INT64_MAX;
    const int64_t outputs = int64_t(M) * N;
    int first = 0, end = hopper() && M > 64 ? int(std::size(kTiles)) : kPortable;      // few rows: what counts is how many blocks read
    for (int tile = 0; tile < end; tile++)
        if (asked("LOCKSTEP_TILE", kTiles[tile].name)) first = tile, end = tile + 1;
    for (int tile = first; tile < end; tile++) {
        const TileTraits& t = kTiles[tile];
        const int64_t tiles = int64_t(div_up(M, t.BM)) * div_up(N, t.BN);
        for (int wanted = 1; wanted <= most_parts; wanted++) {
            const int part = div_up(div_up(K, wanted), 64) * 64, parts = div_up(K, part);
            if (parts != wanted || (parts > 1 && parts * outputs > int64_t(1) << 25)) continue;      // 128 MB of partial sums
            int64_t cycles = 0;
            for (const int processors : {tile < kPortable ? 108 : 132, 132}) {
                const int64_t halves = std::max<int64_t>(t.busy_halves, 2 * div_up<int64_t>(tiles * parts, processors));
                cycles += halves * t.BM * t.BN * (part + t.edge) / t.rate;
            }
            if (parts > 1) cycles += 4 * (5000 + parts * outputs * 8 / 1500);      // a launch; partial sums written and read
            if (cycles >= best_cycles) continue;
            best = {tile, part, parts, std::min(kTurns, div_up(N, t.BN) * t.WN)};
            best_cycles = cycles;
        }
    }
    return best;
}

template <bool TA, bool TB, class T, class Epilogue>
void run_tile(const bf16* A, const bf16* B, const Epilogue& epilogue, float* row_sums, int M, int N, int K, const Plan& plan, Stream stream) {
    const dim3 grid(unsigned(div_up(M, T::BM)) * unsigned(div_up(N, T::BN)), unsigned(plan.parts));
    launch(matmul_kernel<T, TA, TB, Epilogue>, grid, T::kThreads, T::kBytes, stream, A, B, epilogue, row_sums, M, N, K, plan.part);
}
template <bool TA, bool TB, class Epilogue>
void run(const bf16* A, const bf16* B, const Epilogue& epilogue, float* row_sums, int M, int N, int K, const Plan& plan, Stream stream) {
    constexpr decltype(&run_tile<TA, TB, Small, Epilogue>) kRun[] = {       // in the order of kTiles
        run_tile<TA, TB, Large>, run_tile<TA, TB, Medium>, run_tile<TA, TB, Small>,
        run_sm90<TA, TB, Wide>, run_sm90<TA, TB, Fitting>, run_sm90<TA, TB, PingPong>};
    kRun[plan.tile](A, B, epilogue, row_sums, M, N, K, plan, stream);
}

void check(const char* op, int N, int C, int OC) {
    CHECK(N > 0 && C > 0 && OC > 0 && C % 8 == 0 && OC % 8 == 0, "%s: N %d, C %d, OC %d: want C and OC multiples of 8", op, N, C, OC);
}

void sum_parts(float* out, const float* parts, int count, size_t n, bool accumulate, Stream stream) {
    launch(sum_parts_kernel, unsigned(div_up(n, size_t(512))), 128, 0, stream, out, parts, count, n, accumulate);
}

}  // namespace

void matmul_forward(floatX* out, const floatX* inp, const floatX* weight, const floatX* bias, int N, int C, int OC, Stream stream) {
    check("matmul_forward", N, C, OC);
    const Store epilogue = {out, bias, {N, OC}};
    run<false, false>(inp, weight, epilogue, nullptr, N, OC, C, choose(N, OC, C, 1), stream);
}

void matmul_gelu_forward(floatX* out, floatX* pre, const floatX* inp, const floatX* weight, const floatX* bias,
                         int N, int C, int OC, Stream stream) {
    check("matmul_gelu_forward", N, C, OC);
    const StoreGelu epilogue = {out, {pre, bias, {N, OC}}};
    run<false, false>(inp, weight, epilogue, nullptr, N, OC, C, choose(N, OC, C, 1), stream);
}

void gelu_forward(floatX* out, const floatX* pre, size_t n, Stream stream) {
    CHECK(n % 8 == 0, "gelu_forward: %zu elements, want a multiple of 8", n);
    if (n) launch(gelu_forward_kernel, unsigned(div_up(n, size_t(2048))), 256, 0, stream, out, pre, n);
}

void matmul_backward_input(floatX* dinp, const floatX* dout, const floatX* weight, int N, int C, int OC, Stream stream) {
    check("matmul_backward_input", N, C, OC);
    const Store epilogue = {dinp, nullptr, {N, C}};
    run<false, true>(dout, weight, epilogue, nullptr, N, C, OC, choose(N, C, OC, 1), stream);
}

void matmul_gelu_backward_input(floatX* dpre, const floatX* dout, const floatX* weight, const floatX* pre, int N, int C, int OC,
                                Stream stream) {
    check("matmul_gelu_backward_input", N, C, OC);
    const StoreGeluBackward epilogue = {dpre, pre, {N, C}};
    run<false, true>(dout, weight, epilogue, nullptr, N, C, OC, choose(N, C, OC, 1), stream);
}

void matmul_backward_params(float* dweight, float* dbias, const floatX* dout, const floatX* inp, int N, int C, int OC,
                            bool accumulate, Stream stream) {
    check("matmul_backward_params", N, C, OC);
    const Plan plan = choose(OC, C, N, 16);
    const bool split = plan.parts > 1;
    const size_t weights = size_t(OC) * size_t(C), parts = size_t(plan.parts);
    const int rows = plan.parts * plan.turns;

    float* memory = nullptr;                                                   // (parts, OC, C) if there are several, then (parts, turns, OC)
    const size_t floats = (split ? parts * weights : 0) + (dbias ? size_t(rows) * size_t(OC) : 0);
    if (floats) memory = static_cast<float*>(scratch(floats * sizeof(float), stream));
    float* const row_sums = dbias ? memory + (split ? parts * weights : 0) : nullptr;

    const StoreFloat epilogue = {split ? memory : dweight, {OC, C}, accumulate && !split};
    run<true, true>(dout, inp, epilogue, row_sums, OC, C, N, plan, stream);
    if (split) sum_parts(dweight, memory, plan.parts, weights, accumulate, stream);
    if (dbias) sum_parts(dbias, row_sums, rows, size_t(OC), accumulate, stream);
}

}  // namespace BACKEND
