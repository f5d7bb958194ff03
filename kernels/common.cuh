// common.cuh -- what every CUDA kernel starts from: the machine's instructions as functions, and the few helpers they all share.
//
// The .cu files are compiled twice: by nvcc (cuda.cuh below holds the device bodies, PTX included), and by the host compiler against
// tests/emu, where each CUDA thread is a fiber and every instruction has an emulated body. A kernel therefore holds no inline assembly,
// no <<<>>> and no plain __shared__. The words both sides give:
//
//   DEVICE, UNROLL                  inline device function; unroll the loop that follows
//   SHARED(T, name, n)              T name[n] in static shared memory, with the alignment of a T and no more
//   DYNAMIC_SHARED(name)            unsigned char* name: the launch's dynamic shared memory, 1024-byte aligned
//   launch(kernel, grid, block, smem, stream, args...)      asynchronous; more than 48 KB of smem is asked for here
//   grid_dependency_sync()          every thread of every kernel, before it touches global memory and before it returns: waits for the kernel
//                                   before. From sm_90 on a kernel's blocks take their places while the last of those before still run
//
// Why that is right: the wait ends when the kernel before has completed, with all it wrote visible. That one waited in turn before any of its
// threads returned, so whatever came earlier is complete too, and nothing is read too early or overwritten before it was read. What
// comes before the wait (indices, barriers in shared memory, descriptors) depends on arguments alone. Only a kernel right behind another in
// its stream begins early; behind a copy, an event or a graph's begin it is launched as ever (runtime.cu). The emulator checks every launch.
//
//   ldmatrix_x4<TRANS>(r, row)      four 8x8 matrices of bf16; lanes 8i..8i+7 point at the rows of matrix i. Lane t gets elements
//                                   (t/4, t%4*2) and its right neighbour of each; with TRANS, of the transposes
//   mma_m16n8k16(d, a, b)           d += a b. fp32 += bf16 x bf16. d: rows t/4 and t/4+8, columns t%4*2 and +1
//   exp2_fast(x)                    2^x, relative error 2^-22; 0 where that is below 2^-126
//   pack2(low, high)                both rounded to bf16 in one register, as the tensor cores take neighbours: `low` has the smaller index
//   cp_async16(dst, src, valid)     16 bytes, global to shared, both 16-byte aligned; zeros where !valid (src is then not read)
//   cp_async_commit(), cp_async_wait<N>()    all but this thread's newest N groups have landed
//
// and, for Hopper, mbarriers, TMA loads and wgmma: cuda.cuh lists them.
#pragma once
#include <cstdlib>
#include <cstring>
#include "types.h"
#ifdef __CUDACC__
#include "cuda.cuh"
#else
#include "emu.h"
#endif
#include "rng.h"

namespace BACKEND {

// bf16 is the upper half of a float. Rounding is to nearest even; a NaN stays one.
DEVICE float to_float(bf16 x) { return __uint_as_float(unsigned(x.bits) << 16); }
DEVICE bf16 to_bf16(float x) { return {uint16_t(pack2(x, 0.0f))}; }
DEVICE float low2(unsigned u) { return __uint_as_float(u << 16); }
DEVICE float high2(unsigned u) { return __uint_as_float(u & 0xffff0000u); }

// Eight bf16 = 16 bytes, the widest load there is. Memory is 16-byte aligned.
struct Pack8 { float x[8]; };
DEVICE Pack8 load8(const bf16* p) {
    const uint4 u = *reinterpret_cast<const uint4*>(p);
    return {{low2(u.x), high2(u.x), low2(u.y), high2(u.y), low2(u.z), high2(u.z), low2(u.w), high2(u.w)}};
}
DEVICE void store8(bf16* p, const Pack8& v) {
    *reinterpret_cast<uint4*>(p) = {pack2(v.x[0], v.x[1]), pack2(v.x[2], v.x[3]), pack2(v.x[4], v.x[5]), pack2(v.x[6], v.x[7])};
}

// Sum and maximum over a warp, the same bits in every lane: a butterfly, so the order is fixed.
DEVICE float warp_sum(float x) {
    for (int o = 16; o; o /= 2) x += __shfl_xor_sync(~0u, x, o);
    return x;
}
DEVICE float warp_max(float x) {
    for (int o = 16; o; o /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, o));
    return x;
}

// Element i of the array a dropout site covers: x / (1 - rate) if it is kept, else 0. For eight neighbours at once, i a multiple of 8.
DEVICE void dropout8(const Dropout& drop, uint64_t i, Pack8* v) {
    const float keep = 1.0f - drop.rate;
    for (int half = 0; half < 2; half++) {
        const Random4 r = random4({drop.state->seed, drop.purpose, drop.state->step, drop.leaf}, i / 4 + uint64_t(half));
        for (int k = 0; k < 4; k++) v->x[half * 4 + k] = uniform01(r.v[k]) >= drop.rate ? v->x[half * 4 + k] / keep : 0.0f;
    }
}

// The device is a Hopper, and the build has code for what no other has: wgmma. LOCKSTEP_PORTABLE=1 says no, to compare.
bool hopper();
int multiprocessors();

// Whether the environment has this value of a switch, all of which are there to measure and to test.
inline bool asked(const char* name, const char* value) {
    const char* const given = std::getenv(name);
    return given && !std::strcmp(given, value);
}

// Scratch memory of a stream, grown when a larger piece is asked for: what one op leaves in it the next may overwrite.
void* scratch(size_t bytes, Stream stream);

template <class T> constexpr T div_up(T a, T b) { return (a + b - 1) / b; }

}  // namespace BACKEND
