// matmul_plan.cuh -- how a matmul is cut into tiles and parts: what matmul.cu (every GPU) and matmul_sm90.cu (Hopper) share.
#pragma once
#include "common.cuh"
#include "epilogue.cuh"

namespace BACKEND {

// tile: index into matmul.cu's table. part: k of each of the parts, the last may have fewer. turns: blocks or warps that share the sums of
// a row of dout.
struct Plan { int tile, part, parts, turns; };

constexpr int kTurns = 8;                     // at most

// Tiles are walked in bands of 16 along m, down each column of a band: the blocks that run at one time then form a square, more or less,
// and share the operands they read in L2.
constexpr int kBand = 16;
struct Place { int m, n; };                   // in tiles
DEVICE Place place_of(int tile, int tiles_m, int tiles_n) {
    const int band = tile / (kBand * tiles_n) * kBand, height = tiles_m - band < kBand ? tiles_m - band : kBand;
    const int in_band = tile % (kBand * tiles_n);
    return {band + in_band % height, in_band / height};
}

// The tiles of matmul_sm90.cu. A block has a warpgroup that loads and two that compute: the two halves of one tile, or, ping-pong, each a
// tile of its own in turn, so that one stores while the other multiplies.
template <int BM_, int BN_, int STAGES_, bool PING_PONG_> struct TileSm90 {
    static constexpr int BM = BM_, BN = BN_, STAGES = STAGES_;
    static constexpr bool kPingPong = PING_PONG_;
    static constexpr int MT = BM / 64 / (kPingPong ? 1 : 2);                      // pieces of 64 rows that a warpgroup owns
};
using Wide = TileSm90<128, 256, 4, false>;
using Fitting = TileSm90<128, 160, 5, false>;     // 1600 = 10 x 160
using PingPong = TileSm90<128, 128, 6, true>;

// Starts matmul_sm90.cu's kernel: what matmul_kernel computes, `epilogue` and `row_sums` as there.
template <bool TA, bool TB, class T, class Epilogue>
void run_sm90(const bf16* A, const bf16* B, const Epilogue& epilogue, float* row_sums, int M, int N, int K, const Plan& plan, Stream stream);

}  // namespace BACKEND
