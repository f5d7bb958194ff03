// attention.cu -- causal attention whose T x T matrix exists only in registers, a tile at a time.
//
//   forward    s = scale q k^T,  scale = 1 / sqrt(HS);  p = exp(s - lse) where u <= t, else 0;  out = drop(p) v
//   backward   delta = rowsum(dout * out);  dp = drop(dout v^T);  ds = p * (dp - delta)
//              dv = drop(p)^T dout;  dk = scale ds^T q;  dq = scale ds k
//
// A warp owns 16 M rows, queries or keys, and loops over the rows of the other side, which pass through shared memory.
// A product's accumulators have the layout of the next product's first operand, so p and ds stay in registers; for dk
// and dv the kernel computes s^T. Backward is two kernels, because one would add to dq in the order in which blocks
// arrive. Operands are bf16, also p and ds; softmax and sums are fp32. See arXiv 2205.14135, 2307.08691, 1805.02867.
#include <cmath>
#include <type_traits>
#include "kernels/cuda/attention.cuh"
#include "kernels/elements.h"
#include "src/base/common.h"

namespace BACKEND {
using namespace attention;
namespace {

constexpr int kWarps = 4, kThreads = kWarps * 32;
constexpr int kStep = 32;  // rows of the other side (queries, or keys) per step of backward

// M is a warp's rows / 16, kKeys the keys per step: the most that 255 registers hold on sm_80 to sm_120 without a
// spill. 32 rows read half as much shared memory per product as 16; 64 keys need half as many corrections as 32.
template <int D, bool DROP> struct Forward {
    static constexpr int M = D <= 64 || !DROP ? 2 : 1, kRows = M * 16 * kWarps, kKeys = D <= 64 && !DROP ? 64 : 32;
    static constexpr size_t kBytes = size_t(kRows + 4 * kKeys) * D * sizeof(bf16);
};
template <int D, int M_> struct Backward {
    static constexpr int M = M_, kRows = M * 16 * kWarps;
    static constexpr size_t kBytes = size_t(2 * kRows + 4 * kStep) * D * sizeof(bf16) + 4 * kStep * sizeof(float);
};
template <int D> using BackwardQ = Backward<D, D <= 64 ? 2 : 1>;
template <int D, bool DROP> using BackwardKv = Backward<D, D < 64 || (D == 64 && !DROP) ? 2 : 1>;

// ------------------------ tiles and products

// All threads call this. Starts the copy of ROWS rows from global memory; zeros replace rows >= `rows`, columns >= HS.
template <int D, int ROWS> __device__ void load_tile(bf16* tile, const bf16* from, int stride, int rows, int HS) {
    constexpr int kAcross = D / 8, kDown = kThreads / kAcross;
    const int first = int(threadIdx.x) / kAcross, j = int(threadIdx.x) % kAcross;
    const bf16* const mine = from + first * stride + j * 8;
    for (int i = 0; i < ROWS; i += kDown)
        cp_async16(tile + at<D>(i + first, j), mine + i * stride, i + first < rows && j * 8 < HS);
}
// Does the same for two matrices, into the two tiles of a stage, and ends the group of copies.
template <int D, int ROWS>
__device__ void load_pair(bf16* tiles, const bf16* a, int a_stride, const bf16* b, int b_stride, int rows, int HS) {
    load_tile<D, ROWS>(tiles, a, a_stride, rows, HS);
    load_tile<D, ROWS>(tiles + ROWS * D, b, b_stride, rows, HS);
    cp_async_commit();
}

// Loads a 16x16 piece of a tile in the layout of the tensor cores. row is a multiple of 8 and column of 16. Loops
// are unrolled, so both are constants: then an address is one of a few that the lane keeps, plus a constant.
template <int D, bool TRANS>
__device__ void load_piece(unsigned (&r)[4], const bf16* tile, int row, int column, int lane_row, int lane_chunk) {
    const int chunk = column / 8, x = lane_chunk ^ (lane_row >> kShift<D> & kMask<D>);
    const bf16* const mine = tile + (lane_row * D + ((chunk & kMask<D>) ^ x) * 8);
    ldmatrix_x4<TRANS>(r, mine + (row * D + (chunk & ~kMask<D>) * 8));
}

// Computes d += a b for two neighbouring 8-column tiles of d and all of its row tiles.
template <int M, int N>
__device__ void multiply(float (&d)[M][N][4], int n, const unsigned (&a)[M][4], const unsigned (&b)[4]) {
    const unsigned low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
    for (int i = 0; i < M; i++) {
        mma_m16n8k16(d[i][n], a[i], low);
        mma_m16n8k16(d[i][n + 1], a[i], high);
    }
}

// Rows is the warp's own 16 M rows of a tile, as first operand. It is kept in registers, or loaded each time if !KEEP.
template <int D, int M, bool KEEP> struct Rows {
    const bf16* tile;
    int row;
    unsigned kept[KEEP ? D / 16 : 1][M][4];
    __device__ Rows(const bf16* tile_, int row_) : tile(tile_), row(row_) {
        if constexpr (KEEP) for (int k = 0; k < D / 16; k++) load(kept[k], k);
    }
    __device__ void load(unsigned (&a)[M][4], int k) const {
        for (int i = 0; i < M; i++) load_piece<D, false>(a[i], tile, row + i * 16, k * 16, lane() % 16, lane() / 16);
    }
};

// Computes s = rows other^T, where other is the 8 N rows of a tile from `row` on.
template <int D, int M, bool KEEP, int N>
__device__ void multiply_rows(float (&s)[M][N][4], Rows<D, M, KEEP>& rows, const bf16* tile, int row) {
    for (int i = 0; i < M; i++) for (int n = 0; n < N; n++) for (int e = 0; e < 4; e++) s[i][n][e] = 0;
    #pragma unroll
    for (int k = 0; k < D / 16; k++) {
        if constexpr (!KEEP) rows.load(rows.kept[0], k);
        for (int n = 0; n < N; n += 2) {
            unsigned b[4];
            load_piece<D, false>(b, tile, row + n * 8, k * 16, lane() % 8 + lane() / 16 * 8, lane() / 8 % 2);
            multiply(s, n, rows.kept[KEEP ? k : 0], b);
        }
    }
}

// Computes sum += p other, with p rounded to bf16, where other is the 8 N rows of a tile from `row` on.
template <int D, int M, int N>
__device__ void add_product(float (&sum)[M][D / 8][4], const float (&p)[M][N][4], const bf16* tile, int row) {
    for (int k = 0; k < N; k += 2) {
        unsigned a[M][4];
        for (int i = 0; i < M; i++) pack_operand(a[i], p[i], k / 2);
        #pragma unroll
        for (int n = 0; n < D / 8; n += 2) {
            unsigned b[4];
            load_piece<D, true>(b, tile, row + k * 8, n * 8, lane() % 16, lane() / 16);
            multiply(sum, n, a, b);
        }
    }
}

// Returns bits: bit i says whether element first + i is kept. A lane computes them for N neighbours in a
// row of p, and the other lanes get them by shuffle. So an element costs about a quarter of a random4.
template <int N> __device__ unsigned keep_bits(const Dropout& drop, uint64_t first) {
    const RandomKey key = key_of(drop);
    const unsigned skip = unsigned(first) % 4;
    const unsigned least = unsigned(ceilf(drop.rate * 0x1p24f)) << 8;   // uniform01(v) >= rate where v >= least
    const auto four = [&](uint64_t i) {
        const Random4 r = random4(key, i);
        unsigned bits = 0;
        for (int k = 0; k < 4; k++) bits |= r.v[k] >= least ? 1u << k : 0;
        return bits;
    };
    unsigned bits = 0;
    #pragma unroll
    for (int j = 0; j < N / 4; j++) bits |= four(first / 4 + j) << (4 * j);
    if (skip == 0) return bits;
    return bits >> skip | four(first / 4 + N / 4) << (N - skip);
}

// Calls step(row, stage) for rows begin, begin + STEP, ... before `end`, while load(row, stage) copies the next rows.
template <int STEP, class Load, class Step> __device__ void pipeline(int begin, int end, Load load, Step step) {
    for (int row = begin, stage = 0; row < end; row += STEP, stage ^= 1) {
        if (row + STEP < end) load(row + STEP, stage ^ 1);
        step(row, stage);
        cp_async_wait<0>();  // the next rows have come
        __syncthreads();  // all warps are done with the rows of this step
    }
}

// Returns whether `bits`, shifted right by the lane's first column, keep element e of the n-th 8 columns.
__device__ bool kept(unsigned bits, int n, int e) { return bits & 1u << (n * 8 + e % 2); }

// ------------------------ forward

// Cache holds keys and values of `first` earlier positions and of the new ones, (2,NK,maxT,HS).
struct Cache { bf16* memory; int first, maxT; };

// A block computes 64 M queries of a head, 16 M in each warp, and loops over keys and values in
// steps of kKeys. If CACHED is true, keys and values are in the cache, and lse is not written.
template <int D, bool DROP, bool CACHED> __global__ void __launch_bounds__(kThreads, 2)
attention_forward_kernel(bf16* out, float* lse, const bf16* qkv, AttentionShape s, Dropout drop, Cache cache) {
    using Tile = Forward<D, DROP>;
    constexpr int M = Tile::M, kRows = Tile::kRows, kKeys = Tile::kKeys;
    extern __shared__ __align__(1024) unsigned char memory[];
    grid_dependency_sync();
    bf16* const q_tile = reinterpret_cast<bf16*>(memory);
    bf16* const kv_tiles = q_tile + kRows * D;  // [2 stages][k, v][kKeys][D]
    const Queries p = queries_of_block<kRows>(s);
    const int first = warp() * M * 16, t_warp = p.begin + first, past = CACHED ? cache.first : 0;
    const int seen = t_warp < s.T ? past + t_warp + M * 16 : 0;  // how many keys the warp's queries see

    const int stride = s.columns, key_stride = CACHED ? s.HS : stride;
    const bf16* const keys = CACHED ? cache.memory + size_t(p.head / s.group) * cache.maxT * s.HS
                                    : qkv + qkv_at(s, p.head, 0, kK);
    const bf16* const values = keys + (CACHED ? size_t(s.NK) * cache.maxT * s.HS : size_t(s.NK) * s.HS);
    const auto load = [&](int u, int stage) {
        load_pair<D, kKeys>(kv_tiles + stage * 2 * kKeys * D, keys + size_t(u) * key_stride, key_stride,
                            values + size_t(u) * key_stride, key_stride, past + s.T - u, s.HS);
    };
    load_tile<D, kRows>(q_tile, qkv + qkv_at(s, p.head, p.begin, kQ), stride, s.T - p.begin, s.HS);
    load(0, 0);
    cp_async_wait<0>();
    __syncthreads();
    Rows<D, M, (D <= 64)> q(q_tile + first * D, 0);

    const float c = s.scale * kLog2e;  // exp(scale x) = exp2(c x)
    float o[M][D / 8][4] = {}, most[M][2], sum[M][2] = {};
    for (int i = 0; i < M; i++) most[i][0] = most[i][1] = -INFINITY;
    const auto step = [&](int u, int stage) {
        if (u >= seen) return;
        const bf16* const tile = kv_tiles + stage * 2 * kKeys * D;
        unsigned mask[kKeys / 32] = {};  // a bit per key, for query t_warp + lane
        for (int w = 0; w < kKeys / 32; w++)
            if constexpr (DROP) mask[w] = keep_bits<32>(drop, row_at(s, p.head, t_warp + lane()) * s.T + u + w * 32);
        float x[M][kKeys / 8][4];
        multiply_rows(x, q, tile, 0);
        if (u + kKeys - 1 > past + t_warp) hide_future<false>(x, past + t_warp - u);
        for (int i = 0; i < M; i++) for (int h = 0; h < 2; h++) {
            const float correction = add_scores(x[i], h, c, most[i][h], sum[i][h]);
            for (int n = 0; n < D / 8; n++) for (int e = 0; e < 2; e++) o[i][n][h * 2 + e] *= correction;
            for (int w = 0; w < (DROP ? kKeys / 32 : 0); w++) {
                const unsigned bits = __shfl_sync(~0u, mask[w], i * 16 + row_of(h * 2)) >> column_of(0);
                for (int n = 0; n < 4; n++)
                    for (int e = 0; e < 2; e++)
                        if (!kept(bits, n, e)) x[i][w * 4 + n][h * 2 + e] = 0;
            }
        }
        add_product<D>(o, x, tile, kKeys);
    };
    pipeline<kKeys>(0, past + p.end, load, step);

    if (t_warp >= s.T) return;
    for (int i = 0; i < M; i++) for (int h = 0; h < 2; h++) {
        const int t = t_warp + i * 16 + row_of(h * 2);
        const float total = CACHED ? row_sum(sum[i][h]) : finish_row(lse, s, p.head, t, most[i][h], sum[i][h]);
        sum[i][h] = 1 / (DROP ? total * (1 - drop.rate) : total);
    }
    store_rows<D>(out + out_at(s, p.head, t_warp), s.NH * s.HS, s.T - t_warp, s.HS, q_tile + first * D, o,
                  [&](int i, int h) { return sum[i][h]; });
}

// ------------------------ backward

// A block computes 64 M rows of dq, and of delta, which the next kernel reads. The loop
// is that of forward, but p is known from lse. With dropout it computes (1 - rate) ds =
// p * (mask * (dout v^T) - (1 - rate) delta), which saves a division per element.
template <int D, bool DROP> __global__ void __launch_bounds__(kThreads, 2)
attention_backward_q_kernel(bf16* dqkv, float* delta, const bf16* dout, const bf16* qkv, const bf16* out,
                            const float* lse, AttentionShape s, Dropout drop) {
    constexpr int M = BackwardQ<D>::M, kRows = BackwardQ<D>::kRows, N = kStep / 8;
    extern __shared__ __align__(1024) unsigned char memory[];
    grid_dependency_sync();
    bf16* const q_tile = reinterpret_cast<bf16*>(memory);
    bf16* const do_tile = q_tile + kRows * D;
    bf16* const kv_tiles = do_tile + kRows * D;
    const Queries p = queries_of_block<kRows>(s);
    const int stride = s.columns, first = warp() * M * 16, t_warp = p.begin + first;
    const int seen = t_warp < s.T ? t_warp + M * 16 : 0;

    const bf16* const keys = qkv + qkv_at(s, p.head, 0, kK);
    const auto load = [&](int u, int stage) {
        const bf16* const from = keys + size_t(u) * stride;
        load_pair<D, kStep>(kv_tiles + stage * 2 * kStep * D, from, stride, from + s.NK * s.HS, stride, s.T - u, s.HS);
    };
    load_tile<D, kRows>(q_tile, qkv + qkv_at(s, p.head, p.begin, kQ), stride, s.T - p.begin, s.HS);
    load_tile<D, kRows>(do_tile, dout + out_at(s, p.head, p.begin), s.NH * s.HS, s.T - p.begin, s.HS);
    load(0, 0);
    cp_async_wait<0>();
    __syncthreads();
    Rows<D, M, true> q(q_tile + first * D, 0), dy(q_tile + first * D, kRows);

    // Register e of a first operand is for a row e % 2 * 8 and a column e / 2 * 8 further on than register 0.
    const float keep = DROP ? 1 - drop.rate : 1, c = s.scale * kLog2e;
    float row_delta[M][2] = {}, row_lse[M][2] = {};
    for (int i = 0; i < M; i++) for (int h = 0; h < 2; h++) {
        const int t = t_warp + i * 16 + row_of(h * 2);
        if (t < s.T) {
            const bf16* const y = out + out_at(s, p.head, t);
            #pragma unroll
            for (int j = 0; j < D / 8; j++) {
                const unsigned d = dy.kept[j / 2][i][j % 2 * 2 + h];
                const unsigned o = j * 8 < s.HS ? as<unsigned>(y + j * 8 + column_of(0)) : 0;
                row_delta[i][h] += low2(d) * low2(o) + high2(d) * high2(o);
            }
            row_lse[i][h] = lse[row_at(s, p.head, t)] * kLog2e;
        }
        row_delta[i][h] = row_sum(row_delta[i][h]);
        if (lane() % 4 == 0 && t < s.T) delta[row_at(s, p.head, t)] = row_delta[i][h];
        row_delta[i][h] *= keep;
    }

    float dq[M][D / 8][4] = {};
    const auto step = [&](int u, int stage) {
        if (u >= seen) return;
        const bf16* const tile = kv_tiles + stage * 2 * kStep * D;
        unsigned mask = ~0u;
        if constexpr (DROP) mask = keep_bits<kStep>(drop, row_at(s, p.head, t_warp + lane() % (M * 16)) * s.T + u);
        float x[M][N][4], dp[M][N][4];
        multiply_rows(x, q, tile, 0);
        multiply_rows(dp, dy, tile, kStep);
        if (u + kStep - 1 > t_warp) hide_future<false>(x, t_warp - u);
        for (int i = 0; i < M; i++) for (int h = 0; h < 2; h++) {
            const unsigned bits = DROP ? __shfl_sync(~0u, mask, i * 16 + row_of(h * 2)) >> column_of(0) : 0;
            for (int n = 0; n < N; n++) for (int e = h * 2; e < h * 2 + 2; e++) {
                const float y = DROP && !kept(bits, n, e) ? 0 : dp[i][n][e];
                x[i][n][e] = exp2_fast(x[i][n][e] * c - row_lse[i][h]) * (y - row_delta[i][h]);
            }
        }
        add_product<D>(dq, x, tile, 0);
    };
    pipeline<kStep>(0, p.end, load, step);

    if (t_warp >= s.T) return;
    store_rows<D>(dqkv + qkv_at(s, p.head, t_warp, kQ), stride, s.T - t_warp, s.HS, q_tile + first * D, dq,
                  [factor = s.scale / keep](int, int) { return factor; });
}

// A block computes 64 M rows of dk and dv. It loops over queries that see them, with dout, head after head of
// the group. In s^T, p^T and ds^T a row is a key and a column a query. ds has the factor 1 - rate, as above.
template <int D, bool DROP> __global__ void __launch_bounds__(kThreads, 2)
attention_backward_kv_kernel(bf16* dqkv, const bf16* dout, const bf16* qkv, const float* lse, const float* delta,
                             AttentionShape s, Dropout drop) {
    using Tile = BackwardKv<D, DROP>;
    constexpr int M = Tile::M, kRows = Tile::kRows, N = kStep / 8;
    extern __shared__ __align__(1024) unsigned char memory[];
    grid_dependency_sync();
    bf16* const k_tile = reinterpret_cast<bf16*>(memory);
    bf16* const v_tile = k_tile + kRows * D;
    bf16* const q_tiles = v_tile + kRows * D;  // [2 stages][q, dout][kStep][D]
    float* const rows = reinterpret_cast<float*>(q_tiles + 4 * kStep * D);  // [2 stages][lse / ln 2, delta][kStep]
    const int blocks = div_up(s.T, kRows), u0 = int(blockIdx.x) % blocks * kRows;
    const int stride = s.columns, out_stride = s.NH * s.HS;
    int head = int(blockIdx.x) / blocks * s.group;
    const int first = warp() * M * 16, u_warp = u0 + first;
    const float keep = DROP ? 1 - drop.rate : 1, c = s.scale * kLog2e;

    const bf16 *q = qkv + qkv_at(s, head, 0, kQ), *dy = dout + out_at(s, head, 0);
    const auto load = [&](int t, int stage) {
        load_pair<D, kStep>(q_tiles + stage * 2 * kStep * D, q + size_t(t) * stride, stride,
                            dy + size_t(t) * out_stride, out_stride, s.T - t, s.HS);
    };
    // Thread i < 2 kStep loads one number per step, not by cp.async, because rows of lse
    // are not aligned to 16 bytes. After the last query lse is infinite, which makes p 0.
    const bool is_lse = threadIdx.x < kStep;
    const float* mine = (is_lse ? lse : delta) + row_at(s, head, 0) + threadIdx.x % kStep;
    const auto row_value = [&](int t) {
        const bool there = threadIdx.x < 2 * kStep && t + int(threadIdx.x) % kStep < s.T;
        return there ? mine[t] * (is_lse ? kLog2e : keep) : is_lse ? INFINITY : 0;
    };

    load_tile<D, kRows>(k_tile, qkv + qkv_at(s, head, u0, kK), stride, s.T - u0, s.HS);
    load_tile<D, kRows>(v_tile, qkv + qkv_at(s, head, u0, kV), stride, s.T - u0, s.HS);
    load(u0, 0);
    if (threadIdx.x < 2 * kStep) rows[threadIdx.x] = row_value(u0);
    cp_async_wait<0>();
    __syncthreads();
    Rows<D, M, false> k(k_tile + first * D, 0), v(k_tile + first * D, kRows);

    float dk[M][D / 8][4] = {}, dv[M][D / 8][4] = {};
    const int end = head + s.group;
    for (int t = u0, stage = 0; head < end; stage ^= 1) {  // does what pipeline() does, which would spill here
        int t_next = t + kStep, head_next = head;
        if (t_next >= s.T) {
            t_next = u0, head_next++;
            q += s.HS, dy += s.HS, mine += s.T;
        }
        if (head_next < end) load(t_next, stage ^ 1);
        const float next = head_next < end ? row_value(t_next) : 0;
        if (const int ahead = t - u_warp; ahead + kStep > 0) {
            const bf16* const tile = q_tiles + stage * 2 * kStep * D;
            const float* const row = rows + stage * 2 * kStep;
            unsigned mask = ~0u;  // a bit per key, for query t + lane
            if constexpr (DROP) mask = keep_bits<M * 16>(drop, row_at(s, head, t + lane()) * s.T + u_warp);
            float x[M][N][4], ds[M][N][4];
            multiply_rows(x, k, tile, 0);
            multiply_rows(ds, v, tile, kStep);
            if (ahead < M * 16 - 1) hide_future<true>(x, ahead);
            for (int n = 0; n < N; n++) for (int e = 0; e < 2; e++) {
                const int column = n * 8 + column_of(e);
                const float column_lse = row[column], column_delta = row[kStep + column];
                const unsigned bits = DROP ? __shfl_sync(~0u, mask, column) >> row_of(0) : 0;
                for (int i = 0; i < M; i++) for (int f = e; f < 4; f += 2) {
                    const bool dropped = DROP && !(bits & 1u << (i * 16 + f / 2 * 8));
                    const float prob = exp2_fast(x[i][n][f] * c - column_lse);
                    ds[i][n][f] = prob * ((dropped ? 0 : ds[i][n][f]) - column_delta);
                    x[i][n][f] = dropped ? 0 : prob;
                }
            }
            add_product<D>(dv, x, tile, kStep);
            add_product<D>(dk, ds, tile, 0);
        }
        if (threadIdx.x < 2 * kStep) rows[(stage ^ 1) * 2 * kStep + threadIdx.x] = next;
        t = t_next, head = head_next;
        cp_async_wait<0>();
        __syncthreads();
    }

    if (u_warp >= s.T) return;
    const auto store = [&](int which, bf16* tile, const auto& sum, float factor) {
        store_rows<D>(dqkv + qkv_at(s, end - 1, u_warp, which), stride, s.T - u_warp, s.HS, tile + first * D, sum,
                      [=](int, int) { return factor; });
    };
    store(kK, k_tile, dk, s.scale / keep);
    store(kV, v_tile, dv, 1 / keep);
}

// ------------------------ launchers

// With a new member of Attention this does not compile, so that no member is ignored.
AttentionShape shape_of(const Attention& attention) {
    const auto& [B, T, NH, NK, HS, drop, scale] = attention;
    CHECK(HS > 0 && HS % 8 == 0 && HS <= 128, "attention: HS is %d, want a multiple of 8 up to 128", HS);
    CHECK(NK > 0 && NH > 0 && NH % NK == 0, "attention: NK is %d, want a divisor of NH, which is %d", NK, NH);
    CHECK(B >= 0 && T >= 0 && size_t(B) * NH * div_up(T, 16) < size_t(1) << 31, "attention: B=%d T=%d NH=%d", B, T, NH);
    return {T, NH, NK, HS, B * NH, NH / NK, (NH + 2 * NK) * HS,
            scale > 0 ? scale : 1 / std::sqrt(float(HS))};
}

// Calls f(D, DROP), as integral constants, for the narrowest tile that holds HS columns.
template <class F> void with_tile(int HS, const Dropout& drop, F f) {
    const auto with = [&](auto D) { drop.rate > 0 ? f(D, std::true_type()) : f(D, std::false_type()); };
    if (HS <= 32) with(std::integral_constant<int, 32>());
    else if (HS <= 64) with(std::integral_constant<int, 64>());
    else with(std::integral_constant<int, 128>());
}

template <class Tile, class... P, class... A>
void launch_rows(void (*kernel)(P...), int heads, const AttentionShape& s, Stream stream, const A&... args) {
    launch(kernel, heads * div_up(s.T, Tile::kRows), kThreads, Tile::kBytes, stream, args...);
}

}  // namespace

void attention_forward(bf16* out, float* lse, const bf16* qkv, const Attention& attention, Stream stream) {
    const AttentionShape s = shape_of(attention);
    if (attention.B * attention.T == 0) return;
    if (sm90_takes(attention)) return forward_sm90(out, lse, qkv, s, stream);
    with_tile(s.HS, attention.drop, [&](auto D, auto DROP) {
        launch_rows<Forward<D, DROP>>(attention_forward_kernel<D, DROP, false>, s.heads, s, stream,
                                      out, lse, qkv, s, attention.drop, Cache());
    });
}

void attention_backward(bf16* dqkv, float* delta, const bf16* dout, const bf16* qkv, const bf16* out, const float* lse,
                        const Attention& attention, Stream stream) {
    const AttentionShape s = shape_of(attention);
    if (attention.B * attention.T == 0) return;
    if (sm90_takes(attention)) return backward_sm90(dqkv, delta, dout, qkv, out, lse, s, stream);
    with_tile(s.HS, attention.drop, [&](auto D, auto DROP) {
        launch_rows<BackwardQ<D>>(attention_backward_q_kernel<D, DROP>, s.heads, s, stream,
                                  dqkv, delta, dout, qkv, out, lse, s, attention.drop);
        launch_rows<BackwardKv<D, DROP>>(attention_backward_kv_kernel<D, DROP>, s.heads / s.group, s, stream,
                                         dqkv, dout, qkv, lse, delta, s, attention.drop);
    });
}

void attention_cached(bf16* out, bf16* cache, const bf16* qkv, int first, int maxT, const Attention& attention,
                      Stream stream) {
    const int n = attention.T, NK = attention.NK, HS = attention.HS;
    CHECK(attention.B == 1 && attention.drop.rate == 0, "attention_cached: want a B of 1 and no dropout");
    CHECK(first >= 0 && n >= 0 && first + n <= maxT, "attention_cached: %d and %d of %d positions", first, n, maxT);
    if (n == 0) return;
    const AttentionShape s = shape_of(attention);
    const Cache to = {cache, first, maxT};
    each_element(2 * size_t(n) * size_t(NK), size_t(HS) / 8, [=] ON_DEVICE(size_t row, size_t pack) {
        const int head = int(row) % NK, which = int(row) / NK % 2, t = int(row) / (NK * 2);
        bf16* const place = to.memory + ((size_t(which) * NK + head) * maxT + first + t) * HS;
        as<uint4>(place + pack * 8) = as<uint4>(qkv + qkv_at(s, head * s.group, t, kK + which) + pack * 8);
    }, stream);
    with_tile(HS, {}, [&](auto D, auto) {
        launch_rows<Forward<D, false>>(attention_forward_kernel<D, false, true>, s.heads, s, stream,
                                       out, nullptr, qkv, s, Dropout(), to);
    });
}

}  // namespace BACKEND
