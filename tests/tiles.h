// tiles.h -- the tile instructions of kernels/cpu/amx.h in software, for tests on machines without AMX: the same bits.
// Traps where the processor would, and where rows are not in whole cache lines, which would only be slow.
#pragma once

namespace BACKEND::ISA {

struct Tile {
    alignas(64) char row[16][64];
};
static thread_local Tile tiles[8];
static thread_local bool configured;

INLINE void expect(bool good) {
    if (!good) __builtin_trap();
}

INLINE void tile_config(const void* shapes) {
    const char* byte = static_cast<const char*>(shapes);
    expect(byte[0] == 1 && byte[1] == 0);
    for (int t = 0; t < 8; t++) expect(byte[16 + 2 * t] == 64 && byte[17 + 2 * t] == 0 && byte[48 + t] == 16);
    memset(tiles, 0, sizeof tiles);
    configured = true;
}
INLINE void tile_release() { configured = false; }

template <int T>
INLINE void tile_zero() {
    expect(configured);
    memset(&tiles[T], 0, sizeof(Tile));
}
template <int T>
INLINE void tile_load(const void* p, size_t stride) {
    expect(configured && (uintptr_t(p) | stride) % 64 == 0);
    for (int r = 0; r < 16; r++) memcpy(tiles[T].row[r], static_cast<const char*>(p) + size_t(r) * stride, 64);
}
template <int T>
INLINE void tile_store(void* p, size_t stride) {
    expect(configured && (uintptr_t(p) | stride) % 64 == 0);
    for (int r = 0; r < 16; r++) memcpy(static_cast<char*>(p) + size_t(r) * stride, tiles[T].row[r], 64);
}

static void tile_product(Tile* c, const Tile* a, const Tile* b) {
    expect(configured);
    const auto value = [](bf16 x) { return std::bit_cast<float>(uint32_t(x.bits) << 16); };
    for (int m = 0; m < 16; m++) {
        const bf16* a_m = reinterpret_cast<const bf16*>(a->row[m]);
        float* c_m = reinterpret_cast<float*>(c->row[m]);
        float sums[2][16] = {};
        for (int k = 0; k < 16; k++)
            for (int odd = 0; odd < 2; odd++) {
                const bf16* b_k = reinterpret_cast<const bf16*>(b->row[k]) + odd;
                for (int n = 0; n < 16; n++)
                    sums[odd][n] = __builtin_fmaf(value(a_m[2 * k + odd]), value(b_k[2 * n]), sums[odd][n]);
            }
        for (int n = 0; n < 16; n++) c_m[n] += sums[0][n] + sums[1][n];
    }
}
template <int C, int A, int B>
INLINE void tile_product() {
    tile_product(&tiles[C], &tiles[A], &tiles[B]);
}

}  // namespace BACKEND::ISA
