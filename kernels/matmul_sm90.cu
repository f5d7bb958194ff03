// matmul_sm90.cu -- the matrix products of matmul.cu on Hopper: operands by TMA, products by wgmma.
//
//   out(m, n) = sum over k of A(m, k) B(n, k)       A, B in bf16, K-major or MN-major; see matmul.cu
//
//   Rates      a multiprocessor multiplies and adds 2048 pairs per cycle, but only by wgmma: mma.sync reaches 63 % of that (arXiv 2501.12084).
//              m64n256k16 takes 128 cycles and reads A (2 KB) and B (8 KB) from shared memory, 80 of the 128 bytes there are per cycle;
//              m64n160k16 88, m64n128k16 96; m64n64k16 128 would be all of it. A's share is what wide tiles save.
//   Blocks     one per multiprocessor, as large as its shared memory, and it stays for all its tiles: loads for the next tile run while the
//              last one is stored.
//   Warps      one thread loads, through a ring of stages of 64 k; two warpgroups compute. setmaxnreg moves registers from those who
//              load to those who compute: 40 and 232 of them, of which 128 are accumulators.
//   Clusters   of two blocks, whose tiles lie one above the other and share B: each block loads half of it, for both. 32 KB instead of 48
//              from the L2 per stage of 128 x 256, in which A is the smaller operand. A slot is free when both blocks are done with it.
//   Ping-pong  where k is short, storing a tile costs as much as an eighth of its products (about 1.3 us on an H100, 128 x 256): then each
//              warpgroup has tiles of its own, and stores while the other one computes.
//   Stores     of bf16 go by way of shared memory: a warp puts boxes of 16 x 64 together, and TMA writes them in whole lines of 128 bytes
//              while the warp goes on. From registers it would be half lines, and the warp would wait for the queue of stores.
//   Layouts    wgmma takes K-major and MN-major operands at the same rate: nothing is ever transposed in memory.
//   Splitting  as in matmul.cu: parts of k are tiles of their own, in fp32, added in order by a second kernel. Nothing depends on which
//              block computes a tile, nor on how many blocks there are.
//   Sources    the structure is that of CUTLASS's warp-specialised kernels, DeepGEMM and fast.cu; PTX ISA, wgmma and mbarrier.
//   Emulated   tests/emu runs all of it; LOCKSTEP_TILE=wide, fitting or pingpong takes that tile for every shape, LOCKSTEP_CLUSTER=1 no clusters,
//              LOCKSTEP_STORE=registers no boxes (tests/test_kernels.cpp).
//   See        matmul.cu (which tile when), matmul_plan.cuh, epilogue.cuh, cuda.cuh (the instructions).
#include "matmul_plan.cuh"
#include <algorithm>

