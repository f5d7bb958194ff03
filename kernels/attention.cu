// attention.cu -- causal attention whose T x T matrix exists only in registers, a tile at a time.
//
//   forward    s = scale q k^T,  scale = 1 / sqrt(HS);  p = exp(s - lse) where u <= t, else 0;  out = drop(p) v
//   backward   delta = rowsum(dout * out);  dp = drop(dout v^T);  ds = p * (dp - delta)
//              dv = drop(p)^T dout;  dk = scale ds^T q;  dq = scale ds k
//   cached     forward for a few new rows, with the keys and values of earlier calls
//
//   Traffic    each side is read once, the other once per 64 or 128 rows of it (from L2: the blocks of a head run side by side).
//              2 matmuls forward, 7 backward (s and dp are made twice), each B NH T^2/2 HS multiply-adds: bound by the tensor cores.
//   Precision  bf16 operands; scores, softmax and all sums in fp32. p (at most 1) and ds are rounded to bf16 to be operands again;
//              scale and 1 / (1 - rate) are applied to the finished sums.
//   Order      backward is two kernels, one that owns rows of dq and one that owns rows of dk and dv. One kernel would need 5 matmuls
//              instead of 7, but its blocks would meet in dq and add there in the order of their arrival.
//   Tiles      a warp owns 16 M rows and streams the other side through shared memory. What one product leaves in registers has the
//              layout that the next takes as first operand, so p and ds never see shared memory; for dk and dv that means to
//              compute s^T instead of s. A head size that is none of the tiles' is filled up with zeros.
//   Sources    Dao et al. 2022, arXiv 2205.14135, and Dao 2023, arXiv 2307.08691; softmax on the fly: Milakov and Gimelshein 2018,
//              arXiv 1805.02867.
//   See        kernels.h (contract), ref.cpp (specification), attention_sm90.cu (the same on Hopper's units).
#include "attention.cuh"
#include "common.h"
#include "kernels.h"

#include <cmath>
#include <type_traits>

