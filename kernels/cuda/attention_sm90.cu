// attention_sm90.cu -- causal attention on Hopper: attention.cu's
// formulas for head sizes 64 and 128 without dropout.
//
// A block has two warpgroups that compute, 64 rows each, and a third, in which one warp or thread
// loads: TMA copies tiles into a ring of slots. For q k^T, dout v^T and their transposes wgmma
// reads tiles in shared memory along their rows, which are those of global memory (K-major). What
// is computed from the scores, p or ds, stays in registers as the first operand of the next
// product; its second operand is a tile that is read across its rows (MN-major). The warpgroups, or
// two blocks, run independently, so that products of one overlap with exponentials of the other.
// TMA fills the part of a box beyond the end of a sequence with zeros.
#include <cmath>
#include <type_traits>
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/kernels.h"

namespace BACKEND::attention {
namespace {

// The warpgroups that compute, and their threads
constexpr int kGroups = 2, kComputing = kGroups * 128;
constexpr int kThreads = kComputing + 128, kRows = kGroups * 64;
constexpr int kStep = 64;  // rows of the other side (queries, or keys) per step of backward
// a TMA load brings kBox rows of kBox columns: 128 bytes a row, one swizzle
constexpr int kBox = 64;

__device__ int warp_row() { return warp() * 16; }  // a warp's first row among the block's

// Loads ROWS rows of D columns, which lie in shared memory as D / 64 pieces of (ROWS, 64).
template <int D, int ROWS>
__device__ void load_tile(bf16* tile, const CUtensorMap* map, uint64_t* bar, int column, int row,
                          int matrix) {
    for (int c = 0; c < D; c += kBox) for (int r = 0; r < ROWS; r += kBox)
            tma_load(tile + c * ROWS + r * kBox, map, bar, column + c, row + r, matrix);
}
// Loads the rows that a block keeps, as [warpgroup][64 rows][D].
template <int D> __device__ void load_kept(bf16* tiles, const CUtensorMap* map, uint64_t* bar,
                                           int column, int row, int matrix) {
    for (int g = 0; g < kGroups; g++)
        load_tile<D, 64>(tiles + g * 64 * D, map, bar, column, row + g * 64, matrix);
}
constexpr int bytes_of(int elements) { return elements * int(sizeof(bf16)); }
// Returns where chunk c of a row lies in a tile of 64 rows, in elements.
__device__ int in_tile(int row, int c) {
    return c / 8 * 64 * kBox + row * kBox + (c % 8 ^ row % 8) * 8;
}

template <int N> __device__ float (&flat(float (&x)[1][N][4]))[N * 4] {
    return reinterpret_cast<float(&)[N * 4]>(x);
}

// Starts d = a b^T, with 64 rows of a and ROWS rows of b,
// both of D columns. Descriptors have units of 16 bytes.
template <int D, int ROWS>
__device__ void multiply_rows(float (&d)[1][ROWS / 8][4], const bf16* a, const bf16* b) {
    wgmma_fence();
    const uint64_t first = wgmma_desc(a, 0, 1024), second = wgmma_desc(b, 0, 1024);
    for (int k = 0; k < D; k += 16) {
        const int piece = k / kBox, in_piece = k % kBox * 2 / 16;
        wgmma<ROWS, false, false>(
            flat(d), first + unsigned(piece * kBox * kBox * 2 / 16 + in_piece),
            second + unsigned(piece * ROWS * kBox * 2 / 16 + in_piece), k > 0);
    }
}

// Loads the warp's 16 of a tile's 64 rows as a first operand in registers.
template <int D> __device__ void load_operand(unsigned (&a)[D / 16][4], const bf16* tile) {
    for (int k = 0; k < D / 16; k++)
        ldmatrix_x4(a[k], tile + in_tile(warp_row() % 64 + lane() % 16, k * 2 + lane() / 16));
}
// Starts d = a b^T with a in registers: a product then reads half as many bytes of shared memory.
template <int D, int ROWS>
__device__ void multiply_rows(float (&d)[1][ROWS / 8][4], unsigned (&a)[D / 16][4], const bf16* b) {
    wgmma_hold(reinterpret_cast<unsigned(&)[D / 4]>(a));
    wgmma_fence();
    const uint64_t second = wgmma_desc(b, 0, 1024);
    for (int k = 0; k < D; k += 16) {
        const int piece = k / kBox, in_piece = k % kBox * 2 / 16;
        wgmma<ROWS, false>(flat(d), a[k / 16],
                           second + unsigned(piece * ROWS * kBox * 2 / 16 + in_piece), k > 0);
    }
}

// Starts d += p b, where p is a first operand in registers and b a tile of ROWS rows and D columns.
template <int D, int ROWS>
__device__ void add_product(float (&d)[1][D / 8][4], unsigned (&p)[ROWS / 16][4], const bf16* b) {
    wgmma_hold(flat(d));
    wgmma_hold(reinterpret_cast<unsigned(&)[ROWS / 4]>(p));
    wgmma_fence();
    const uint64_t second = wgmma_desc(b, ROWS * kBox * 2, 1024);
    for (int k = 0; k < ROWS / 16; k++)
        wgmma<D, true>(flat(d), p[k], second + unsigned(k * 16 * kBox * 2 / 16), true);
}

template <int N> __device__ void pack(unsigned (&p)[N / 2][4], const float (&x)[1][N][4]) {
    for (int k = 0; k < N / 2; k++) pack_operand(p[k], x[0], k);
}

// ------------------------ forward

// With head size 64 and 64 keys per step a computing thread needs only 104 registers. So two blocks
// run at a time, and one computes while the other waits. With head size 128 the accumulators leave
// room for one block only; there q is read half as often with 128 keys per step as with 64.
template <int D> struct Forward {
    static constexpr int kKeys = D, kSlots = D == 64 ? 8 : 4, kBlocks = D == 64 ? 2 : 1;
    static constexpr int kRegisters = D == 64 ? 104 : 240;
    static constexpr size_t kBytes = size_t(kRows + kSlots * kKeys) * D * sizeof(bf16);
};

// A block computes 128 queries of a head. The slots hold k and v alternately. If BEGIN is true, the
// first step is that of the first key that the block's first query sees; a warpgroup only
// releases the slots of steps that none of its own queries sees.
template <int D, bool BEGIN> __global__ void __launch_bounds__(kThreads, Forward<D>::kBlocks)
attention_forward_sm90_kernel(bf16* out, float* lse, const __grid_constant__ CUtensorMap qkv,
                              AttentionShape s, const int* begin) {
    constexpr int kKeys = Forward<D>::kKeys, kSlots = Forward<D>::kSlots;
    if (!kSm90a) return;
    extern __shared__ __align__(1024) unsigned char memory[];
    __shared__ uint64_t bars[2 * kSlots + 1];
    bf16* const q_tiles = reinterpret_cast<bf16*>(memory);  // [warpgroup][64 rows][D]
    bf16* const slots = q_tiles + kRows * D;  // [kSlots][kKeys][D]
    Ring<kSlots> ring = {bars};
    const Queries p = queries_of_block<kRows>(s);
    ring.begin(1, kGroups * 4, &qkv, &qkv);
    const FirstKeys<BEGIN> first_key(begin, s, p.head);
    int u = first_key[p.begin] / kKeys * kKeys;

    if (threadIdx.x >= kComputing) {
        registers_down<24>();
        if (threadIdx.x != kComputing) return;
        const int batch = p.head / s.NH, k = qkv_column(s, p.head, kK),
                  v = qkv_column(s, p.head, kV);
        mbar_arrive(ring.kept(), bytes_of(kRows * D));
        load_kept<D>(q_tiles, &qkv, ring.kept(), qkv_column(s, p.head, kQ), p.begin, batch);
        for (; u < p.end; u += kKeys)
            for (const int column : {k, v}) {
                const int slot = ring.fill();
                mbar_arrive(ring.full(slot), bytes_of(kKeys * D));
                load_tile<D, kKeys>(slots + slot * kKeys * D, &qkv, ring.full(slot), column, u,
                                    batch);
            }
        return;
    }

    registers_up<Forward<D>::kRegisters>();
    const int group = warpgroup(), t_warp = p.begin + warp_row();
    const float c = s.scale * kLog2e;  // exp(scale x) = exp2(c x)
    // Later keys are hidden
    const int own = p.begin + group * 64, end = own + 64 < p.end ? own + 64 : p.end;
    const int see_some = first_key[own], see_all = first_key[own + 63];
    float x[1][kKeys / 8][4], o[1][D / 8][4] = {};
    float most[2] = {kLeast<BEGIN>, kLeast<BEGIN>}, sum[2] = {};
    mbar_wait(ring.kept(), 0);
    const auto step = [&](int u, auto hides) {
        const int k = ring.take();
        multiply_rows<D, kKeys>(x, q_tiles + group * 64 * D, slots + k * kKeys * D);
        wgmma_commit();
        wgmma_wait<0>(flat(x));
        ring.release(k);
        if constexpr (hides) hide_future<false>(x, t_warp - u);
        if (BEGIN && u < see_all) hide_past<false>(x, u, first_key, t_warp);
        for (int h = 0; h < 2; h++) {
            const float correction = add_scores(x[0], h, c, most[h], sum[h]);
            for (int n = 0; n < D / 8; n++)
                for (int e = 0; e < 2; e++) o[0][n][h * 2 + e] *= correction;
        }
        unsigned prob[kKeys / 16][4];
        pack(prob, x);
        const int v = ring.take();
        add_product<D, kKeys>(o, prob, slots + v * kKeys * D);
        wgmma_commit();
        wgmma_wait<0>(flat(o));
        ring.release(v);
    };
    for (; BEGIN && u + kKeys <= see_some; u += kKeys)
        for (int i = 0; i < 2; i++) ring.release(ring.take());
    // No key is after a query in the steps that end before the warpgroup's first one.
    for (; u <= own - kKeys; u += kKeys) step(u, std::false_type());
    for (; u < end; u += kKeys) step(u, std::true_type());

    bar_sync<128>(group);  // all of the warpgroup is done with q, which store_rows overwrites
    if (t_warp >= s.T) return;
    for (int h = 0; h < 2; h++)
        sum[h] = 1 / finish_row(lse, s, p.head, t_warp + row_of(h * 2), most[h], sum[h]);
    store_rows<D>(out + out_at(s, p.head, t_warp), s.NH * D, s.T - t_warp, D,
                  q_tiles + warp_row() * D, o, [&](int, int h) { return sum[h]; });
}

// ------------------------ backward

// A block keeps 128 rows of two matrices. Each of its slots holds two tiles of the other side.
constexpr int kSlots = 4;
template <int D>
constexpr size_t kBackwardBytes = size_t(2 * kRows + kSlots * 2 * kStep) * D * sizeof(bf16);

// A block computes 128 rows of dq, and of delta, which the
// next kernel reads. The slots hold k and v, with BEGIN of the same keys as in forward.
template <int D, bool BEGIN> __global__ void __launch_bounds__(kThreads, 1)
attention_backward_q_sm90_kernel(bf16* dqkv, float* delta, const __grid_constant__ CUtensorMap qkv,
                                 const __grid_constant__ CUtensorMap douts, const bf16* out,
                                 const float* lse, AttentionShape s, const int* begin) {
    constexpr int kTile = kStep * D;
    if (!kSm90a) return;
    extern __shared__ __align__(1024) unsigned char memory[];
    __shared__ uint64_t bars[2 * kSlots + 1];
    bf16* const q_tiles = reinterpret_cast<bf16*>(memory);  // [warpgroup][64 rows][D]
    bf16* const do_tiles = q_tiles + kRows * D;
    bf16* const slots = do_tiles + kRows * D;  // [kSlots][k, v][kStep][D]
    Ring<kSlots> ring = {bars};
    const Queries p = queries_of_block<kRows>(s);
    ring.begin(1, kGroups * 4, &qkv, &douts);
    const FirstKeys<BEGIN> first_key(begin, s, p.head);
    int u = first_key[p.begin] / kStep * kStep;

    if (threadIdx.x >= kComputing) {
        registers_down<24>();
        if (threadIdx.x != kComputing) return;
        const int batch = p.head / s.NH, q = qkv_column(s, p.head, kQ);
        const int k = qkv_column(s, p.head, kK), v = qkv_column(s, p.head, kV);
        mbar_arrive(ring.kept(), bytes_of(2 * kRows * D));
        load_kept<D>(q_tiles, &qkv, ring.kept(), q, p.begin, batch);
        load_kept<D>(do_tiles, &douts, ring.kept(), q, p.begin, batch);
        for (; u < p.end; u += kStep) {
            const int slot = ring.fill();
            mbar_arrive(ring.full(slot), bytes_of(2 * kTile));
            load_tile<D, kStep>(slots + slot * 2 * kTile, &qkv, ring.full(slot), k, u, batch);
            load_tile<D, kStep>(slots + (slot * 2 + 1) * kTile, &qkv, ring.full(slot), v, u, batch);
        }
        return;
    }

    registers_up<240>();
    const int group = warpgroup(), t_warp = p.begin + warp_row();
    float row_delta[2] = {}, row_lse[2];
    uint4 y[2][D / 32] = {};  // rows of out; these loads run while TMA loads dout
    for (int h = 0; h < 2; h++) {
        const int t = t_warp + row_of(h * 2);
        row_lse[h] = t < s.T ? lse[row_at(s, p.head, t)] * kLog2e : INFINITY;
        if (t >= s.T) continue;
        for (int j = 0; j < D / 32; j++)
            y[h][j] = as<uint4>(out + out_at(s, p.head, t) + (j * 4 + lane() % 4) * 8);
    }
    mbar_wait(ring.kept(), 0);
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        const int row = warp_row() % 64 + row_of(h * 2), t = t_warp + row_of(h * 2);
        // Odd rows read the second chunk of each pair first:
        // it is in the banks that even rows leave free.
        const bool odd = row % 2;
        const bf16* const tile = do_tiles + group * 64 * D;
        #pragma unroll
        for (int j = 0; j < D / 32; j++) {
            if (j % 2) continue;
            const int even = j * 4 + lane() % 4;
            const uint4 first = as<uint4>(tile + in_tile(row, odd ? even + 4 : even));
            const uint4 second = as<uint4>(tile + in_tile(row, odd ? even : even + 4));
            const Pack8 a[2] = {unpack8(select(odd, second, first)),
                                unpack8(select(odd, first, second))};
            for (int i = 0; i < 16; i++)
                row_delta[h] += a[i / 8].x[i % 8] * unpack8(y[h][j + i / 8]).x[i % 8];
        }
        row_delta[h] = row_sum(row_delta[h]);
        if (lane() % 4 == 0 && t < s.T) delta[row_at(s, p.head, t)] = row_delta[h];
    }

