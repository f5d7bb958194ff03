// tiles.h -- the instructions of AMX: eight registers of 16 rows of 64 bytes. tests/tiles.h has them in software.
// They are in assembly, because the compilers' own functions do not say that they read and write memory.
#pragma once

namespace BACKEND::ISA {

// Sets the registers' shapes, 64 bytes (Intel SDM, LDTILECFG). Until tile_release a context switch saves the registers.
INLINE void tile_config(const void* shapes) { asm volatile("ldtilecfg (%0)" : : "r"(shapes) : "memory"); }
INLINE void tile_release() { asm volatile("tilerelease"); }

template <int T> INLINE void tile_zero() { asm volatile("tilezero %%tmm%c0" : : "i"(T)); }
// Row r of the tile is at p + r * stride bytes.
template <int T> INLINE void tile_load(const void* p, size_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(p), "r"(stride), "i"(T) : "memory");
}
template <int T> INLINE void tile_store(void* p, size_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(p), "r"(stride), "i"(T) : "memory");
}

// Computes C (16,16) fp32 += A (16,32) bf16 B (32,16); B is stored as [pair of k][column][2]. Products
// of even k and of odd k are summed apart, by fused multiply-adds from 0. Then c += even + odd.
template <int C, int A, int B> INLINE void tile_product() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
}

}  // namespace BACKEND::ISA
