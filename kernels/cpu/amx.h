// amx.h -- packing and the micro-kernel with the tile
// registers of AMX: packed operands are bf16, sums are fp32.
//
// A block of the output is 32 x 32: four registers hold its sums, two hold a and two b. A panel has
// 32 lanes (rows of a, columns of b) and k in steps of 32: [k / 32][2 tiles of 16 lanes][1 KiB]. A
// tile of a is [lane][32 k], of b [pair of k][lane][2]. Missing lanes and k are zeros. (Intel 64
// Optimization Reference Manual, chapter on AMX.)
#pragma once
#ifdef TILES        // by a test: the instructions in software
#include TILES
#else

// The instructions of AMX: eight registers of 16 rows of 64 bytes. They are in assembly, because
// the compilers' own functions do not say that they read and write memory.
namespace BACKEND::ISA {

// Sets the registers' shapes, 64 bytes (Intel SDM, LDTILECFG).
// Until tile_release a context switch saves the registers.
INLINE void tile_config(const void* shapes) {
    asm volatile("ldtilecfg (%0)" : : "r"(shapes) : "memory");
}
INLINE void tile_release() { asm volatile("tilerelease"); }

template <int T> INLINE void tile_zero() { asm volatile("tilezero %%tmm%c0" : : "i"(T)); }
// Row r of the tile is at p + r * stride bytes.
template <int T> INLINE void tile_load(const void* p, size_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(p), "r"(stride), "i"(T) : "memory");
}
template <int T> INLINE void tile_store(void* p, size_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(p), "r"(stride), "i"(T) : "memory");
}

// Computes C (16,16) fp32 += A (16,32) bf16 B (32,16); B is stored
// as [pair of k][column][2]. Products of even k and of odd k are
// summed apart, by fused multiply-adds from 0. Then c += even + odd.
template <int C, int A, int B> INLINE void tile_product() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
}

}  // namespace BACKEND::ISA
#endif

namespace BACKEND::ISA {

constexpr int kTile = 512;                              // elements of a tile

typedef uint32_t Pairs __attribute__((vector_size(64)));    // a row of a tile
typedef uint32_t PairsAt __attribute__((vector_size(64), aligned(2), may_alias));
typedef uint16_t Lanes __attribute__((vector_size(32), aligned(2), may_alias));

struct Shapes { uint8_t palette, start_row, zeros[14]; uint16_t row_bytes[16]; uint8_t rows[16]; };
INLINE void begin_products() {
    static const Shapes shapes = {1, 0, {}, {64, 64, 64, 64, 64, 64, 64, 64},
                                  {16, 16, 16, 16, 16, 16, 16, 16}};
    tile_config(&shapes);
}
INLINE void end_products() { tile_release(); }

// Packs one tile. If kByLane, lane i is at x + i * ld, else k is at x + k * ld. kSwap transposes: b
// needs that if kByLane is true, and a if it is false.
template <bool kByLane, bool kSwap>
INLINE void pack_tile(bf16* tile, const bf16* x, size_t ld, int lanes, int K) {
    constexpr int kOuter = kByLane ? 16 : 32, kInner = kByLane ? 32 : 16;
    const int outer = kByLane ? lanes : K, inner = kByLane ? K : lanes;
    alignas(64) bf16 whole[kTile];
    if (outer < kOuter || inner < kInner) {                                 // at the edges
        memset(whole, 0, sizeof whole);
        for (int i = 0; i < min(outer, kOuter); i++)
            memcpy(whole + i * kInner, x + i * ld,
                   size_t(max(0, min(inner, kInner))) * sizeof(bf16));
        x = whole;
        ld = kInner;
    }
    Pairs rows[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        const auto lanes_of = [&](int k) {
            return __builtin_convertvector(*reinterpret_cast<const Lanes*>(x + k * ld), Pairs);
        };
        if constexpr (kByLane) rows[i] = *reinterpret_cast<const PairsAt*>(x + i * ld);
        else rows[i] = lanes_of(2 * i) | lanes_of(2 * i + 1) << 16;
    }
    if (kSwap) interleave<16>(rows, 4, std::make_integer_sequence<int, 16>());
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) *reinterpret_cast<PairsAt*>(tile + i * 32) = rows[i];
}

template <bool kOfB, bool kLanesAreRows>
static void pack_panel(bf16* panel, const bf16* x, size_t ld, int lanes, int K) {
    for (int k = 0; k < K; k += kStep)
        for (int lane = 0; lane < 32; lane += 16, panel += kTile) {
            const bf16* from = kLanesAreRows ? x + lane * ld + k : x + k * ld + lane;
            pack_tile<kLanesAreRows, kLanesAreRows == kOfB>(panel, from, ld, lanes - lane, K - k);
        }
}

// Returns where the pair (k, k + 1) of column `lane` is in a panel of b, counted in pairs.
INLINE int pair_at(int k, int lane) {
    return k / kStep * kTile + lane / 16 * (kTile / 2) + k % kStep / 2 * 16 + lane % 16;
}

// Computes tile[32][32] = before[32][32], or 0 if that is
// null, + the sum over k of a[:][k] b[k][:].
static void micro_kernel(float* tile, const float* before, const bf16* a, size_t, const bf16* b,
                         const void*, int k, int, int) {
    constexpr size_t kStride = kCols * sizeof(float);
    if (before) {
        tile_load<0>(before, kStride);
        tile_load<1>(before + 16, kStride);
        tile_load<2>(before + 16 * kCols, kStride);
        tile_load<3>(before + 16 * kCols + 16, kStride);
    } else {
        tile_zero<0>();
        tile_zero<1>();
        tile_zero<2>();
        tile_zero<3>();
    }
    for (; k > 0; k -= kStep, a += 2 * kTile, b += 2 * kTile) {
        tile_load<4>(a, 64);
        tile_load<6>(b, 64);
        tile_product<0, 4, 6>();
        tile_load<7>(b + kTile, 64);
        tile_product<1, 4, 7>();
        tile_load<5>(a + kTile, 64);
        tile_product<2, 5, 6>();
        tile_product<3, 5, 7>();
    }
    tile_store<0>(tile, kStride);
    tile_store<1>(tile + 16, kStride);
    tile_store<2>(tile + 16 * kCols, kStride);
    tile_store<3>(tile + 16 * kCols + 16, kStride);
}

}  // namespace BACKEND::ISA