    unsigned q_rows[D / 16][4], do_rows[D / 16][4];
    load_operand<D>(q_rows, q_tiles + group * 64 * D);
    load_operand<D>(do_rows, do_tiles + group * 64 * D);
    const float c = s.scale * kLog2e;
    // Later keys are hidden
    const int own = p.begin + group * 64, end = own + 64 < p.end ? own + 64 : p.end;
    const int see_some = first_key[own], see_all = first_key[own + 63];
    float x[1][kStep / 8][4], dp[1][kStep / 8][4], dq[1][D / 8][4] = {};
    const auto step = [&](int u, auto hides) {
        const int slot = ring.take();
        const bf16 *const k = slots + slot * 2 * kTile, *const v = k + kTile;
        multiply_rows<D, kStep>(x, q_rows, k);
        multiply_rows<D, kStep>(dp, do_rows, v);
        wgmma_commit();
        wgmma_wait<0>(flat(x), flat(dp));
        if constexpr (hides) hide_future<false>(x, t_warp - u);
        if (BEGIN && u < see_all) hide_past<false>(x, u, first_key, t_warp);
        for (int n = 0; n < kStep / 8; n++) for (int e = 0; e < 4; e++)
                x[0][n][e] =
                    exp2_fast(x[0][n][e] * c - row_lse[e / 2]) * (dp[0][n][e] - row_delta[e / 2]);
        unsigned ds[kStep / 16][4];
        pack(ds, x);
        add_product<D, kStep>(dq, ds, k);
        wgmma_commit();
        wgmma_wait<0>(flat(dq));
        ring.release(slot);
    };
    for (; BEGIN && u + kStep <= see_some; u += kStep) ring.release(ring.take());
    for (; u + kStep <= own; u += kStep) step(u, std::false_type());
    for (; u < end; u += kStep) step(u, std::true_type());