namespace BACKEND {

namespace {

constexpr int kStep = 64;                     // k of a stage: 128 bytes, a row of the swizzle
constexpr int kLine = 128;                    // bytes of such a row
constexpr int kThreads = 384;                 // a warpgroup that loads, two that compute
constexpr int kStoreBox = 16 * kLine;         // 16 rows of 64 columns, swizzled like a stage

// One operand of a tile: WIDTH of mn by 64 k. K-major it is one box of WIDTH lines, or two of half as many where two blocks share it;
// MN-major it is a box of 64 lines for every 64 of mn. Of `sharers` blocks each loads some of the boxes, for all.
template <bool MN, int WIDTH> struct OperandSm90 {
    static constexpr int kBoxes = MN ? div_up(WIDTH, 64) : 1, kBox = (MN ? 64 : WIDTH) * kLine, kBytes = kBoxes * kBox;
    static constexpr int kNext16 = (MN ? 16 * kLine : 32) / 16;                  // to the next 16 k, in a descriptor's units of 16 bytes

    static TensorMap map(const bf16* p, int mn, int k, int sharers) {
        return MN ? tensor_map(p, size_t(mn), size_t(k), size_t(mn), 64, 64) : tensor_map(p, size_t(k), size_t(mn), size_t(k), 64, WIDTH / sharers);
    }
    static DEVICE void load(unsigned char* to, const TensorMap* map, uint64_t* full, int mn, int k, int rank, int sharers) {
        const int boxes = MN ? kBoxes : sharers, lines = MN ? 64 : sharers == 1 ? WIDTH : WIDTH / 2;
        for (int i = rank; i < boxes; i += sharers) {
            const int x = MN ? mn + i * 64 : k, y = MN ? k : mn + i * lines;
            if (sharers == 1) tma_load(to + i * lines * kLine, map, full, x, y);
            else tma_load_multicast(to + i * lines * kLine, map, full, x, y, 3);
        }
    }
    // Of the tile from row mn on, a multiple of 64.
    static DEVICE uint64_t descriptor(const unsigned char* tile, int mn) { return wgmma_desc(tile + mn * kLine, kBox, 8 * kLine); }
};

// The dynamic shared memory of a block: the ring's stages; behind them 8 rows of ones to sum rows by, or each warp's boxes. Two of them,
// one to fill while the other is read, where there is room: not beside 160 MN-major columns, which take up 192.
template <class T, bool TA, bool TB, class Epilogue> struct SharedSm90 {
    using OperandA = OperandSm90<TA, T::BM>;
    using OperandB = OperandSm90<TB, T::BN>;
    static constexpr int kStage = OperandA::kBytes + OperandB::kBytes, kStages = T::STAGES * kStage, kMost = 226 * 1024;   // and 1 KB of barriers
    static constexpr int kBoxes = Epilogue::kOutputs == 0 ? 0 : kMost - kStages >= 2 * 8 * kStoreBox ? 2 : 1;
    static constexpr int kBytes = kStages + (TA ? 1024 : 8 * kBoxes * kStoreBox);
    static_assert(kStage % 1024 == 0 && kBytes <= kMost);
};
struct OutputMaps { TensorMap of[2]; };

// Where in the ring a thread is. A stage's barriers end one phase per trip round it.
template <int STAGES> struct Ring {
    int stage = 0;
    unsigned parity = 0;                                                       // of the trip
    DEVICE void advance(int steps) {
        stage += steps;
        parity ^= unsigned(stage / STAGES) & 1u;
        stage %= STAGES;
    }
};

// A tile and a part of k.
struct Work { int m0, n0, tile_n, part, k0, steps; };
template <class T> DEVICE Work work_of(int number, int M, int N, int K, int part) {
    const int tiles_m = div_up(M, T::BM), tiles_n = div_up(N, T::BN), tiles = tiles_m * tiles_n;
    const Place at = place_of(number % tiles, tiles_m, tiles_n);
    const int k0 = number / tiles * part, k_end = K - k0 < part ? K : k0 + part;
    return {at.m * T::BM, at.n * T::BN, at.n, number / tiles, k0, div_up(k_end - k0, kStep)};
}

// sums[x] += the rows of a stage of an MN-major A, as products with ones. In a group of its own: wgmma in both of two branches the compiler
// would make wait for each other (C7515).
template <class OperandA, int MT> DEVICE void sum_rows(float (&sums)[MT][4], const unsigned char* stage, int first_line, const unsigned char* ones) {
    wgmma_fence();
    UNROLL for (int k16 = 0; k16 < kStep / 16; k16++)
        UNROLL for (int x = 0; x < MT; x++)
            wgmma<8, true, false>(sums[x], OperandA::descriptor(stage, first_line + x * 64) + uint64_t(k16 * OperandA::kNext16),
                                  wgmma_desc(ones, 0, 8 * kLine), true);
    wgmma_commit();
}

// What store_sums does, for a warp's 16 rows from m on. Columns that fill no box of 64 go out from registers.
template <int BOXES, int NT, class Epilogue>
DEVICE void store_boxes(const float (&acc)[NT][4], const Epilogue& epilogue, const TensorMap* maps, unsigned char* boxes, int m, int n) {
    constexpr int kWhole = NT / 8;
    const int lane = int(threadIdx.x) % 32, row = m + lane / 4;
    static_assert(kWhole * Epilogue::kOutputs % BOXES == 0);                   // the next tile begins with the same box
    UNROLL for (int i = 0; i < kWhole; i++) {
        typename Epilogue::Old old[4];                                         // [32 columns, 8 rows], as are w
        UNROLL for (int q = 0; q < 4; q++) old[q] = epilogue.fetch(row + q % 2 * 8, n + i * 64 + q / 2 * 32);
        unsigned w[4][4];
        UNROLL for (int q = 0; q < 4; q++) {
            float v[8];
            UNROLL for (int j = 0; j < 8; j++) v[j] = acc[i * 8 + q / 2 * 4 + j / 2][q % 2 * 2 + j % 2];
            if (epilogue.starts()) add_start(v, epilogue, n + i * 64 + q / 2 * 32);
            epilogue.pairs(w[q], v, old[q]);
        }
        UNROLL for (int o = 0; o < Epilogue::kOutputs; o++) {
            unsigned char* const box = boxes + (i * Epilogue::kOutputs + o) % BOXES * kStoreBox;
            if (o > 0) UNROLL for (int q = 0; q < 4; q++) epilogue.next(w[q]);
            tma_store_wait<BOXES - 1>();                                       // lane 0's; stmatrix waits for lane 0
            UNROLL for (int q = 0; q < 4; q++)
                stmatrix_x4(box + (q % 2 * 8 + lane % 8) * kLine + ((q / 2 * 4 + lane / 8) ^ lane % 8) * 16, w[q]);
            async_fence();
            __syncwarp();
            if (lane == 0) {
                tma_store(maps + o, box, n + i * 64, m);
                tma_store_commit();
            }
        }
    }
    if constexpr (NT % 8 > 0)
        store_sums(reinterpret_cast<const float(&)[1][NT % 8][4]>(acc[kWhole * 8]), epilogue, row, n + kWhole * 64, epilogue.starts());
}

// full[s]: the loads into stage s have landed, those of the other block of the cluster too. empty[s]: all who compute with it are done, in
// both blocks, as both load into both. Every warp says so for itself, because what a warp has waited for says nothing of how far the other
// three of its warpgroup are.
template <class T, bool TA, bool TB, class Epilogue>
__global__ void __launch_bounds__(kThreads, 1)
matmul_sm90_kernel(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, const __grid_constant__ OutputMaps maps_out,
                   Epilogue epilogue, float* row_sums, int M, int N, int K, int part, int works, int turns, int cluster, bool in_boxes) {
    if (!kSm90a) return;
    using Shared = SharedSm90<T, TA, TB, Epilogue>;
    using OperandA = typename Shared::OperandA;
    using OperandB = typename Shared::OperandB;
    constexpr bool kSplits = TA;                                               // dweight
    constexpr int kStage = Shared::kStage;
    DYNAMIC_SHARED(stages);
    SHARED(uint64_t, full, T::STAGES);
    SHARED(uint64_t, empty, T::STAGES);
    unsigned char* const ones = stages + Shared::kStages;                      // 8 rows of 64, to sum rows by

    if (threadIdx.x == 0) {
        for (int s = 0; s < T::STAGES; s++) {
            mbar_init(full + s, 1);
            mbar_init(empty + s, (T::kPingPong ? 4 : 8) * cluster);
        }
        mbar_fence_init();
        tma_prefetch(&map_a), tma_prefetch(&map_b);
        if constexpr (Shared::kBoxes > 0)
            for (int i = 0; i < Epilogue::kOutputs && in_boxes; i++) tma_prefetch(maps_out.of + i);
    }
    if constexpr (kSplits) {
        if (threadIdx.x < 256) reinterpret_cast<unsigned*>(ones)[threadIdx.x] = 0x3f803f80u;
        async_fence();
    }
    cluster_sync();
    grid_dependency_sync();

    const int group = int(threadIdx.x) / 128, lane = int(threadIdx.x) % 32;
    Ring<T::STAGES> ring;
    if (group == 0) {
        registers_down<40>();
        const int rank = int(cluster_rank());
        if (threadIdx.x == 0)
            for (int number = int(blockIdx.x); number < works; number += int(gridDim.x)) {
                const Work work = work_of<T>(number, M, N, K, part);
                for (int step = 0; step < work.steps; step++) {
                    mbar_wait(empty + ring.stage, ring.parity ^ 1);            // on the first trip they pass at once
                    mbar_arrive(full + ring.stage, kStage);
                    unsigned char* const to = stages + ring.stage * kStage;
                    OperandA::load(to, &map_a, full + ring.stage, work.m0, work.k0 + step * kStep, 0, 1);
                    OperandB::load(to + OperandA::kBytes, &map_b, full + ring.stage, work.n0, work.k0 + step * kStep, rank, cluster);
                    ring.advance(1);
                }
            }
        return;
    }

    registers_up<232>();
    const int own = group - 1, first_line = T::kPingPong ? 0 : own * 64 * T::MT;       // of the warpgroup, in a tile
    const int first_row = first_line + int(threadIdx.x) % 128 / 32 * 16 + lane / 4;     // of the thread
    const auto let_go = [&](uint64_t* slot) {
        if (cluster > 1 && lane < cluster) mbar_arrive_at(slot, unsigned(lane));
        else if (lane == 0) mbar_arrive(slot);
    };
    float acc[T::MT][T::BN / 2], sums[T::MT][4];
    int turn_of = 0;                                                           // ping-pong: whose tile this is
    for (int number = int(blockIdx.x); number < works; number += int(gridDim.x), turn_of ^= 1) {
        const Work work = work_of<T>(number, M, N, K, part);
        if constexpr (T::kPingPong) {
            if (turn_of != own) {
                ring.advance(work.steps);
                continue;
            }
            // The other one has seen all its stages full. Before that, a wait could take an earlier trip's phase for the one it means.
            if (number != int(blockIdx.x)) bar_sync(1 + own, 256);
        }
        // The tiles with these rows take turns at summing them, step by step; those beyond kTurns have none.
        const bool sums_rows = kSplits && row_sums && work.tile_n < turns;
        int until_turn = work.tile_n;                                          // steps
        UNROLL for (int i = 0; i < 4 * T::MT; i++) sums[i / 4][i % 4] = 0;

        uint64_t* release = nullptr;                                           // the stage whose products are not yet waited for
        for (int step = 0; step < work.steps; step++) {
            const bool my_turn = kSplits && sums_rows && until_turn == 0;
            if constexpr (kSplits) until_turn = until_turn == 0 ? turns - 1 : until_turn - 1;
            mbar_wait(full + ring.stage, ring.parity);
            const unsigned char* const stage = stages + ring.stage * kStage;
            const uint64_t b = OperandB::descriptor(stage + OperandA::kBytes, 0);
            wgmma_fence();
            UNROLL for (int k16 = 0; k16 < kStep / 16; k16++)
                UNROLL for (int x = 0; x < T::MT; x++) {
                    const uint64_t a = OperandA::descriptor(stage, first_line + x * 64) + uint64_t(k16 * OperandA::kNext16);
                    wgmma<T::BN, TA, TB>(acc[x], a, b + uint64_t(k16 * OperandB::kNext16), step + k16 > 0);
                }
            wgmma_commit();
            wgmma_wait<1>();                                                   // this step's products go on while the last one's stage is let go
            if constexpr (kSplits)
                if (my_turn) sum_rows<OperandA>(sums, stage, first_line, ones);
            if (release) let_go(release);
            release = empty + ring.stage;
            ring.advance(1);
        }
        UNROLL for (int x = 0; x < T::MT; x++) wgmma_wait<0>(acc[x], sums[x]);
        let_go(release);
        if constexpr (T::kPingPong)
            if (number + int(gridDim.x) < works) bar_arrive(2 - own, 256);

        Epilogue mine = epilogue;
        if constexpr (kSplits) {
            mine.out += size_t(work.part) * size_t(M) * size_t(N);
            if (sums_rows && lane % 4 == 0) {                                  // all eight columns are the same
                float* const out = row_sums + (size_t(work.part) * size_t(turns) + size_t(work.tile_n)) * size_t(M);
                UNROLL for (int r = 0; r < 2 * T::MT; r++) {
                    const int m = work.m0 + first_row + r / 2 * 64 + r % 2 * 8;
                    if (m < M) out[m] = sums[r / 2][r % 2 * 2];
                }
            }
        }
        UNROLL for (int x = 0; x < T::MT; x++) {
            const int row = work.m0 + first_row + x * 64;
            if constexpr (Shared::kBoxes > 0)
                if (in_boxes) {
                    unsigned char* const boxes = stages + Shared::kStages + (int(threadIdx.x) / 32 - 4) * Shared::kBoxes * kStoreBox;
                    store_boxes<Shared::kBoxes>(reinterpret_cast<const float(&)[T::BN / 8][4]>(acc[x]), mine, maps_out.of, boxes, row - lane / 4, work.n0);
                    continue;
                }
            store_sums(reinterpret_cast<const float(&)[1][T::BN / 8][4]>(acc[x]), mine, row, work.n0, epilogue.starts());
        }
    }
    tma_store_wait<0>();                                                       // TMA has read the last boxes
    if (cluster > 1) cluster_sync();                                           // the other block's last arrivals are on their way here
}

// Two, where the number of tiles along m is even: place_of then numbers them so that 2 i and 2 i + 1 lie one above the other, in the same
// part of k, and blocks 2 i and 2 i + 1 have as many tiles as each other. Nothing of it shows in the bits.
int cluster_of(int tiles_m, int blocks) { return tiles_m % 2 || blocks < 2 || asked("LOCKSTEP_CLUSTER", "1") ? 1 : 2; }

}  // namespace

template <bool TA, bool TB, class T, class Epilogue>
void run_sm90(const bf16* A, const bf16* B, const Epilogue& epilogue, float* row_sums, int M, int N, int K, const Plan& plan, Stream stream) {
    using Shared = SharedSm90<T, TA, TB, Epilogue>;
    const int tiles_m = div_up(M, T::BM), works = tiles_m * div_up(N, T::BN) * plan.parts, blocks = std::min(works, multiprocessors());
    const int cluster = cluster_of(tiles_m, blocks);
    OutputMaps maps = {};
    if constexpr (Shared::kBoxes > 0)
        for (int i = 0; i < Epilogue::kOutputs; i++) maps.of[i] = tensor_map(epilogue.output(i), size_t(N), size_t(M), size_t(N), 64, 16);
    launch_clusters(unsigned(cluster), matmul_sm90_kernel<T, TA, TB, Epilogue>, unsigned(blocks / cluster * cluster), kThreads, Shared::kBytes, stream,
                    Shared::OperandA::map(A, M, K, 1), Shared::OperandB::map(B, N, K, cluster), maps, epilogue, row_sums, M, N, K, plan.part, works,
                    plan.turns, cluster, !asked("LOCKSTEP_STORE", "registers"));
}

#define RUN(T, TA, TB, Epilogue) \
    template void run_sm90<TA, TB, T>(const bf16*, const bf16*, const Epilogue&, float*, int, int, int, const Plan&, Stream);
#define RUN_ALL(T) \
    RUN(T, false, false, Store) RUN(T, false, false, StoreGelu) RUN(T, false, true, Store) RUN(T, false, true, StoreGeluBackward) \
    RUN(T, true, true, StoreFloat)
RUN_ALL(Wide)
RUN_ALL(Fitting)
RUN_ALL(PingPong)
#undef RUN
#undef RUN_ALL

}  // namespace BACKEND
