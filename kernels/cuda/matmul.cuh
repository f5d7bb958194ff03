// matmul.cuh -- what matmul.cu (every GPU) and matmul_sm90.cu
// (Hopper) share: tiles, parts of k, and epilogues.
#pragma once
#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include "kernels/cuda/common.cuh"

namespace BACKEND {

// tile: index into matmul.cu's table. part: k of each of the `parts` parts; the last may have
// fewer. turns: see Turns.
struct Plan { int tile, part, parts, turns; };

// A Product is out(m, n) = the sum over k of A(m, k) B(n,
// k). row_sums is null or (parts, turns, M), for dbias.
struct Product {
    const bf16 *A, *B;
    float* row_sums;
    int M, N, K;
    Plan plan;
};

// Tiles are numbered in bands of 16 along m, and within a band down each column. So the
// blocks that run at one time form roughly a square and share operands in the L2 cache.
constexpr int kBand = 16;
struct Place { int m, n; };    // counted in tiles
__device__ inline Place place_of(int tile, int tiles_m, int tiles_n) {
    const int band = tile / (kBand * tiles_n) * kBand,
              height = tiles_m - band < kBand ? tiles_m - band : kBand;
    const int in_band = tile % (kBand * tiles_n);
    return {band + in_band % height, in_band / height};
}

// The first `turns` warps or blocks with the same rows of A,
// which is dout^T, take turns at summing them, for dbias.
constexpr int kTurns = 8;    // at most this many take turns
struct Turns {
    int turn, wait;    // number of this warp or block; steps until its turn
    __device__ Turns(const Product& p, int t)
        : turn(t), wait(p.row_sums && t < p.plan.turns ? t : INT_MAX) {}
    __device__ bool next(const Product& p) {
        const bool mine = wait == 0;
        wait = mine ? p.plan.turns - 1 : wait - 1;
        return mine;
    }
    // Stores sums, laid out as in store_sums. All columns are equal, so the first lane of a quad
    // stores one of them.
    template <int STRIDE, int MT>
    __device__ void store(const Product& p, const float (&sums)[MT][4], int part, int row) const {
        if (!p.row_sums || turn >= p.plan.turns || lane() % 4 != 0) return;
        float* const out = p.row_sums + (size_t(part) * p.plan.turns + turn) * p.M;
        for (int r = 0; r < 2 * MT; r++)
            if (const int m = row + r / 2 * STRIDE + r % 2 * 8; m < p.M)
                out[m] = sums[r / 2][r % 2 * 2];
    }
};

// ------------------------ tiles, and the choice of one

// A block computes BM x BN of the output with WM x WN warps. STAGES tiles of BK k are in shared
// memory or on their way.
template <int BM_, int BN_, int BK_, int WM_, int WN_, int STAGES_, int BLOCKS_> struct Tile {
    static constexpr int BM = BM_, BN = BN_, BK = BK_, WM = WM_, WN = WN_, STAGES = STAGES_;
    // Blocks per SM that registers must allow
    static constexpr int kThreads = WM * WN * 32, kBlocks = BLOCKS_;
    static constexpr int kStage = (BM + BN) * BK;    // elements of a stage
    static constexpr size_t kBytes = STAGES * kStage * sizeof(bf16);
    // How many pieces of 16 x 8 a warp has
    static constexpr int MT = BM / WM / 16, NT = BN / WN / 8;
};
// These take 96, 48 and 48 KB: sm_86, 89 and 120 have 99 KB per block and 100 per multiprocessor. A
// warp computes 64 x 64 if all warps then have work, because smaller pieces read more bytes of
// shared memory per mma.
using Large = Tile<128, 256, 32, 2, 4, 4, 1>;
using Medium = Tile<128, 128, 32, 2, 2, 3, 2>;
using Small = Tile<64, 64, 64, 2, 2, 3, 2>;

// The tiles of matmul_sm90.cu. A block has a warpgroup that loads and
// two that compute: the two halves of one tile, or with PING_PONG a
// tile each in turn, so that one stores while the other multiplies.
template <int BM_, int BN_, int STAGES_, bool PING_PONG> struct TileSm90 {
    static constexpr int BM = BM_, BN = BN_, STAGES = STAGES_;
    static constexpr bool kPingPong = PING_PONG;
    // How many pieces of 64 rows a warpgroup owns
    static constexpr int MT = BM / 64 / (kPingPong ? 1 : 2);
};
using Wide = TileSm90<128, 256, 4, false>;
// For dweight only: 1600 = 10 x 160, 768 = 5 x 160 - 32
using Fitting = TileSm90<128, 160, 5, false>;
using PingPong = TileSm90<128, 128, 6, true>;
template <bool TA, bool TB, class T, class Epilogue>
void run_sm90(const Product& p, const Epilogue& epilogue, Stream stream);

// Estimates for each tile; those for Hopper were measured on an H200 at the clock of a step. rate:
// multiply-adds per cycle of a busy multiprocessor. busy_halves: twice the number of blocks
// (pingpong: tiles) that keep it busy. edge: how many k take as long as the begin and end of a
// tile. The last three tiles are for Hopper.
struct TileTraits {
    const char* name;
    int BM, BN, WN, rate, busy_halves, edge;
    bool only_dweight = false;
};
constexpr int kPortable = 3;
constexpr TileTraits kTiles[] = {
    {"large", 128, 256, Large::WN, 900, 2, 80}, {"medium", 128, 128, Medium::WN, 800, 3, 80},
    {"small", 64, 64, Small::WN, 500, 4, 80},   {"wide", 128, 256, 1, 1780, 2, 128},
    {"fitting", 128, 160, 1, 1650, 2, 112, true}, {"pingpong", 128, 128, 1, 1680, 3, 24}};

// Returns the cheapest plan by a rough count of cycles. It asks only whether the
// machine is a Hopper, because bits must not differ between machines of one kind:
// 108 multiprocessors (A100) and 132 (H100) stand for all. LOCKSTEP_TILE=NAME
// chooses that tile if it is available; this is for tests and bench/gpu.sh.
inline Plan choose(int M, int N, int K, int most_parts) {
    Plan best = {};
    int64_t best_cycles = INT64_MAX;
    const int64_t outputs = int64_t(M) * N;
    // Few rows need many small blocks
    int first = 0, end = hopper() && M > 64 ? std::size(kTiles) : kPortable;
    const char* const asked = std::getenv("LOCKSTEP_TILE");
    const auto available = [&](int tile) { return most_parts > 1 || !kTiles[tile].only_dweight; };
    for (int tile = 0; asked && tile < end; tile++)
        if (available(tile) && !std::strcmp(asked, kTiles[tile].name)) first = tile, end = tile + 1;
    for (int tile = first; tile < end; tile++) {
        if (!available(tile)) continue;
        const TileTraits& t = kTiles[tile];
        const int64_t tiles = int64_t(div_up(M, t.BM)) * div_up(N, t.BN);
        for (int wanted = 1; wanted <= most_parts; wanted++) {
            const int part = div_up(div_up(K, wanted), 64) * 64, parts = div_up(K, part);
            // 128 MB of sums at most
            if (parts != wanted || (parts > 1 && parts * outputs > 1 << 25)) continue;
            // a launch; sums stored, loaded
            int64_t cycles = parts > 1 ? 4 * (5000 + parts * outputs * 8 / 1000) : 0;
            for (const int processors : {tile < kPortable ? 108 : 132, 132}) {
                const int64_t halves = std::max<int64_t>(
                    t.busy_halves, 2 * div_up<int64_t>(tiles * parts, processors));
                cycles += halves * t.BM * t.BN * (part + t.edge) / t.rate;
            }
            if (cycles >= best_cycles) continue;
            best = {tile, part, parts, std::min(kTurns, div_up(N, t.BN) * t.WN)};
            best_cycles = cycles;
        }
    }
    return best;
}

// ------------------------ epilogues

// An epilogue says what becomes of a product's sums: bias, GELU, "=" or "+=". mma.sync and wgmma
// lay out their sums in the same way: of every 8 columns lane t holds columns 2 (t % 4) and
// 2 (t % 4) + 1, in rows t / 4 and t / 4 + 8. An epilogue is a struct of plain data with
//   kStarts             whether something is added to the sums
//   start(n)            returns what is added to columns n and n + 1: two bf16
//   kAhead              whether fetch reads something for every element
//   ahead(m, n)         prefetches for columns n .. n+15 of row m into the L2
//   Old, fetch(m, n)    Old holds what store needs from memory. fetch loads it for columns
//                       n .. n+31 of row m. It is called for many rows, so that the loads overlap
//   store(m, n, v, old) stores columns n .. n+31 of row m. v[2j] and v[2j+1] are the lane's sums
//                       of columns n + 8j + 2 (t % 4) and the next one
// The 32 lanes call these together. Where m or n is outside of the matrix, nothing is read or
// written.

// Extent is the size of the matrix (M,N) that an epilogue writes. N is a multiple of 8.
struct Extent {
    int M, N;
    __device__ bool has(int m, int n) const { return m < M && n < N; }
    __device__ size_t at(int m, int n) const { return size_t(m) * N + n; }
};

// Transposes w in a quad, four neighbouring lanes: w[j] of lane i becomes w[i] of lane j. Before,
// w[j] is the lane's pair of columns in the j-th group of 8 columns. After, a lane has all 8
// columns of one group.
__device__ inline void transpose_quad(unsigned (&w)[4]) {
    for (int bit = 1; bit < 4; bit *= 2) for (int j = 0; j < 4; j++) {
        if (j & bit) continue;
        const bool upper = threadIdx.x & unsigned(bit);
        const unsigned got = __shfl_xor_sync(~0u, upper ? w[j] : w[j | bit], bit);
        if (upper) w[j] = got;
        else w[j | bit] = got;
    }
}

// gelu(x) = x/2 (1 + tanh u), u = k (x + a x^3). (1 + tanh u)/2 is the logistic function of 2u: one
// exponential, and no cancellation for negative x. 1/y is rsqrt(y)^2, two instructions where a
// division takes ten. Fused multiply-adds are written out, so that every kernel gets the same bits.
constexpr float kGeluK = 0.7978845608f, kGeluA = 0.044715f;     // sqrt(2/pi)
// exp(-2 u) = exp2(kGeluExponent (x + a x^3))
constexpr float kGeluExponent = -2.0f * kGeluK * 1.44269504f;
__device__ inline float gelu_gate(float x, float x2) {
    const float r =
        rsqrt_fast(1.0f + exp2_fast(x * fmaf(kGeluExponent * kGeluA, x2, kGeluExponent)));
    return r * r;
}
__device__ inline float gelu(float x) { return x * gelu_gate(x, x * x); }
// s + x s', with s' = 2 s (1 - s) u' for the gate s
__device__ inline float gelu_derivative(float x) {
    const float x2 = x * x, s = gelu_gate(x, x2), y = x * s;
    return fmaf(fmaf(-y, s, y), fmaf(6.0f * kGeluK * kGeluA, x2, 2.0f * kGeluK), s);
}

//   kPlain           out[0] = sum + bias
//   kGelu            out[0] = sum + bias,  out[1] = gelu(out[0])
//   kGeluBackward    out[0] = sum * gelu'(pre); out[0] may be pre, as a lane reads only the chunk
//                    that it will write
enum Kind { kPlain, kGelu, kGeluBackward };
template <Kind KIND> struct StoreBf16 {
    bf16* out[2];
    const bf16* other;  // bias (N) or null; kGeluBackward: pre (M,N)
    Extent extent;

    static constexpr bool kStarts = KIND != kGeluBackward, kAhead = KIND == kGeluBackward;
    struct Old { unsigned pair[4]; };
    __device__ unsigned start(int n) const {
        return other && n < extent.N ? as<unsigned>(other + n) : 0;
    }
    __device__ void ahead(int m, int n) const {
        if (extent.has(m, n)) prefetch_l2(other + extent.at(m, n));
    }
    // The lane's first of columns n .. n+31
    static __device__ int chunk(int n) { return n + lane() % 4 * 8; }
    __device__ Old fetch(int m, int n) const {
        if (KIND != kGeluBackward || !extent.has(m, chunk(n))) return {};
        const uint4 u = as<uint4>(other + extent.at(m, chunk(n)));
        return {{u.x, u.y, u.z, u.w}};
    }
    // Stores 16 bytes per lane: without the transpose, two
    // store instructions would share each 32-byte sector.
    __device__ void store(int m, int n, const float (&v)[8], Old old) const {
        unsigned w[4];
        if constexpr (KIND == kGeluBackward) transpose_quad(old.pair);
        for (int j = 0; j < 4; j++) {
            float2 sum = {v[2 * j], v[2 * j + 1]};
            if constexpr (KIND == kGeluBackward)
                sum = {sum.x * gelu_derivative(low2(old.pair[j])),
                       sum.y * gelu_derivative(high2(old.pair[j]))};
            w[j] = pack2(sum.x, sum.y);
        }
        transpose_quad(w);
        for (int i = 0; i < (KIND == kGelu ? 2 : 1); i++) {
            if (i == 1)
                for (int j = 0; j < 4; j++) w[j] = pack2(gelu(low2(w[j])), gelu(high2(w[j])));
            if (extent.has(m, chunk(n)))
                as<uint4>(out[i] + extent.at(m, chunk(n))) = {w[0], w[1], w[2], w[3]};
        }
    }
};

// Writes out (+)= sum, in fp32. The pairs of a quad fill a 32-byte sector without a transpose.
struct StoreFloat {
    float* out;
    Extent extent;
    bool accumulate;