    bar_sync<128>(group);  // all of the warpgroup is done with q, which store_rows overwrites
    if (t_warp >= s.T) return;
    store_rows<D>(dqkv + qkv_at(s, p.head, t_warp, kQ), s.columns, s.T - t_warp, D,
                  q_tiles + warp_row() * D, dq, [&](int, int) { return s.scale; });
}

// A block computes 128 rows of dk and dv. The slots hold q and dout of the queries that see them:
// 64 of each head of the group, then the next 64 of each head. Each slot has lse and delta of its
// queries, too. Those are not aligned to 16 bytes, so the lanes of the loading warp copy them by
// ordinary loads, and each lane reports the slot full. If BEGIN is true, no queries come behind the
// last 64 of which one sees a key of the block; a warpgroup only releases the slots of those that
// see none of its own. Then a slot also has the queries' first keys.
template <int D, bool BEGIN> __global__ void __launch_bounds__(kThreads, 1)
attention_backward_kv_sm90_kernel(bf16* dqkv, const __grid_constant__ CUtensorMap qkv,
                                  const __grid_constant__ CUtensorMap douts, const float* lse,
                                  const float* delta, AttentionShape s, const int* begin) {
    constexpr int kTile = kStep * D;
    if (!kSm90a) return;
    extern __shared__ __align__(1024) unsigned char memory[];
    __shared__ uint64_t bars[2 * kSlots + 1];
    constexpr int kStats = BEGIN ? 3 : 2;  // lse / ln 2, delta, the bits of the first key
    __shared__ float stats[kSlots * kStats * kStep];  // [kSlots][kStats][kStep]
    bf16* const k_tiles = reinterpret_cast<bf16*>(memory);  // [warpgroup][64 rows][D]
    bf16* const v_tiles = k_tiles + kRows * D;
    bf16* const slots = v_tiles + kRows * D;  // [kSlots][q, dout][kStep][D]
    Ring<kSlots> ring = {bars};
    const int blocks = div_up(s.T, kRows), u0 = int(blockIdx.x) % blocks * kRows;
    const int first = int(blockIdx.x) / blocks * s.group;  // first head of the group
    ring.begin(32, kGroups * 4, &qkv, &douts);
    const FirstKeys<BEGIN> first_key(begin, s, first);
    const int t_end = BEGIN ? end_of_steps<kStep>(first_key, u0, u0 + kRows) : s.T;

    if (threadIdx.x >= kComputing) {
        registers_down<24>();
        if (threadIdx.x >= kComputing + 32) return;
        const int batch = first / s.NH;
        if (lane() == 0) {
            mbar_arrive(ring.kept(), bytes_of(2 * kRows * D));
            load_kept<D>(k_tiles, &qkv, ring.kept(), qkv_column(s, first, kK), u0, batch);
            load_kept<D>(v_tiles, &qkv, ring.kept(), qkv_column(s, first, kV), u0, batch);
        }
        const size_t rows = row_at(s, first, lane());
        const int column = qkv_column(s, first, kQ);
        for (int t = u0, h = 0; t < t_end;) {
            const size_t row = rows + size_t(h) * s.T + t;
            float value[kStats][2];  // of rows lane and lane + 32
            for (int i = 0; i < 2; i++) {
                const bool there = t + i * 32 + lane() < s.T;
                value[0][i] = there ? lse[row + i * 32] * kLog2e : INFINITY;
                value[1][i] = there ? delta[row + i * 32] : 0;
                if constexpr (BEGIN)
                    value[2][i] = __int_as_float(first_key[t + i * 32 + lane()]);
            }
            const int slot = ring.fill();
            for (int i = 0; i < kStats * 2; i++)
                stats[(slot * kStats + i / 2) * kStep + i % 2 * 32 + lane()] = value[i / 2][i % 2];
            mbar_arrive(ring.full(slot), lane() == 0 ? bytes_of(2 * kTile) : 0);
            if (lane() == 0) {
                load_tile<D, kStep>(slots + slot * 2 * kTile, &qkv, ring.full(slot), column + h * D,
                                    t, batch);
                load_tile<D, kStep>(slots + (slot * 2 + 1) * kTile, &douts, ring.full(slot),
                                    column + h * D, t, batch);
            }
            if (++h == s.group) h = 0, t += kStep;
        }
        return;
    }

    registers_up<240>();
    const int group = warpgroup(), u_warp = u0 + warp_row();
    const float c = s.scale * kLog2e;
    float x[1][kStep / 8][4], ds[1][kStep / 8][4], dk[1][D / 8][4] = {}, dv[1][D / 8][4] = {};
    unsigned prob[kStep / 16][4], packed_ds[kStep / 16][4];
    mbar_wait(ring.kept(), 0);
    constexpr bool kKeep = D == 64;  // keeps k and v in registers; for D 128 there are too few
    unsigned k_rows[D / 16][4], v_rows[D / 16][4];
    if constexpr (kKeep) {
        load_operand<D>(k_rows, k_tiles + group * 64 * D);
        load_operand<D>(v_rows, v_tiles + group * 64 * D);
    }
    const int own = u0 + group * kStep;
    const auto step = [&](auto hides) {
        const int slot = ring.take();
        const bf16 *const q = slots + slot * 2 * kTile, *const dy = q + kTile;
        const float* const row_lse = stats + slot * kStats * kStep;
        const float* const row_delta = row_lse + kStep;
        const int* const firsts = reinterpret_cast<const int*>(row_delta + kStep);
        if (BEGIN && !hides && firsts[0] >= own + 64) {
            __syncwarp();
            return ring.release(slot);
        }
        if constexpr (kKeep) {
            multiply_rows<D, kStep>(x, k_rows, q);
            multiply_rows<D, kStep>(ds, v_rows, dy);
        } else {
            multiply_rows<D, kStep>(x, k_tiles + group * 64 * D, q);
            multiply_rows<D, kStep>(ds, v_tiles + group * 64 * D, dy);
        }
        wgmma_commit();
        wgmma_wait<0>(flat(x), flat(ds));
        if constexpr (hides) hide_future<true>(x, own - u_warp);
        if (BEGIN && firsts[kStep - 1] > own) hide_past<true>(x, u_warp, firsts, 0);
        for (int n = 0; n < kStep / 8; n++) for (int e = 0; e < 4; e++) {
            const int query = n * 8 + column_of(e);
            x[0][n][e] = exp2_fast(x[0][n][e] * c - row_lse[query]);
            ds[0][n][e] = x[0][n][e] * (ds[0][n][e] - row_delta[query]);
        }
        pack(prob, x);
        pack(packed_ds, ds);
        add_product<D, kStep>(dv, prob, dy);
        add_product<D, kStep>(dk, packed_ds, q);
        wgmma_commit();
        wgmma_wait<0>(flat(dv), flat(dk));
        __syncwarp();  // all lanes have read lse and delta
        ring.release(slot);
    };
    const int steps = div_up(t_end - own, kStep) * s.group;
    if (group == 1)  // each head's first 64 queries are before this warpgroup's keys
        for (int i = 0; i < s.group; i++) ring.release(ring.take());
    int i = 0;  // queries after the first 64 have no key of the warpgroup behind them
    for (; i < s.group && i < steps; i++) step(std::true_type());
    for (; i < steps; i++) step(std::false_type());

    bar_sync<128>(group);  // all of the warpgroup is done with k and v
    if (u_warp >= s.T) return;
    const auto store = [&](int which, bf16* tiles, const auto& sum, float factor) {
        store_rows<D>(dqkv + qkv_at(s, first, u_warp, which), s.columns, s.T - u_warp, D,
                      tiles + warp_row() * D, sum, [=](int, int) { return factor; });
    };
    store(kK, k_tiles, dk, s.scale);
    store(kV, v_tiles, dv, 1);
}

// ------------------------ launchers

// Returns the tensor map of B matrices, each of T rows and `columns` columns.
CUtensorMap map_of(const bf16* p, const AttentionShape& s, int columns) {
    return tensor_map(p, columns, s.T, columns, kBox, kBox, s.heads / s.NH, size_t(s.T) * columns);
}

// Calls f(D, BEGIN), as integral constants.
template <class F> void with_size(const AttentionShape& s, const int* begin, F f) {
    with_bool(begin, [&](auto BEGIN) {
        s.HS == 64 ? f(std::integral_constant<int, 64>(), BEGIN)
                   : f(std::integral_constant<int, 128>(), BEGIN);
    });
}

}  // namespace

