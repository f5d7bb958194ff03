// attention_sm90.cu -- causal attention on Hopper's own units: attention.cu's formulas for head sizes 64 and 128 without dropout.
//
//   Roles      A block is two warpgroups that compute, 64 rows each, and one warp that loads. TMA brings tiles into a ring of slots; a slot
//              has a barrier for "full" (the bytes have come) and one for "empty" (every computing warp has said so).
//   Operands   wgmma reads q k^T, dout v^T and their transposes from shared memory, both sides as they lie in global memory. What is made
//              of the scores stays in registers, and is there the first operand of the next product, whose second is a tile read across its
//              rows (MN-major): nothing is transposed, and p and ds never see shared memory.
//   Overlap    In forward and dq a step's scores and the last step's product are issued together, and the exponentials of this step run
//              while the second is under way. In forward the warpgroups take turns at issuing, so that one has the tensor cores while
//              the other is at its exponentials (Shah et al. 2024, arXiv 2407.08608). In dk and dv there are no registers for it: two
//              warpgroups without order overlap by themselves, since their two bursts of products per step are longer than what is between.
//   Order      As in attention.cu: dq has its own kernel, dk and dv another, so no sum is shared between blocks and the bits depend on
//              nothing but the arguments. 7 products instead of 5; the other way is fp32 additions into dq in a fixed order of blocks,
//              16 KB per 64 x 64 tile of scores through the L2, and blocks that wait for each other.
//   Rates      Per score, head size 64, in cycles of a multiprocessor (4096 flops, 16 exponentials, 128 other operations a cycle): products
//              256 flops = 1/16, exponential 1/16, the rest about 1/32. One after the other that is 40 % of the rate, 400 TFLOP/s; in full
//              overlap products and exponentials tie. Backward: 3 and 4 products, 0.22 cycles for 640 useful flops = 706 TFLOP/s at best.
//   Tails      The maps are of B matrices of T rows: a box that hangs over the end of a sequence is filled with zeros, never with the next one's.
#include "attention.cuh"
#include "common.h"
#include "kernels.h"

#include <cmath>
#define INLINE_LAMBDA __attribute__((always_inline))