    static constexpr bool kStarts = false, kAhead = false;
    struct Old { float2 pair[4]; };
    __device__ float2* at(int m, int n) const {
        return &as<float2>(out + extent.at(m, n) + lane() % 4 * 2);
    }
    __device__ Old fetch(int m, int n) const {
        Old old = {};
        const float2* const from = at(m, n);
        for (int j = 0; j < 4; j++)
            if (accumulate && extent.has(m, n + j * 8)) old.pair[j] = from[j * 4];
        return old;
    }
    __device__ void store(int m, int n, const float (&v)[8], const Old& old) const {
        float2* const to = at(m, n);
        for (int j = 0; j < 4; j++) {
            float2 sum = {v[2 * j], v[2 * j + 1]};
            if (accumulate) sum = {old.pair[j].x + sum.x, old.pair[j].y + sum.y};
            if (extent.has(m, n + j * 8)) to[j * 4] = sum;
        }
    }
};

// Starts holds the lane's share of what is added to a warp's 8 NT columns from n
// on. It is read while the last products run, so that storing does not wait for it.
template <class Epilogue, int NT> struct Starts {
    unsigned pair[Epilogue::kStarts ? NT : 1];
    __device__ Starts(const Epilogue& epilogue, int n) {
        if constexpr (Epilogue::kStarts)
            for (int y = 0; y < NT; y++) pair[y] = epilogue.start(n + y * 8 + lane() % 4 * 2);
    }
    __device__ unsigned operator[](int y) const { return pair[y]; }
};
// LateStarts reads each pair only when it is added: it is for kernels that have no registers left.
template <class Epilogue> struct LateStarts {
    const Epilogue& epilogue;
    int n;
    __device__ unsigned operator[](int y) const {
        return epilogue.start(n + y * 8 + lane() % 4 * 2);
    }
};

// Stores a warp's accumulators, MT x NT pieces of 16 x 8, STRIDE rows apart. m is this lane's first
// row, n the warp's first column, NT a multiple of 4. With kAhead the next columns' old values are
// loaded while these are stored.
template <int STRIDE, int MT, int NT, class Begin, class Epilogue>
__device__ void store_sums(const float (&acc)[MT][NT][4], const Begin& starts,
                           const Epilogue& epilogue, int m, int n) {
    // Groups of 32; loaded at once
    constexpr int kColumns = NT / 4, kAtOnce = MT < 2 && kColumns % 2 == 0 ? 2 : 1;
    constexpr int kBuffers = Epilogue::kAhead ? 2 : 1;
    typename Epilogue::Old old[kBuffers][kAtOnce][2 * MT];
    const auto row = [&](int r) { return m + r / 2 * STRIDE + r % 2 * 8; };
    const auto fetch = [&](int first) {
        for (int i = 0; i < kAtOnce * 2 * MT; i++)
            old[first / kAtOnce % kBuffers][i % kAtOnce][i / kAtOnce] =
                epilogue.fetch(row(i / kAtOnce), n + (first + i % kAtOnce) * 32);
    };
    if (kBuffers == 2) fetch(0);
    #pragma unroll
    for (int first = 0; first < kColumns; first += kAtOnce) {
        if (kBuffers == 1) fetch(first);
        else if (first + kAtOnce < kColumns) fetch(first + kAtOnce);
        unsigned start[kAtOnce * 4];
        if constexpr (Epilogue::kStarts)
            for (int j = 0; j < kAtOnce * 4; j++) start[j] = starts[first * 4 + j];
        #pragma unroll
        for (int i = 0; i < kAtOnce * 2 * MT; i++) {
            const int r = i / kAtOnce, y = (first + i % kAtOnce) * 4;
            float v[8];
            for (int j = 0; j < 8; j++) {
                v[j] = acc[r / 2][y + j / 2][r % 2 * 2 + j % 2];
                if constexpr (Epilogue::kStarts) {
                    const unsigned pair = start[i % kAtOnce * 4 + j / 2];
                    v[j] += j % 2 ? high2(pair) : low2(pair);
                }
            }
            epilogue.store(row(r), n + y * 8, v, old[first / kAtOnce % kBuffers][i % kAtOnce][r]);
        }
    }
}

}  // namespace BACKEND