// With a new member of Attention this does not compile: decide whether these kernels compute it.
bool sm90_takes(const Attention& attention) {
    const auto& [B, T, NH, NK, HS, drop, scale, begin] = attention;  // AttentionShape has the scale
    return hopper() && drop.rate == 0 && (HS == 64 || HS == 128);
}

void forward_sm90(bf16* out, float* lse, const bf16* qkv, const AttentionShape& s,
                  const int* begin, Stream stream) {
    with_size(s, begin, [&](auto D, auto BEGIN) {
        launch(attention_forward_sm90_kernel<D, BEGIN>, s.heads * div_up(s.T, kRows), kThreads,
               Forward<D>::kBytes, stream, out, lse, map_of(qkv, s, s.columns), s, begin);
    });
}

void backward_sm90(bf16* dqkv, float* delta, const bf16* dout, const bf16* qkv, const bf16* out,
                   const float* lse, const AttentionShape& s, const int* begin, Stream stream) {
    with_size(s, begin, [&](auto D, auto BEGIN) {
        const CUtensorMap of_qkv = map_of(qkv, s, s.columns), of_dout = map_of(dout, s, s.NH * D);
        const int blocks = s.heads * div_up(s.T, kRows);
        launch(attention_backward_q_sm90_kernel<D, BEGIN>, blocks, kThreads, kBackwardBytes<D>,
               stream, dqkv, delta, of_qkv, of_dout, out, lse, s, begin);
        launch(attention_backward_kv_sm90_kernel<D, BEGIN>, blocks / s.group, kThreads,
               kBackwardBytes<D>, stream, dqkv, of_qkv, of_dout, lse, delta, s, begin);
    });
}

}  // namespace BACKEND::attention