namespace BACKEND {
namespace attention {
namespace {

constexpr int kGroups = 2, kComputing = kGroups * 128, kThreads = kComputing + 128;     // warpgroups that compute, their threads, the block's
constexpr int kRows = kGroups * 64;                                                     // of a block
constexpr int kStep = 64;                                                               // rows of the other side per step of backward
constexpr int kBox = 64;                    // a TMA load brings kBox rows of kBox columns: 128 bytes a row, as the swizzle wants them
enum { kTurn = 1, kOwn = kTurn + kGroups };                                             // named barriers, one of each per warpgroup

DEVICE int group_of_thread() { return int(threadIdx.x) / 128; }
DEVICE int warp_row() { return int(threadIdx.x) / 32 * 16; }                              // a warp's first row among the block's

// The queries of a block: the last ones first, as they have the most keys.
struct Queries { int head, begin, end; };
DEVICE Queries queries_of_block(const Shape& s) {
    const int blocks = div_up(s.T, kRows);
    const Place p = place(s, blocks);
    const int begin = (blocks - 1 - p.block) * kRows;
    return {p.head, begin, begin + kRows < s.T ? begin + kRows : s.T};
}

// Tiles on their way through shared memory, in the order in which they are used. Every warp keeps its own place in the ring.
template <int SLOTS> struct Ring {
    static_assert((SLOTS & (SLOTS - 1)) == 0);
    uint64_t* bars;             // [full, empty][SLOTS], and one for the rows that the block keeps
    unsigned turn = 0;          // slots taken so far

    DEVICE uint64_t* full(int slot) const { return bars + slot; }
    DEVICE uint64_t* kept() const { return bars + 2 * SLOTS; }
    // All threads, before anything else: `fillers` threads report a slot full, and every computing warp reports it empty.
    DEVICE void begin(int fillers, const TensorMap* map, const TensorMap* other) const {
        if (threadIdx.x == 0) {
            for (int i = 0; i < SLOTS; i++) mbar_init(bars + i, fillers), mbar_init(bars + SLOTS + i, kGroups * 4);
            mbar_init(kept(), 1);
            mbar_fence_init();
            tma_prefetch(map), tma_prefetch(other);
        }
        __syncthreads();
    }
    // The loader: the next slot, when nobody reads it any more.
    DEVICE int fill() {
        mbar_wait(bars + SLOTS + turn % SLOTS, (turn / SLOTS & 1) ^ 1);
        return int(turn++ % SLOTS);
    }
    // A computing warp: the next slot, when all of it is there; and that it is done with one, as its lanes are behind a wgmma_wait.
    DEVICE int take() {
        mbar_wait(bars + turn % SLOTS, turn / SLOTS & 1);
        return int(turn++ % SLOTS);
    }
    DEVICE void release(int slot) const {
        if (lane() == 0) mbar_arrive(bars + SLOTS + slot);
    }
};

// ROWS rows of D columns lie in shared memory as D / 64 pieces of (ROWS, 64).
template <int D, int ROWS> DEVICE void load_tile(bf16* tile, const TensorMap* map, uint64_t* bar, int column, int row, int matrix) {
    UNROLL for (int c = 0; c < D; c += kBox)
        UNROLL for (int r = 0; r < ROWS; r += kBox) tma_load(tile + c * ROWS + r * kBox, map, bar, column + c, row + r, matrix);
}

// Where chunk c of a row lies in a tile of 64 rows, in elements.
DEVICE int in_tile(int row, int c) { return c / 8 * 64 * kBox + row * kBox + (c % 8 ^ row % 8) * 8; }

template <int M, int N> DEVICE float (&flat(float (&x)[M][N][4]))[M * N * 4] { return reinterpret_cast<float(&)[M * N * 4]>(x); }

// d = a b^T: 64 rows of a, ROWS of b, tiles of D columns.
template <int D, int ROWS> DEVICE void multiply_rows(float (&d)[1][ROWS / 8][4], const bf16* a, const bf16* b) {
    wgmma_fence();
    const uint64_t first = wgmma_desc(a, 0, 1024), second = wgmma_desc(b, 0, 1024);
    UNROLL for (int k = 0; k < D; k += 16) {
        const int piece = k / kBox, in_piece = k % kBox * 2 / 16;                       // descriptors count 16 bytes
        wgmma<ROWS, false, false>(flat(d), first + unsigned(piece * kBox * kBox * 2 / 16 + in_piece),
                                  second + unsigned(piece * ROWS * kBox * 2 / 16 + in_piece), k > 0);
    }
}

// d += p b: p as first operand in registers, b a tile of ROWS rows and D columns.
template <int D, int ROWS> DEVICE void add_product(float (&d)[1][D / 8][4], unsigned (&p)[ROWS / 16][4], const bf16* b) {
    wgmma_hold(flat(d)), wgmma_hold(reinterpret_cast<unsigned(&)[ROWS / 4]>(p));
    wgmma_fence();
    const uint64_t second = wgmma_desc(b, ROWS * kBox * 2, 1024);
    UNROLL for (int k = 0; k < ROWS / 16; k++) wgmma<D, true>(flat(d), p[k], second + unsigned(k * 16 * kBox * 2 / 16), true);
}

// Accumulators of one product, rounded to bf16, are laid out as the first operand of the next.
template <int N> DEVICE void pack(unsigned (&p)[N / 2][4], const float (&x)[1][N][4]) {
    UNROLL for (int k = 0; k < N / 2; k++)
        UNROLL for (int e = 0; e < 4; e++) p[k][e] = pack2(x[0][k * 2 + e / 2][e % 2 * 2], x[0][k * 2 + e / 2][e % 2 * 2 + 1]);
}

// ------------------------------------------------------------------------------------------------ forward

// Keys per step, slots of the ring and blocks of a multiprocessor. 64 keys leave a head of 64 with 112 registers, so that two blocks
// fill each other's gaps; a head of 128 has the accumulators of one block, and 128 keys read q half as often.
template <int D> struct Forward {
    static constexpr int kKeys = D, kSlots = D == 64 ? 8 : 4, kBlocks = D == 64 ? 2 : 1, kRegisters = D == 64 ? 104 : 240;
    static constexpr size_t kBytes = (size_t(kRows) + kSlots * kKeys) * D * sizeof(bf16);
};

// One block: 128 queries of a head. The slots hold k and v by turns.
template <int D> __global__ void __launch_bounds__(kThreads, Forward<D>::kBlocks)
attention_forward_sm90_kernel(bf16* out, float* lse, const __grid_constant__ TensorMap qkv, Shape s) {
    constexpr int kKeys = Forward<D>::kKeys, kSlots = Forward<D>::kSlots, kBlocks = Forward<D>::kBlocks;
    if (!kSm90a) return;
    DYNAMIC_SHARED(memory);
    SHARED(uint64_t, bars, 2 * kSlots + 1);
    bf16* const q_tiles = reinterpret_cast<bf16*>(memory);                  // [warpgroup][64 rows][D]
    bf16* const slots = q_tiles + kRows * D;                                // [kSlots][kKeys][D]
    Ring<kSlots> ring = {bars};

    const Queries p = queries_of_block(s);
    const int t0 = p.begin, end = p.end;
    ring.begin(1, &qkv, &qkv);
    grid_dependency_sync();

    if (threadIdx.x >= kComputing) {
        registers_down<24>();
        if (threadIdx.x != kComputing) return;
        const int batch = p.head / s.NH, column = p.head % s.NH * D;
        const auto load = [&](int which, int u) {
            const int slot = ring.fill();
            mbar_arrive(ring.full(slot), kKeys * D * int(sizeof(bf16)));
            load_tile<D, kKeys>(slots + slot * kKeys * D, &qkv, ring.full(slot), which * s.NH * D + column, u, batch);
        };
        mbar_arrive(ring.kept(), kRows * D * int(sizeof(bf16)));
        for (int g = 0; g < kGroups; g++) load_tile<D, 64>(q_tiles + g * 64 * D, &qkv, ring.kept(), column, t0 + g * 64, batch);
        for (int u = 0; u < end; u += kKeys) load(kK, u), load(kV, u);
        return;
    }

    registers_up<Forward<D>::kRegisters>();
    const int group = group_of_thread(), t_warp = t0 + warp_row();
    const bf16* const q = q_tiles + group * 64 * D;
    const auto tile = [&](int slot) { return slots + slot * kKeys * D; };
    const float c = s.scale * kLog2e;                                       // exp(scale x) = exp2(c x)
    float x[1][kKeys / 8][4], o[1][D / 8][4] = {}, most[2] = {-INFINITY, -INFINITY}, sum[2] = {}, correction[2];
    unsigned prob[kKeys / 16][4];
    const auto exponentials = [&](int u) INLINE_LAMBDA {                                  // as in attention.cu
        if (u + kKeys - 1 > t_warp) hide_future<false>(x, t_warp - u);
        UNROLL for (int h = 0; h < 2; h++) {
            float top = x[0][0][h * 2];
            UNROLL for (int n = 0; n < kKeys / 8; n++) top = fmaxf(top, fmaxf(x[0][n][h * 2], x[0][n][h * 2 + 1]));
            top = fmaxf(most[h], row_max(top) * c);
            correction[h] = exp2_fast(most[h] - top);
            most[h] = top;
            sum[h] *= correction[h];
            UNROLL for (int n = 0; n < kKeys / 8; n++)
                UNROLL for (int e = h * 2; e < h * 2 + 2; e++) {
                    x[0][n][e] = exp2_fast(x[0][n][e] * c - top);
                    sum[h] += x[0][n][e];
                }
        }
    };

    const auto scores = [&](int slot) INLINE_LAMBDA {
        multiply_rows<D, kKeys>(x, q, tile(slot));
        wgmma_commit();
    };
    const auto add_values = [&](int slot) INLINE_LAMBDA {
        add_product<D, kKeys>(o, prob, tile(slot));
        wgmma_commit();
    };
    const auto correct = [&]() INLINE_LAMBDA {
        UNROLL for (int n = 0; n < D / 8; n++)
            UNROLL for (int e = 0; e < 4; e++) o[0][n][e] *= correction[e / 2];
    };

    mbar_wait(ring.kept(), 0);
    if constexpr (kBlocks == 2) {
        const int seen = t0 + (group + 1) * 64;                             // the rest of the last two slots is the other warpgroup's
        for (int u = 0; u < end && u < seen; u += kKeys) {
            const int k = ring.take();
            scores(k);
            wgmma_wait<0>(flat(x));
            ring.release(k);
            exponentials(u);
            correct();
            pack(prob, x);
            const int v = ring.take();
            add_values(v);
            wgmma_wait<0>(flat(o));
            ring.release(v);
        }
    } else {
        const int first = ring.take();
        scores(first);
        wgmma_wait<0>(flat(x));
        ring.release(first);
        exponentials(0);
        pack(prob, x);
        int v = ring.take(), k = kKeys < end ? ring.take() : 0;
        if (group == 1 && kKeys < end) bar_arrive(kTurn, kComputing);         // the first turn is warpgroup 0's
        for (int u = kKeys; u < end; u += kKeys) {
            bar_sync(kTurn + group, kComputing);
            scores(k);
            add_values(v);
            if (group == 0 || u + kKeys < end) bar_arrive(kTurn + 1 - group, kComputing);
            wgmma_wait<1>(flat(x));
            ring.release(k);
            exponentials(u);
            wgmma_hold(flat(x));                                            // and the next slots' barriers keep the wait for o below them
            const int used = v;
            v = ring.take();
            if (u + kKeys < end) k = ring.take();
            wgmma_wait<0>(flat(o));
            ring.release(used);
            correct();
            pack(prob, x);
        }
        add_values(v);
        wgmma_wait<0>(flat(o));
    }

    bar_sync(kOwn + group, 128);                                            // the warpgroup is done with q: its rows become those of out
    if (t_warp >= s.T) return;
    float factor[1][2];
    UNROLL for (int h = 0; h < 2; h++) {
        const int t = t_warp + row_of(h * 2);
        const float total = row_sum(sum[h]);
        if (lane() % 4 == 0 && t < s.T) lse[size_t(p.head) * s.T + t] = (most[h] + log2f(total)) * kLn2;
        factor[0][h] = 1 / total;
    }
    store_rows<D>(out + out_at(s, p.head, t_warp), s.NH * D, s.T - t_warp, D, q_tiles + warp_row() * D, o, factor);
}

// ------------------------------------------------------------------------------------------------ backward

template <int D> struct Backward {
    static constexpr int kSlots = 4;                                        // of two tiles each
    static constexpr size_t kBytes = (size_t(2) * kRows + kSlots * 2 * kStep) * D * sizeof(bf16);
};

// One block: 128 rows of dq, and of delta (dout from the tile that is there for dq), which the next kernel reads. The slots hold k and v.
template <int D> __global__ void __launch_bounds__(kThreads, 1)
attention_backward_q_sm90_kernel(bf16* dqkv, float* delta, const __grid_constant__ TensorMap qkv, const __grid_constant__ TensorMap douts,
                                 const bf16* out, const float* lse, Shape s) {
    constexpr int kSlots = Backward<D>::kSlots, kTile = kStep * D;
    if (!kSm90a) return;
    DYNAMIC_SHARED(memory);
    SHARED(uint64_t, bars, 2 * kSlots + 1);
    bf16* const q_tiles = reinterpret_cast<bf16*>(memory);                  // [warpgroup][64 rows][D]
    bf16* const do_tiles = q_tiles + kRows * D;
    bf16* const slots = do_tiles + kRows * D;                               // [kSlots][k, v][kStep][D]
    Ring<kSlots> ring = {bars};

    const Queries p = queries_of_block(s);
    const int t0 = p.begin, end = p.end;
    ring.begin(1, &qkv, &douts);
    grid_dependency_sync();

    if (threadIdx.x >= kComputing) {
        registers_down<24>();
        if (threadIdx.x != kComputing) return;
        const int batch = p.head / s.NH, column = p.head % s.NH * D;
        mbar_arrive(ring.kept(), 2 * kRows * D * int(sizeof(bf16)));
        for (int g = 0; g < kGroups; g++) {
            load_tile<D, 64>(q_tiles + g * 64 * D, &qkv, ring.kept(), column, t0 + g * 64, batch);
            load_tile<D, 64>(do_tiles + g * 64 * D, &douts, ring.kept(), column, t0 + g * 64, batch);
        }
        for (int u = 0; u < end; u += kStep) {
            const int slot = ring.fill();
            mbar_arrive(ring.full(slot), 2 * kTile * int(sizeof(bf16)));
            load_tile<D, kStep>(slots + slot * 2 * kTile, &qkv, ring.full(slot), kK * s.NH * D + column, u, batch);
            load_tile<D, kStep>(slots + (slot * 2 + 1) * kTile, &qkv, ring.full(slot), kV * s.NH * D + column, u, batch);
        }
        return;
    }

    registers_up<240>();
    const int group = group_of_thread(), t_warp = t0 + warp_row();
    float row_delta[2] = {}, row_lse[2];
    uint4 y[2][D / 32] = {};                                                // of out, on their way while TMA brings dout
    UNROLL for (int h = 0; h < 2; h++) {
        const int t = t_warp + row_of(h * 2);
        row_lse[h] = t < s.T ? lse[size_t(p.head) * s.T + t] * kLog2e : INFINITY;
        if (t < s.T)
            UNROLL for (int j = 0; j < D / 32; j++) y[h][j] = *reinterpret_cast<const uint4*>(out + out_at(s, p.head, t) + (j * 4 + lane() % 4) * 8);
    }
    mbar_wait(ring.kept(), 0);
    UNROLL for (int h = 0; h < 2; h++) {
        const int row = warp_row() % 64 + row_of(h * 2), t = t_warp + row_of(h * 2);
        UNROLL for (int j = 0; j < D / 32; j++) {
            const Pack8 a = load8(do_tiles + group * 64 * D + in_tile(row, j * 4 + lane() % 4)), b = load8(reinterpret_cast<const bf16*>(&y[h][j]));
            UNROLL for (int i = 0; i < 8; i++) row_delta[h] += a.x[i] * b.x[i];
        }
        row_delta[h] = row_sum(row_delta[h]);
        if (lane() % 4 == 0 && t < s.T) delta[size_t(p.head) * s.T + t] = row_delta[h];
    }

    const bf16 *const q = q_tiles + group * 64 * D, *const dy = do_tiles + group * 64 * D;
    const float c = s.scale * kLog2e;
    float x[1][kStep / 8][4], dp[1][kStep / 8][4], dq[1][D / 8][4] = {};
    unsigned ds[kStep / 16][4];
    const auto multiply = [&](int slot) INLINE_LAMBDA {
        multiply_rows<D, kStep>(x, q, slots + slot * 2 * kTile);
        multiply_rows<D, kStep>(dp, dy, slots + (slot * 2 + 1) * kTile);
        wgmma_commit();
    };
    const auto gradient = [&](int u) INLINE_LAMBDA {                                      // ds over x
        if (u + kStep - 1 > t_warp) hide_future<false>(x, t_warp - u);
        UNROLL for (int n = 0; n < kStep / 8; n++)
            UNROLL for (int e = 0; e < 4; e++)
                x[0][n][e] = exp2_fast(x[0][n][e] * c - row_lse[e / 2]) * (dp[0][n][e] - row_delta[e / 2]);
    };

    int slot = ring.take();
    multiply(slot);
    wgmma_wait<0>(flat(x), flat(dp));
    gradient(0);
    pack(ds, x);
    const int seen = t0 + (group + 1) * 64 < end ? t0 + (group + 1) * 64 : end;        // what follows is the other warpgroup's
    int next = kStep < seen ? ring.take() : 0;
    for (int u = kStep; u < seen; u += kStep) {
        multiply(next);
        add_product<D, kStep>(dq, ds, slots + slot * 2 * kTile);
        wgmma_commit();
        wgmma_wait<1>(flat(x), flat(dp));
        gradient(u);
        wgmma_hold(flat(x));                                                // as in forward
        const int used = slot;
        slot = next;
        if (u + kStep < seen) next = ring.take();
        wgmma_wait<0>(flat(dq));
        ring.release(used);
        pack(ds, x);
    }
    add_product<D, kStep>(dq, ds, slots + slot * 2 * kTile);
    wgmma_commit();
    wgmma_wait<0>(flat(dq));

    bar_sync(kOwn + group, 128);                                            // the warpgroup is done with q: its rows become those of dq
    if (t_warp >= s.T) return;
    const float factor[1][2] = {{s.scale, s.scale}};
    store_rows<D>(dqkv + qkv_at(s, p.head, t_warp, kQ), 3 * s.NH * D, s.T - t_warp, D, q_tiles + warp_row() * D, dq, factor);
}

// One block: 128 rows of dk and dv. The slots hold q and dout of the queries that see them, and beside them lse and delta of each: those
// are not aligned to 16 bytes, so the loader's lanes bring them by ordinary loads and report the slot full together with TMA's bytes.
template <int D> __global__ void __launch_bounds__(kThreads, 1)
attention_backward_kv_sm90_kernel(bf16* dqkv, const __grid_constant__ TensorMap qkv, const __grid_constant__ TensorMap douts, const float* lse,
                                  const float* delta, Shape s) {
    constexpr int kSlots = Backward<D>::kSlots, kTile = kStep * D;
    if (!kSm90a) return;
    DYNAMIC_SHARED(memory);
    SHARED(uint64_t, bars, 2 * kSlots + 1);
    SHARED(float, stats, kSlots * 2 * kStep);                               // [kSlots][lse / ln 2, delta][kStep]
    bf16* const k_tiles = reinterpret_cast<bf16*>(memory);                  // [warpgroup][64 rows][D]
    bf16* const v_tiles = k_tiles + kRows * D;
    bf16* const slots = v_tiles + kRows * D;                                // [kSlots][q, dout][kStep][D]
    Ring<kSlots> ring = {bars};

    const Place p = place(s, div_up(s.T, kRows));
    const int u0 = p.block * kRows;
    ring.begin(32, &qkv, &douts);
    grid_dependency_sync();

    if (threadIdx.x >= kComputing) {
        registers_down<24>();
        if (threadIdx.x >= kComputing + 32) return;
        const int batch = p.head / s.NH, column = p.head % s.NH * D;
        if (lane() == 0) {
            mbar_arrive(ring.kept(), 2 * kRows * D * int(sizeof(bf16)));
            for (int g = 0; g < kGroups; g++) {
                load_tile<D, 64>(k_tiles + g * 64 * D, &qkv, ring.kept(), kK * s.NH * D + column, u0 + g * 64, batch);
                load_tile<D, 64>(v_tiles + g * 64 * D, &qkv, ring.kept(), kV * s.NH * D + column, u0 + g * 64, batch);
            }
        }
        for (int t = u0; t < s.T; t += kStep) {
            float value[2][2];                                              // of rows lane and lane + 32: exp2(x - infinity) is 0
            UNROLL for (int i = 0; i < 2; i++) {
                const int row = t + i * 32 + lane();
                value[0][i] = row < s.T ? lse[size_t(p.head) * s.T + row] * kLog2e : INFINITY;
                value[1][i] = row < s.T ? delta[size_t(p.head) * s.T + row] : 0;
            }
            const int slot = ring.fill();
            UNROLL for (int i = 0; i < 4; i++) stats[(slot * 2 + i / 2) * kStep + i % 2 * 32 + lane()] = value[i / 2][i % 2];
            mbar_arrive(ring.full(slot), lane() == 0 ? 2 * kTile * int(sizeof(bf16)) : 0);
            if (lane() != 0) continue;
            load_tile<D, kStep>(slots + slot * 2 * kTile, &qkv, ring.full(slot), column, t, batch);
            load_tile<D, kStep>(slots + (slot * 2 + 1) * kTile, &douts, ring.full(slot), column, t, batch);
        }
        return;
    }

    registers_up<240>();
    const int group = group_of_thread(), u_warp = u0 + warp_row();
    const bf16 *const k = k_tiles + group * 64 * D, *const v = v_tiles + group * 64 * D;
    const float c = s.scale * kLog2e;
    float x[1][kStep / 8][4], ds[1][kStep / 8][4], dk[1][D / 8][4] = {}, dv[1][D / 8][4] = {};
    unsigned prob[kStep / 16][4], packed_ds[kStep / 16][4];
    mbar_wait(ring.kept(), 0);
    if (group == 1) ring.release(ring.take());                              // the first 64 queries are before its keys
    for (int t = u0 + group * kStep; t < s.T; t += kStep) {
        const int slot = ring.take();
        const bf16 *const q = slots + slot * 2 * kTile, *const dy = q + kTile;
        const float *const row_lse = stats + slot * 2 * kStep, *const row_delta = row_lse + kStep;
        multiply_rows<D, kStep>(x, k, q);
        multiply_rows<D, kStep>(ds, v, dy);
        wgmma_commit();
        wgmma_wait<0>(flat(x), flat(ds));
        if (t - u_warp < 15) hide_future<true>(x, t - u_warp);
        UNROLL for (int n = 0; n < kStep / 8; n++)
            UNROLL for (int e = 0; e < 4; e++) {
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
        __syncwarp();                                                       // all lanes have read lse and delta: a race only TSan sees
        ring.release(slot);
    }

    bar_sync(kOwn + group, 128);                                            // the warpgroup is done with k and v
    if (u_warp >= s.T) return;
    const float k_factor[1][2] = {{s.scale, s.scale}}, v_factor[1][2] = {{1, 1}};
    store_rows<D>(dqkv + qkv_at(s, p.head, u_warp, kK), 3 * s.NH * D, s.T - u_warp, D, k_tiles + warp_row() * D, dk, k_factor);
    store_rows<D>(dqkv + qkv_at(s, p.head, u_warp, kV), 3 * s.NH * D, s.T - u_warp, D, v_tiles + warp_row() * D, dv, v_factor);
}

// ------------------------------------------------------------------------------------------------ launchers

// B matrices of T rows, `columns` wide.
TensorMap map_of(const bf16* p, const Shape& s, int columns) {
    return tensor_map(p, size_t(columns), size_t(s.T), size_t(columns), kBox, kBox, size_t(s.heads / s.NH), size_t(s.T) * size_t(columns));
}

template <int D> void forward(bf16* out, float* lse, const bf16* qkv, const Shape& s, Stream stream) {
    launch(attention_forward_sm90_kernel<D>, dim3(unsigned(s.heads * div_up(s.T, kRows))), kThreads, Forward<D>::kBytes, stream, out, lse,
           map_of(qkv, s, 3 * s.NH * D), s);
}

template <int D> void backward(bf16* dqkv, float* delta, const bf16* dout, const bf16* qkv, const bf16* out, const float* lse, const Shape& s,
                               Stream stream) {
    const TensorMap of_qkv = map_of(qkv, s, 3 * s.NH * D), of_dout = map_of(dout, s, s.NH * D);
    const dim3 grid = dim3(unsigned(s.heads * div_up(s.T, kRows)));
    launch(attention_backward_q_sm90_kernel<D>, grid, kThreads, Backward<D>::kBytes, stream, dqkv, delta, of_qkv, of_dout, out, lse, s);
    launch(attention_backward_kv_sm90_kernel<D>, grid, kThreads, Backward<D>::kBytes, stream, dqkv, of_qkv, of_dout, lse, delta, s);
}

}  // namespace

bool sm90_takes(int HS, const Dropout& drop) { return hopper() && drop.rate == 0 && (HS == 64 || HS == 128); }

void forward_sm90(bf16* out, float* lse, const bf16* qkv, const Shape& s, Stream stream) {
    (s.HS == 64 ? forward<64> : forward<128>)(out, lse, qkv, s, stream);
}

void backward_sm90(bf16* dqkv, float* delta, const bf16* dout, const bf16* qkv, const bf16* out, const float* lse, const Shape& s,
                   Stream stream) {
    (s.HS == 64 ? backward<64> : backward<128>)(dqkv, delta, dout, qkv, out, lse, s, stream);
}

}  // namespace attention
}  // namespace BACKEND