namespace BACKEND {
using namespace attention;

namespace {

constexpr int kWarps = 4, kThreads = kWarps * 32;
constexpr int kStep = 32;                     // rows of the other side per step of backward

// Rows per warp / 16, and keys per step of forward. 32 rows per warp read half as much shared memory per product as 16, and 64 keys
// need half as many corrections of the sums as 32. The limit is 255 registers, with nothing spilled on sm_80 to sm_120.
template <int D, bool DROP> constexpr int kForwardM = D <= 96 || !DROP ? 2 : 1;
template <int D, bool DROP> constexpr int kForwardKeys = D <= 64 && !DROP ? 64 : 32;
template <int D> constexpr int kBackwardQM = D <= 64 ? 2 : 1;
template <int D, bool DROP> constexpr int kBackwardKvM = D < 64 || (D == 64 && !DROP) ? 2 : 1;

// ------------------------------------------------------------------------------------------------ tiles and products

// All threads: ROWS rows from global memory; zeros beyond `rows` and beyond column HS.
template <int D, int ROWS> DEVICE void load_tile(bf16* tile, const bf16* from, int stride, int rows, int HS) {
    constexpr int kAcross = D / 8, kDown = kThreads / kAcross;
    const int first = int(threadIdx.x) / kAcross, j = int(threadIdx.x) % kAcross;
    const bf16* const mine = from + first * stride + j * 8;
    UNROLL for (int i = 0; i < ROWS; i += kDown) {
        const int r = i + first;
        if ((ROWS % kDown == 0 || r < ROWS) && (kThreads % kAcross == 0 || first < kDown))
            cp_async16(tile + at<D>(r, j), mine + i * stride, r < rows && j * 8 < HS);
    }
}

// 16x16 pieces of a tile as the tensor cores take them. row is a multiple of 8, column of 16, both known to the compiler: an address
// is one of a few of the lane's plus a constant.
template <int D, bool TRANS> DEVICE void load_piece(unsigned (&r)[4], const bf16* tile, int row, int column, int lane_row, int lane_chunk) {
    const int chunk = column / 8, x = lane_chunk ^ (lane_row >> kShift<D> & kMask<D>);
    const bf16* const mine = tile + (lane_row * D + ((chunk & kMask<D>) ^ x) * 8);
    ldmatrix_x4<TRANS>(r, mine + (row * D + (chunk & ~kMask<D>) * 8));
}
// A first operand; a second one whose columns are the tile's rows; a second one whose rows are the tile's.
template <int D> DEVICE void load_first(unsigned (&r)[4], const bf16* tile, int row, int column) {
    load_piece<D, false>(r, tile, row, column, lane() % 16, lane() / 16);
}
template <int D> DEVICE void load_second_transposed(unsigned (&r)[4], const bf16* tile, int row, int column) {
    load_piece<D, false>(r, tile, row, column, lane() % 8 + lane() / 16 * 8, lane() / 8 % 2);
}
template <int D> DEVICE void load_second(unsigned (&r)[4], const bf16* tile, int row, int column) {
    load_piece<D, true>(r, tile, row, column, lane() % 16, lane() / 16);
}

// Two neighbouring 8-column tiles of d, for all row tiles.
template <int M, int N> DEVICE void multiply(float (&d)[M][N][4], int n, const unsigned (&a)[M][4], const unsigned (&b)[4]) {
    const unsigned low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
    UNROLL for (int i = 0; i < M; i++) {
        mma_m16n8k16(d[i][n], a[i], low);
        mma_m16n8k16(d[i][n + 1], a[i], high);
    }
}

// The warp's own 16 M rows, from `row` of a tile on, as first operand: held in registers, or with KEEP false read again each time.
template <int D, int M, bool KEEP> struct Rows {
    const bf16* tile;
    int row;
    unsigned kept[KEEP ? D / 16 : 1][M][4];
    DEVICE Rows(const bf16* tile_, int row_) : tile(tile_), row(row_) {
        if constexpr (KEEP)
            UNROLL for (int k = 0; k < D / 16; k++) load(kept[k], k);
    }
    DEVICE void load(unsigned (&a)[M][4], int k) const {
        UNROLL for (int i = 0; i < M; i++) load_first<D>(a[i], tile, row + i * 16, k * 16);
    }
};

// s = rows other^T, other: the 8 N rows of a tile from `row` on.
template <int D, int M, bool KEEP, int N> DEVICE void multiply_rows(float (&s)[M][N][4], Rows<D, M, KEEP>& rows, const bf16* tile,
                                                                    int row) {
    UNROLL for (int i = 0; i < M; i++)
        UNROLL for (int n = 0; n < N; n++)
            UNROLL for (int e = 0; e < 4; e++) s[i][n][e] = 0;
    UNROLL for (int k = 0; k < D / 16; k++) {
        if constexpr (!KEEP) rows.load(rows.kept[0], k);
        UNROLL for (int n = 0; n < N; n += 2) {
            unsigned b[4];
            load_second_transposed<D>(b, tile, row + n * 8, k * 16);
            multiply(s, n, rows.kept[KEEP ? k : 0], b);
        }
    }
}

// sum += p other, p rounded to bf16: accumulators of one product are laid out as the first operand of the next.
template <int D, int M, int N> DEVICE void add_product(float (&sum)[M][D / 8][4], const float (&p)[M][N][4], const bf16* tile, int row) {
    UNROLL for (int k = 0; k < N; k += 2) {
        unsigned a[M][4];
        UNROLL for (int i = 0; i < M; i++)
            UNROLL for (int e = 0; e < 4; e++) a[i][e] = pack2(p[i][k + e / 2][e % 2 * 2], p[i][k + e / 2][e % 2 * 2 + 1]);
        UNROLL for (int n = 0; n < D / 8; n += 2) {
            unsigned b[4];
            load_second<D>(b, tile, row + k * 8, n * 8);
            multiply(sum, n, a, b);
        }
    }
}

// Bit i: element first + i is kept. N neighbours in a row of p by one lane, for the others to get by shuffle: that costs a quarter of a
// random4 per element whatever T is.
template <int N> DEVICE unsigned keep_bits(const Dropout& drop, uint64_t first) {
    const RandomKey key = {drop.state->seed, drop.purpose, drop.state->step, drop.leaf};
    const int skip = int(first % 4);
    uint64_t bits = 0;
    for (int i = 0; i < N + skip; i += 4) {
        const Random4 r = random4(key, (first + uint64_t(i)) / 4);
        UNROLL for (int k = 0; k < 4; k++) bits |= uint64_t(uniform01(r.v[k]) >= drop.rate) << (i + k);
    }
    return unsigned(bits >> skip);
}

// ------------------------------------------------------------------------------------------------ forward

template <int D, bool DROP> constexpr size_t forward_bytes() {
    return size_t(kForwardM<D, DROP> * 16 * kWarps + 4 * kForwardKeys<D, DROP>) * D * sizeof(bf16);
}

// One block: 64 M queries of a head, a warp 16 M of them. Keys and values pass by in steps, the next one loading meanwhile. A row's
// maximum grows as they pass; what was summed with a smaller one is corrected by exp(old - new).
template <int D, bool DROP>
__global__ void __launch_bounds__(kThreads, 2) attention_forward_kernel(bf16* out, float* lse, const bf16* qkv, Shape s, Dropout drop) {
    constexpr int M = kForwardM<D, DROP>, kRows = M * 16 * kWarps, kKeys = kForwardKeys<D, DROP>, N = kKeys / 8;
    DYNAMIC_SHARED(memory);
    grid_dependency_sync();
    bf16* const q_tile = reinterpret_cast<bf16*>(memory);
    bf16* const kv_tiles = q_tile + kRows * D;                              // [2 stages][k, v][kKeys][D]

    const int blocks = div_up(s.T, kRows), stride = 3 * s.NH * s.HS;
    const Place p = place(s, blocks);
    const int t0 = (blocks - 1 - p.block) * kRows, first = int(threadIdx.x) / 32 * M * 16, t_warp = t0 + first;
    const int end = t0 + kRows < s.T ? t0 + kRows : s.T, seen = t_warp < s.T ? t_warp + M * 16 : 0;    // by the block, by the warp
    const bf16* const keys = qkv + qkv_at(s, p.head, 0, kK);                // values are NH * HS further on
    const auto load = [&](int u, int stage) {
        bf16* const tile = kv_tiles + stage * 2 * kKeys * D;
        const bf16* const from = keys + size_t(u) * stride;
        load_tile<D, kKeys>(tile, from, stride, s.T - u, s.HS);
        load_tile<D, kKeys>(tile + kKeys * D, from + s.NH * s.HS, stride, s.T - u, s.HS);
        cp_async_commit();
    };

    load_tile<D, kRows>(q_tile, qkv + qkv_at(s, p.head, t0, kQ), stride, s.T - t0, s.HS);
    load(0, 0);
    cp_async_wait<0>();
    __syncthreads();
    Rows<D, M, (D <= 64)> q(q_tile + first * D, 0);

    const float c = s.scale * kLog2e;                                       // exp(scale x) = exp2(c x)
    float o[M][D / 8][4] = {}, most[M][2], sum[M][2] = {};                  // most: c times the largest score
    UNROLL for (int i = 0; i < M; i++) most[i][0] = most[i][1] = -INFINITY;
    for (int u = 0, stage = 0; u < end; u += kKeys, stage ^= 1) {
        if (u + kKeys < end) load(u + kKeys, stage ^ 1);
        if (u < seen) {
            const bf16* const tile = kv_tiles + stage * 2 * kKeys * D;
            unsigned mask[kKeys / 32] = {};                                 // of query t_warp + lane, a bit per key
            if constexpr (DROP)
                UNROLL for (int w = 0; w < kKeys / 32; w++)
                    mask[w] = keep_bits<32>(drop, (uint64_t(p.head) * s.T + t_warp + lane()) * s.T + u + w * 32);
            float x[M][N][4];
            multiply_rows(x, q, tile, 0);
            if (u + kKeys - 1 > t_warp) hide_future<false>(x, t_warp - u);

            UNROLL for (int i = 0; i < M; i++)
                UNROLL for (int h = 0; h < 2; h++) {
                    float top = x[i][0][h * 2];
                    UNROLL for (int n = 0; n < N; n++) top = fmaxf(top, fmaxf(x[i][n][h * 2], x[i][n][h * 2 + 1]));
                    top = fmaxf(most[i][h], row_max(top) * c);
                    const float correction = exp2_fast(most[i][h] - top);
                    most[i][h] = top;
                    sum[i][h] *= correction;
                    UNROLL for (int n = 0; n < D / 8; n++) o[i][n][h * 2] *= correction, o[i][n][h * 2 + 1] *= correction;
                    UNROLL for (int n = 0; n < N; n++)
                        UNROLL for (int e = h * 2; e < h * 2 + 2; e++) {
                            x[i][n][e] = exp2_fast(x[i][n][e] * c - top);
                            sum[i][h] += x[i][n][e];
                        }
                    if constexpr (DROP)
                        UNROLL for (int w = 0; w < kKeys / 32; w++) {
                            const unsigned bits = __shfl_sync(~0u, mask[w], i * 16 + row_of(h * 2)) >> column_of(0);
                            UNROLL for (int n = 0; n < 4; n++)
                                UNROLL for (int e = h * 2; e < h * 2 + 2; e++)
                                    if (!(bits & 1u << (n * 8 + e % 2))) x[i][w * 4 + n][e] = 0;
                        }
                }
            add_product<D>(o, x, tile, kKeys);
        }
        cp_async_wait<0>();                                                 // the next step's keys and values are there, and
        __syncthreads();                                                    // all warps are done with this step's
    }

    if (t_warp >= s.T) return;
    UNROLL for (int i = 0; i < M; i++)
        UNROLL for (int h = 0; h < 2; h++) {
            const int t = t_warp + i * 16 + row_of(h * 2);
            const float total = row_sum(sum[i][h]);                         // so far a lane's own columns
            if (lane() % 4 == 0 && t < s.T) lse[size_t(p.head) * s.T + t] = (most[i][h] + log2f(total)) * kLn2;
            sum[i][h] = 1 / (DROP ? total * (1 - drop.rate) : total);
        }
    store_rows<D>(out + out_at(s, p.head, t_warp), s.NH * s.HS, s.T - t_warp, s.HS, q_tile + first * D, o, sum);
}

// ------------------------------------------------------------------------------------------------ backward

template <int D, int M> constexpr size_t backward_bytes() {
    return size_t(2 * M * 16 * kWarps + 4 * kStep) * D * sizeof(bf16) + 4 * kStep * sizeof(float);
}

// One block: 64 M rows of dq, and of delta, which the next kernel reads. Forward's loop again, but p is known from lse.
template <int D, bool DROP>
__global__ void __launch_bounds__(kThreads, 2) attention_backward_q_kernel(bf16* dqkv, float* delta, const bf16* dout, const bf16* qkv,
                                                                        const bf16* out, const float* lse, Shape s, Dropout drop) {
    constexpr int M = kBackwardQM<D>, kRows = M * 16 * kWarps, N = kStep / 8;
    DYNAMIC_SHARED(memory);
    grid_dependency_sync();
    bf16* const q_tile = reinterpret_cast<bf16*>(memory);
    bf16* const do_tile = q_tile + kRows * D;
    bf16* const kv_tiles = do_tile + kRows * D;                             // [2 stages][k, v][kStep][D]

    const int blocks = div_up(s.T, kRows), stride = 3 * s.NH * s.HS, out_stride = s.NH * s.HS;
    const Place p = place(s, blocks);
    const int t0 = (blocks - 1 - p.block) * kRows, first = int(threadIdx.x) / 32 * M * 16, t_warp = t0 + first;
    const int end = t0 + kRows < s.T ? t0 + kRows : s.T, seen = t_warp < s.T ? t_warp + M * 16 : 0;
    const float keep = DROP ? 1 - drop.rate : 1;
    const bf16* const keys = qkv + qkv_at(s, p.head, 0, kK);                // values are NH * HS further on
    const auto load = [&](int u, int stage) {
        bf16* const tile = kv_tiles + stage * 2 * kStep * D;
        const bf16* const from = keys + size_t(u) * stride;
        load_tile<D, kStep>(tile, from, stride, s.T - u, s.HS);
        load_tile<D, kStep>(tile + kStep * D, from + s.NH * s.HS, stride, s.T - u, s.HS);
        cp_async_commit();
    };

    load_tile<D, kRows>(q_tile, qkv + qkv_at(s, p.head, t0, kQ), stride, s.T - t0, s.HS);
    load_tile<D, kRows>(do_tile, dout + out_at(s, p.head, t0), out_stride, s.T - t0, s.HS);
    load(0, 0);
    cp_async_wait<0>();
    __syncthreads();
    Rows<D, M, true> q(q_tile + first * D, 0), dy(q_tile + first * D, kRows);

    // Register e of a first operand holds row e % 2 * 8 and column e / 2 * 8 further on than register 0.
    float row_delta[M][2] = {}, row_lse[M][2] = {};
    UNROLL for (int i = 0; i < M; i++)
        UNROLL for (int h = 0; h < 2; h++) {
            const int t = t_warp + i * 16 + row_of(h * 2);
            if (t < s.T) {
                const bf16* const y = out + out_at(s, p.head, t);
                UNROLL for (int j = 0; j < D / 8; j++) {
                    const unsigned d = dy.kept[j / 2][i][j % 2 * 2 + h];
                    const unsigned o = j * 8 < s.HS ? *reinterpret_cast<const unsigned*>(y + j * 8 + column_of(0)) : 0;
                    row_delta[i][h] += low2(d) * low2(o) + high2(d) * high2(o);
                }
                row_lse[i][h] = lse[size_t(p.head) * s.T + t] * kLog2e;
            }
            row_delta[i][h] = row_sum(row_delta[i][h]);
            if (lane() % 4 == 0 && t < s.T) delta[size_t(p.head) * s.T + t] = row_delta[i][h];
            row_delta[i][h] *= keep;
        }

    // With dropout the loop makes (1 - rate) ds = p * (mask * (dout v^T) - (1 - rate) delta): a division less per element.
    const float c = s.scale * kLog2e;
    float dq[M][D / 8][4] = {};
    for (int u = 0, stage = 0; u < end; u += kStep, stage ^= 1) {
        if (u + kStep < end) load(u + kStep, stage ^ 1);
        if (u < seen) {
            const bf16* const tile = kv_tiles + stage * 2 * kStep * D;
            unsigned mask = ~0u;
            if constexpr (DROP) mask = keep_bits<kStep>(drop, (uint64_t(p.head) * s.T + t_warp + lane() % (M * 16)) * s.T + u);
            float x[M][N][4], dp[M][N][4];
            multiply_rows(x, q, tile, 0);
            multiply_rows(dp, dy, tile, kStep);
            if (u + kStep - 1 > t_warp) hide_future<false>(x, t_warp - u);
            UNROLL for (int i = 0; i < M; i++)
                UNROLL for (int h = 0; h < 2; h++) {
                    const unsigned bits = DROP ? __shfl_sync(~0u, mask, i * 16 + row_of(h * 2)) >> column_of(0) : 0;
                    UNROLL for (int n = 0; n < N; n++)
                        UNROLL for (int e = h * 2; e < h * 2 + 2; e++) {
                            float y = dp[i][n][e];
                            if constexpr (DROP) y = bits & 1u << (n * 8 + e % 2) ? y : 0;
                            x[i][n][e] = exp2_fast(x[i][n][e] * c - row_lse[i][h]) * (y - row_delta[i][h]);
                        }
                }
            add_product<D>(dq, x, tile, 0);
        }
        cp_async_wait<0>();
        __syncthreads();
    }

    if (t_warp >= s.T) return;
    float factor[M][2];
    UNROLL for (int i = 0; i < M; i++) factor[i][0] = factor[i][1] = s.scale / keep;
    store_rows<D>(dqkv + qkv_at(s, p.head, t_warp, kQ), stride, s.T - t_warp, s.HS, q_tile + first * D, dq, factor);
}

// One block: 64 M rows of dk and dv. The queries that see them, with dout, pass by: the same with the roles exchanged, so that s^T,
// p^T and ds^T have a key per row and a query per column.
template <int D, bool DROP>
__global__ void __launch_bounds__(kThreads, 2) attention_backward_kv_kernel(bf16* dqkv, const bf16* dout, const bf16* qkv, const float* lse,
                                                                         const float* delta, Shape s, Dropout drop) {
    constexpr int M = kBackwardKvM<D, DROP>, kRows = M * 16 * kWarps, N = kStep / 8;
    DYNAMIC_SHARED(memory);
    grid_dependency_sync();
    bf16* const k_tile = reinterpret_cast<bf16*>(memory);
    bf16* const v_tile = k_tile + kRows * D;
    bf16* const q_tiles = v_tile + kRows * D;                               // [2 stages][q, dout][kStep][D]
    float* const rows = reinterpret_cast<float*>(q_tiles + 4 * kStep * D);  // [2 stages][lse / ln 2, delta][kStep]

    const int blocks = div_up(s.T, kRows), stride = 3 * s.NH * s.HS, out_stride = s.NH * s.HS;
    const Place p = place(s, blocks);
    const int u0 = p.block * kRows, first = int(threadIdx.x) / 32 * M * 16, u_warp = u0 + first;
    const float keep = DROP ? 1 - drop.rate : 1;                            // the loop makes (1 - rate) ds, as above
    const bf16* const q = qkv + qkv_at(s, p.head, 0, kQ);
    const bf16* const dy = dout + out_at(s, p.head, 0);
    const auto load = [&](int t, int stage) {
        bf16* const tile = q_tiles + stage * 2 * kStep * D;
        load_tile<D, kStep>(tile, q + size_t(t) * stride, stride, s.T - t, s.HS);
        load_tile<D, kStep>(tile + kStep * D, dy + size_t(t) * out_stride, out_stride, s.T - t, s.HS);
        cp_async_commit();
    };
    // Thread i < 2 kStep brings one number per step. Rows are not aligned to 16 bytes, so not by cp.async. exp2(x - infinity) is 0.
    const bool is_lse = threadIdx.x < kStep;
    const float* const mine = (is_lse ? lse : delta) + size_t(p.head) * s.T + threadIdx.x % kStep;
    const auto row_value = [&](int t) {
        const bool there = threadIdx.x < 2 * kStep && t + int(threadIdx.x) % kStep < s.T;
        return there ? mine[t] * (is_lse ? kLog2e : keep) : is_lse ? INFINITY : 0;
    };

    load_tile<D, kRows>(k_tile, qkv + qkv_at(s, p.head, u0, kK), stride, s.T - u0, s.HS);
    load_tile<D, kRows>(v_tile, qkv + qkv_at(s, p.head, u0, kV), stride, s.T - u0, s.HS);
    load(u0, 0);
    if (threadIdx.x < 2 * kStep) rows[threadIdx.x] = row_value(u0);
    cp_async_wait<0>();
    __syncthreads();
    Rows<D, M, false> k(k_tile + first * D, 0), v(k_tile + first * D, kRows);

    const float c = s.scale * kLog2e;
    float dk[M][D / 8][4] = {}, dv[M][D / 8][4] = {};
    for (int t = u0, stage = 0; t < s.T; t += kStep, stage ^= 1) {
        if (t + kStep < s.T) load(t + kStep, stage ^ 1);
        const float next = row_value(t + kStep);
        const int ahead = t - u_warp;
        if (ahead + kStep > 0) {
            const bf16* const tile = q_tiles + stage * 2 * kStep * D;
            const float* const row = rows + stage * 2 * kStep;
            unsigned mask = ~0u;                                            // of query t + lane, a bit per key
            if constexpr (DROP) mask = keep_bits<M * 16>(drop, (uint64_t(p.head) * s.T + t + lane()) * s.T + u_warp);

            float x[M][N][4], ds[M][N][4];
            multiply_rows(x, k, tile, 0);
            multiply_rows(ds, v, tile, kStep);
            if (ahead < M * 16 - 1) hide_future<true>(x, ahead);
            UNROLL for (int n = 0; n < N; n++)
                UNROLL for (int e = 0; e < 2; e++) {
                    const int column = n * 8 + column_of(e);
                    const float column_lse = row[column], column_delta = row[kStep + column];
                    const unsigned bits = DROP ? __shfl_sync(~0u, mask, column) >> row_of(0) : 0;
                    UNROLL for (int i = 0; i < M; i++)
                        UNROLL for (int f = e; f < 4; f += 2) {
                            const bool kept = bits & 1u << (i * 16 + f / 2 * 8);
                            const float prob = exp2_fast(x[i][n][f] * c - column_lse);
                            float y = ds[i][n][f];
                            if constexpr (DROP) y = kept ? y : 0;
                            ds[i][n][f] = prob * (y - column_delta);
                            x[i][n][f] = DROP && !kept ? 0 : prob;
                        }
                }
            add_product<D>(dv, x, tile, kStep);
            add_product<D>(dk, ds, tile, 0);
        }
        if (threadIdx.x < 2 * kStep) rows[(stage ^ 1) * 2 * kStep + threadIdx.x] = next;
        cp_async_wait<0>();
        __syncthreads();
    }

    if (u_warp >= s.T) return;
    float k_factor[M][2], v_factor[M][2];
    UNROLL for (int i = 0; i < M; i++) {
        k_factor[i][0] = k_factor[i][1] = s.scale / keep;
        v_factor[i][0] = v_factor[i][1] = 1 / keep;
    }
    store_rows<D>(dqkv + qkv_at(s, p.head, u_warp, kK), stride, s.T - u_warp, s.HS, k_tile + first * D, dk, k_factor);
    store_rows<D>(dqkv + qkv_at(s, p.head, u_warp, kV), stride, s.T - u_warp, s.HS, v_tile + first * D, dv, v_factor);
}

// ------------------------------------------------------------------------------------------------ cached

constexpr int kCachedThreads = 256;

// One thread, 8 channels of one new row's k or v: into the cache.
__global__ void attention_append_kernel(bf16* cache, const bf16* qkv, int first, int n, int maxT, int NH, int HS) {
    grid_dependency_sync();
    const int chunks = HS / 8, all = 2 * n * NH * chunks, i = int(blockIdx.x) * kCachedThreads + int(threadIdx.x);
    if (i >= all) return;
    const int j = i % chunks, h = i / chunks % NH, which = i / (chunks * NH) % 2, t = i / (chunks * NH * 2);
    const bf16* const from = qkv + ((size_t(t) * 3 + 1 + which) * NH + h) * HS + j * 8;
    bf16* const to = cache + ((size_t(which) * NH + h) * maxT + first + t) * HS + j * 8;
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
}

// One block: one new row of one head. A team of TEAM lanes, 8 channels each, takes every (256 / TEAM)th cached position with a softmax
// of its own; then thread i combines channel i of all teams, in their order.
template <int TEAM> __global__ void attention_cached_kernel(bf16* out, const bf16* cache, const bf16* qkv, int first, int maxT, int NH,
                                                            int HS, float scale) {
    constexpr int kTeams = kCachedThreads / TEAM;
    SHARED(float, sums, kTeams * TEAM * 8);
    SHARED(float, totals, kTeams);
    SHARED(float, tops, kTeams);
    grid_dependency_sync();
    const int t = int(blockIdx.x) / NH, h = int(blockIdx.x) % NH, team = int(threadIdx.x) / TEAM, j = int(threadIdx.x) % TEAM * 8;
    const bool there = j < HS;
    const bf16* const keys = cache + size_t(h) * maxT * HS + j;
    const bf16* const values = cache + size_t(NH + h) * maxT * HS + j;

    Pack8 q = {}, sum = {};
    if (there) q = load8(qkv + (size_t(t) * 3 * NH + h) * HS + j);
    float top = -INFINITY, total = 0;
    for (int u0 = 0; u0 <= first + t; u0 += kTeams) {                       // all lanes of a warp go round equally often
        const int u = u0 + team;
        const bool seen = u <= first + t;
        Pack8 k = {}, v = {};
        if (there && seen) k = load8(keys + size_t(u) * HS), v = load8(values + size_t(u) * HS);
        float x = 0;
        UNROLL for (int i = 0; i < 8; i++) x += q.x[i] * k.x[i];
        UNROLL for (int o = TEAM / 2; o; o /= 2) x += __shfl_xor_sync(~0u, x, o);
        if (!seen) continue;
        x *= scale;
        const float higher = fmaxf(top, x), correction = expf(top - higher), p = expf(x - higher);
        top = higher;
        total = total * correction + p;
        UNROLL for (int i = 0; i < 8; i++) sum.x[i] = sum.x[i] * correction + p * v.x[i];
    }
    UNROLL for (int i = 0; i < 8; i++) sums[team * TEAM * 8 + j + i] = sum.x[i];
    if (j == 0) tops[team] = top, totals[team] = total;
    __syncthreads();

    const int i = int(threadIdx.x);
    if (i >= HS) return;
    float highest = -INFINITY, result = 0, all = 0;
    for (int w = 0; w < kTeams; w++) highest = fmaxf(highest, tops[w]);
    for (int w = 0; w < kTeams; w++) {                                      // a team without a position has top = -infinity
        const float weight = expf(tops[w] - highest);
        result += weight * sums[w * TEAM * 8 + i];
        all += weight * totals[w];
    }
    out[(size_t(t) * NH + h) * HS + i] = to_bf16(result / all);
}

// ------------------------------------------------------------------------------------------------ launchers

Shape shape_of(const char* op, int B, int T, int NH, int HS) {
    CHECK(HS > 0 && HS % 8 == 0 && HS <= 128, "%s: HS is %d, want a multiple of 8 up to 128", op, HS);
    CHECK(B > 0 && T > 0 && NH > 0 && size_t(B) * NH * div_up(T, 16) < size_t(1) << 31, "%s: B=%d T=%d NH=%d", op, B, T, NH);
    const size_t together = (size_t(16) << 20) / (size_t(T) * HS * 4);      // k and v of so many heads are 16 MB: a part of any L2
    const int group = int(together < 1 ? 1 : together > size_t(B) * NH ? size_t(B) * NH : together);
    return {T, NH, HS, B * NH, group, 1 / std::sqrt(float(HS))};
}

// f(std::integral_constant<int, D>) for the narrowest tile that holds HS columns.
template <class F> void with_tile(int HS, F f) {
    if (HS <= 16) f(std::integral_constant<int, 16>());
    else if (HS <= 32) f(std::integral_constant<int, 32>());
    else if (HS <= 64) f(std::integral_constant<int, 64>());
    else if (HS <= 96) f(std::integral_constant<int, 96>());
    else f(std::integral_constant<int, 128>());
}

}  // namespace

void attention_forward(bf16* out, float* lse, const bf16* qkv, int B, int T, int NH, int HS, const Dropout& drop, Stream stream) {
    const Shape s = shape_of("attention_forward", B, T, NH, HS);
    if (sm90_takes(HS, drop)) return forward_sm90(out, lse, qkv, s, stream);
    with_tile(HS, [&](auto tile) {
        constexpr int D = decltype(tile)::value;
        const auto run = [&](auto kernel, int rows, size_t smem) {
            launch(kernel, dim3(unsigned(s.heads * div_up(T, rows))), kThreads, smem, stream, out, lse, qkv, s, drop);
        };
        if (drop.rate > 0) run(attention_forward_kernel<D, true>, kForwardM<D, true> * 16 * kWarps, forward_bytes<D, true>());
        else run(attention_forward_kernel<D, false>, kForwardM<D, false> * 16 * kWarps, forward_bytes<D, false>());
    });
}

void attention_backward(bf16* dqkv, float* delta, const bf16* dout, const bf16* qkv, const bf16* out, const float* lse,
                        int B, int T, int NH, int HS, const Dropout& drop, Stream stream) {
    const Shape s = shape_of("attention_backward", B, T, NH, HS);
    if (sm90_takes(HS, drop)) return backward_sm90(dqkv, delta, dout, qkv, out, lse, s, stream);
    with_tile(HS, [&](auto tile) {
        constexpr int D = decltype(tile)::value, q = kBackwardQM<D>, kv = kBackwardKvM<D, false>, kv_drop = kBackwardKvM<D, true>;
        const auto grid = [&](int m) { return dim3(unsigned(s.heads * div_up(T, m * 16 * kWarps))); };
        const auto run = [&](auto q_kernel, auto kv_kernel, int m, size_t smem) {
            launch(q_kernel, grid(q), kThreads, backward_bytes<D, q>(), stream, dqkv, delta, dout, qkv, out, lse, s, drop);
            launch(kv_kernel, grid(m), kThreads, smem, stream, dqkv, dout, qkv, lse, delta, s, drop);
        };
        if (drop.rate > 0)
            run(attention_backward_q_kernel<D, true>, attention_backward_kv_kernel<D, true>, kv_drop, backward_bytes<D, kv_drop>());
        else
            run(attention_backward_q_kernel<D, false>, attention_backward_kv_kernel<D, false>, kv, backward_bytes<D, kv>());
    });
}

void attention_cached(bf16* out, bf16* cache, const bf16* qkv, int first, int n, int maxT, int NH, int HS, Stream stream) {
    CHECK(first >= 0 && n >= 0 && first + n <= maxT, "attention_cached: positions %d to %d, room for %d", first, first + n, maxT);
    CHECK(HS > 0 && HS % 8 == 0 && HS <= 128, "attention_cached: HS is %d, want a multiple of 8 up to 128", HS);
    if (n == 0) return;
    const int chunks = 2 * n * NH * (HS / 8);
    launch(attention_append_kernel, dim3(unsigned(div_up(chunks, kCachedThreads))), kCachedThreads, 0, stream,
           cache, qkv, first, n, maxT, NH, HS);
    const auto kernel = HS <= 64 ? attention_cached_kernel<8> : attention_cached_kernel<16>;
    launch(kernel, dim3(unsigned(n * NH)), kCachedThreads, 0, stream, out, cache, qkv, first, maxT, NH, HS, 1 / std::sqrt(float(HS)));
}

}  // namespace BACKEND
