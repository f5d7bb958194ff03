// matmul_sm90.cu -- the matrix products of matmul.cu on Hopper: operands by TMA, products by wgmma.
//
// Blocks are persistent, one per multiprocessor: loads for the next tile run while the last one is
// stored. No result depends on which block computes a tile. One thread loads, through a ring of
// stages of 64 k. Two warpgroups compute; their threads have 232 registers, of which 128 are
// accumulators. Tiles are wide, because m64n256k16 reads 80 of the 128 bytes per cycle that shared
// memory delivers, and m64n128k16 reads 96. At k = 768 storing takes a seventh of the products'
// time: with ping-pong each warpgroup has its own tiles and stores while the other computes.
#include <algorithm>
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/matmul.cuh"

namespace BACKEND {
namespace {

constexpr int kStep = 64;  // k of a stage, 128 bytes: one row of the swizzle
constexpr int kLine = 128;  // bytes of such a row
constexpr int kThreads = 384;  // a warpgroup that loads, two that compute

// One operand of a tile, WIDTH of mn by 64 k. If K-major it is one box of
// WIDTH lines, if MN-major it is a box of 64 lines for every 64 of mn.
template <bool MN, int WIDTH> struct OperandSm90 {
    static constexpr int kBoxes = MN ? div_up(WIDTH, 64) : 1, kLines = MN ? 64 : WIDTH;
    static constexpr int kBytes = kBoxes * kLines * kLine;
    // To the next 16 k, in a descriptor's units
    static constexpr int kNext16 = (MN ? 16 * kLine : 32) / 16;

    static CUtensorMap map(const bf16* p, int mn, int k) {
        return MN ? tensor_map(p, mn, k, mn, 64, 64) : tensor_map(p, k, mn, k, 64, WIDTH);
    }
    static __device__ void load(unsigned char* to, const CUtensorMap* map, uint64_t* full, int mn,
                                int k) {
        for (int i = 0; i < kBoxes; i++)
            tma_load(to + i * kLines * kLine, map, full, MN ? mn + i * 64 : k, MN ? k : mn);
    }
    // Returns wgmma's descriptor of the tile from row mn
    // on, a multiple of 64, and of its k from 16 k16 on.
    static __device__ uint64_t descriptor(const unsigned char* tile, int mn, int k16) {
        return wgmma_desc(tile + mn * kLine, kLines * kLine, 8 * kLine) + uint64_t(k16 * kNext16);
    }
};

// Work is a tile and a part of k. Numbers run over the
// tiles of part 0, then over those of part 1, and so on.
struct Work { int m0, n0, tile_n, part, k0, steps; };
template <class T> __device__ Work work_of(int number, const Product& p) {
    const int tiles_m = div_up(p.M, T::BM), tiles_n = div_up(p.N, T::BN), tiles = tiles_m * tiles_n;
    const Place at = place_of(number % tiles, tiles_m, tiles_n);
    const int k0 = number / tiles * p.plan.part,
              k_end = p.K - k0 < p.plan.part ? p.K : k0 + p.plan.part;
    return {at.m * T::BM, at.n * T::BN, at.n, number / tiles, k0, div_up(k_end - k0, kStep)};
}

// sums[x] += the sum over k of the rows of A (MN-major) in a stage,
// by products with ones. These are a group of their own: with wgmma
// in two branches the compiler would serialise all of them (C7515).
template <class OperandA, int MT>
__device__ void sum_rows(float (&sums)[MT][4], const unsigned char* stage, int first_line,
                         const unsigned char* ones) {
    wgmma_fence();
    for (int k16 = 0; k16 < kStep / 16; k16++) for (int x = 0; x < MT; x++)
        wgmma<8, true, false>(sums[x], OperandA::descriptor(stage, first_line + x * 64, k16),
                              wgmma_desc(ones, 0, 8 * kLine), true);
    wgmma_commit();
}

template <class T, bool TA, bool TB, class Epilogue> __global__ void __launch_bounds__(kThreads, 1)
matmul_sm90_kernel(const __grid_constant__ CUtensorMap map_a,
                   const __grid_constant__ CUtensorMap map_b, Epilogue epilogue, Product p,
                   int works) {
    if (!kSm90a) return;
    using OperandA = OperandSm90<TA, T::BM>;
    using OperandB = OperandSm90<TB, T::BN>;
    constexpr bool kSplits = TA;  // for dweight
    constexpr int kStage = OperandA::kBytes + OperandB::kBytes;
    extern __shared__ __align__(1024) unsigned char stages[];
    __shared__ uint64_t bars[2 * T::STAGES + 1];
    unsigned char* const ones = stages + T::STAGES * kStage;  // 8 rows of ones, for sum_rows
    if constexpr (kSplits) {
        if (threadIdx.x < 256) reinterpret_cast<unsigned*>(ones)[threadIdx.x] = 0x3f803f80u;
        async_fence();
    }
    Ring<T::STAGES> ring = {bars};
    ring.begin(1, T::kPingPong ? 4 : 8, &map_a, &map_b);

    const int group = warpgroup();
    if (group == 0) {
        registers_down<40>();
        if (threadIdx.x == 0)
            for (int number = int(blockIdx.x); number < works; number += int(gridDim.x)) {
                const Work work = work_of<T>(number, p);
                for (int step = 0; step < work.steps; step++) {
                    const int slot = ring.fill(), k = work.k0 + step * kStep;
                    mbar_arrive(ring.full(slot), kStage);
                    OperandA::load(stages + slot * kStage, &map_a, ring.full(slot), work.m0, k);
                    OperandB::load(stages + slot * kStage + OperandA::kBytes, &map_b,
                                   ring.full(slot), work.n0, k);
                }
            }
        return;
    }

    registers_up<232>();
    // The warpgroup's first row
    const int own = group - 1, first_line = T::kPingPong ? 0 : own * 64 * T::MT;
    // The lane's first row in a tile
    const int first_row = first_line + warp() % 4 * 16 + lane() / 4;
    uint64_t a[T::MT];  // descriptors in the first stage
    for (int x = 0; x < T::MT; x++) a[x] = OperandA::descriptor(stages, first_line + x * 64, 0);
    const uint64_t b = OperandB::descriptor(stages + OperandA::kBytes, 0, 0);
    float acc[T::MT][T::BN / 2], sums[T::MT][4];
    int turn_of = 0;  // ping-pong: the warpgroup that computes this tile
    for (int number = int(blockIdx.x); number < works; number += int(gridDim.x), turn_of ^= 1) {
        const Work work = work_of<T>(number, p);
        if constexpr (T::kPingPong) {
            if (turn_of != own) {
                ring.turn += unsigned(work.steps);
                continue;
            }
            // The other warpgroup has to take all of its stages first. Before
            // that, a wait could return for an earlier phase of the slot.
            if (number != int(blockIdx.x)) bar_sync<256>(own);
        }
        if constexpr (Epilogue::kAhead) {       // a thread asks for 16 columns of a row at a time
            constexpr int kPieces = T::BN / 16;
            for (int i = int(threadIdx.x) % 128; i < T::MT * 64 * kPieces; i += 128)
                epilogue.ahead(work.m0 + first_line + i / kPieces, work.n0 + i % kPieces * 16);
        }
        Turns turns(p, work.tile_n);
        for (int i = 0; i < 4 * T::MT; i++) sums[i / 4][i % 4] = 0;

        int last = -1;  // the slot whose products are in flight
        for (int step = 0; step < work.steps; step++) {
            const bool sums_rows = kSplits && turns.next(p);
            const int slot = ring.take();
            const unsigned char* const stage = stages + slot * kStage;
            const unsigned at = unsigned(slot * (kStage / 16));
            wgmma_fence();
            #pragma unroll
            for (int k16 = 0; k16 < kStep / 16; k16++)
                #pragma unroll
                for (int x = 0; x < T::MT; x++)
                    wgmma<T::BN, TA, TB>(acc[x], desc_later(a[x], at + k16 * OperandA::kNext16),
                                         desc_later(b, at + k16 * OperandB::kNext16),
                                         step + k16 > 0);
            wgmma_commit();
            wgmma_wait<1>();  // the previous step's products are done
            if constexpr (kSplits)
                if (sums_rows) sum_rows<OperandA>(sums, stage, first_line, ones);
            if (last >= 0) ring.release(last);
            last = slot;
        }
        if constexpr (T::kPingPong)     // now the other warpgroup's products may begin
            if (number + int(gridDim.x) < works) bar_arrive<256>(1 - own);
        const Starts<Epilogue, T::BN / 8> starts(epilogue, work.n0);
        for (int x = 0; x < T::MT; x++) wgmma_wait<0>(acc[x], sums[x]);
        ring.release(last);

        Epilogue mine = epilogue;
        if constexpr (kSplits) {
            mine.out += size_t(work.part) * p.M * p.N;
            turns.store<64>(p, sums, work.part, work.m0 + first_row);
        }
        const auto& tile = reinterpret_cast<const float(&)[T::MT][T::BN / 8][4]>(acc);
        store_sums<64>(tile, starts, mine, work.m0 + first_row, work.n0);
    }
}

}  // namespace

template <bool TA, bool TB, class T, class Epilogue>
void run_sm90(const Product& p, const Epilogue& epilogue, Stream stream) {
    using OperandA = OperandSm90<TA, T::BM>;
    using OperandB = OperandSm90<TB, T::BN>;
    constexpr int kBytes = T::STAGES * (OperandA::kBytes + OperandB::kBytes) + (TA ? 1024 : 0);
    static_assert(OperandA::kBytes % 1024 == 0 && OperandB::kBytes % 1024 == 0 &&
                  kBytes <= 226 * 1024);
    const int works = div_up(p.M, T::BM) * div_up(p.N, T::BN) * p.plan.parts;
    launch(matmul_sm90_kernel<T, TA, TB, Epilogue>, std::min(works, multiprocessors()), kThreads,
           kBytes, stream, OperandA::map(p.A, p.M, p.K), OperandB::map(p.B, p.N, p.K), epilogue, p,
           works);
}

#define RUN(T, TA, TB, Epilogue) \
    template void run_sm90<TA, TB, T>(const Product&, const Epilogue&, Stream);
#define RUN_ALL(T)                                                                \
    RUN(T, false, false, StoreBf16<kPlain>)                                       \
    RUN(T, false, true, StoreBf16<kPlain>) RUN(T, false, false, StoreBf16<kGelu>) \
        RUN(T, false, true, StoreBf16<kGeluBackward>) RUN(T, true, true, StoreFloat)
RUN_ALL(Wide)
RUN_ALL(PingPong)
RUN(Fitting, true, true, StoreFloat)

}  // namespace BACKEND
