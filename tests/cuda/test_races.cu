// test_races.cu -- the software GPU names every race of these kernels, and none of their twins, whatever the order in
// which warps and lanes happen to run.
#include "tests/cuda/planted.h"

using namespace BACKEND;

namespace {

// Each kernel has the fault where FAULT, and is right elsewhere.
template <bool FAULT> __global__ void no_syncwarp(float* x, const float*) {
    __shared__ float s[64];
    s[threadIdx.x] = x[place()];
    if (!FAULT) __syncwarp();
    x[place()] = s[threadIdx.x ^ 1];
}
template <bool FAULT> __global__ void syncwarp_of_others(float* x, const float*) {
    __shared__ float s[64];
    const unsigned half = threadIdx.x & 16;
    s[threadIdx.x] = x[place()];
    if (half) __syncwarp(0xffff0000u);
    else __syncwarp(0x0000ffffu);
    x[place()] = s[threadIdx.x ^ (FAULT ? 16 : 8)];
}
template <bool FAULT> __global__ void no_syncthreads(float* x, const float*) {
    __shared__ float s[64];
    s[threadIdx.x] = x[place()];
    if (!FAULT) __syncthreads();
    x[place()] = s[threadIdx.x ^ 32];
}
template <bool FAULT> __global__ void written_again(float* x, const float*) {
    __shared__ float s[64];
    s[threadIdx.x] = x[place()];
    __syncthreads();
    const float sum = s[threadIdx.x ^ 32] + s[threadIdx.x];
    if (!FAULT) __syncthreads();
    s[threadIdx.x] = sum;
    __syncthreads();
    x[place()] = s[threadIdx.x ^ 32];
}
template <bool FAULT> __global__ void two_values(float* x, const float*) {
    __shared__ float s[64];
    s[threadIdx.x / 2] = FAULT ? float(threadIdx.x) : 1.0f;
    __syncthreads();
    x[place()] = s[threadIdx.x / 2];
}
// Neighbouring bytes do not meet.
template <bool FAULT> __global__ void bytes_of_a_word(float* x, const float*) {
    __shared__ __align__(4) unsigned char s[64];
    s[threadIdx.x] = static_cast<unsigned char>(threadIdx.x);
    if (FAULT && threadIdx.x == 5) *reinterpret_cast<unsigned*>(s) = 1;
    __syncthreads();
    reinterpret_cast<unsigned*>(x)[place()] = s[threadIdx.x ^ 33];
}
template <bool FAULT> __global__ void read_beside_atomics(float* x, const float*) {
    __shared__ unsigned n[1];
    if (threadIdx.x == 0) n[0] = 0;
    __syncthreads();
    atomicAdd(n, 1u);
    if (!FAULT) __syncthreads();
    x[place()] = float(n[0]);
}
// Warp 0 writes and goes on, warp 1 waits for it and reads.
template <bool FAULT> __global__ void arrives_early(float* x, const float*) {
    __shared__ float s[32];
    if (threadIdx.x < 32) {
        if (FAULT) bar_arrive<64>(0);
        s[threadIdx.x] = x[place()];
        if (!FAULT) bar_arrive<64>(0);
    } else {
        bar_sync<64>(0);
        x[place()] = s[threadIdx.x - 32];
    }
}
template <bool FAULT> __global__ void copy_without_wait(float* x, const float* from) {
    __shared__ __align__(16) float s[256];
    cp_async16(s + threadIdx.x * 4, from + threadIdx.x * 4);
    cp_async_commit();
    cp_async_wait<FAULT>();
    x[place()] = s[threadIdx.x * 4];
    cp_async_wait<0>();
}
template <bool FAULT> __global__ void copy_of_another(float* x, const float* from) {
    __shared__ __align__(16) float s[256];
    cp_async16(s + threadIdx.x * 4, from + threadIdx.x * 4);
    cp_async_commit();
    cp_async_wait<0>();
    if (!FAULT) __syncthreads();
    x[place()] = s[(threadIdx.x ^ 32) * 4];
}


// ---- global memory

template <bool FAULT> __global__ void blocks_write_one_place(float* x, const float*) {
    x[FAULT ? threadIdx.x : place()] = float(blockIdx.x);
}
template <bool FAULT> __global__ void read_of_another_block(float* x, const float* from) {
    x[place()] = 1 + (FAULT ? x : from)[threadIdx.x];
}
template <bool FAULT> __global__ void atomics_beside_a_store(float* x, const float*) {
    unsigned* const counts = reinterpret_cast<unsigned*>(x);
    if (place() == 128) counts[FAULT ? 0 : 128] = 5;
    if (blockIdx.x != 1) atomicAdd(counts, 1u);
}
template <bool FAULT> __global__ void exchange_in_global_memory(float* x, const float*) {
    x[place()] = 1;
    if (!FAULT) __syncthreads();
    x[place() + 1024] = x[place() ^ 32];
}

// ---- Hopper

template <bool FAULT> __global__ void phase_before(float* x, const float* from) {
    __shared__ uint64_t bar[1];
    __shared__ float s[2];
    if (threadIdx.x == 0) {
        mbar_init(bar, 1);
        mbar_fence_init();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        s[0] = from[0], s[1] = from[1];
        mbar_arrive(bar);
    }
    mbar_wait(bar, FAULT);
    x[place()] = s[threadIdx.x % 2];
}
// A product of zeros, of 64 x 8 x 16, by a warpgroup.
template <bool FENCE, bool WAIT> __device__ void multiply(float* x) {
    extern __shared__ __align__(1024) unsigned char tiles[];
    unsigned* const words = reinterpret_cast<unsigned*>(tiles);
    for (unsigned i = threadIdx.x; i < 4096; i += 128) words[i] = 0;
    if (FENCE) async_fence();
    __syncthreads();
    float d[4] = {};
    for (float& sum : d) hold(sum);
    wgmma_fence();
    wgmma<8, false, false>(d, wgmma_desc(tiles, 0, 1024), wgmma_desc(tiles + 8192, 0, 1024), false);
    wgmma_commit();
    if (WAIT) {
        wgmma_wait<0>();
        __syncthreads();
    }
    words[threadIdx.x] = 1;
    wgmma_wait<0>();
    x[place()] = d[0];
}
template <bool FAULT> __global__ void no_async_fence(float* x, const float*) {
    if (kSm90a) multiply<!FAULT, true>(x);
}
template <bool FAULT> __global__ void wgmma_still_reads(float* x, const float*) {
    if (kSm90a) multiply<true, !FAULT>(x);
}
// One slot, filled twice.
template <bool WAITS_FOR_BYTES, bool WAITS_FOR_READERS> __device__ void fill_twice(float* x, const CUtensorMap* map) {
    extern __shared__ __align__(1024) unsigned char slot[];
    uint64_t* const full = reinterpret_cast<uint64_t*>(slot + 1024);
    uint64_t* const empty = full + 1;
    if (threadIdx.x == 0) {
        mbar_init(full, 1);
        mbar_init(empty, 64);
        mbar_fence_init();
    }
    __syncthreads();
    float sum = 0;
    for (int turn = 0; turn < 2; turn++) {
        if (threadIdx.x == 0) {
            if (WAITS_FOR_READERS) mbar_wait(empty, turn ^ 1);
            mbar_arrive(full, 1024);
            tma_load(slot, map, full, 0, 8 * turn);
        }
        if (WAITS_FOR_BYTES) mbar_wait(full, turn);
        sum += reinterpret_cast<float*>(slot)[threadIdx.x];
        mbar_arrive(empty);
    }
    x[place()] = sum;
}
template <bool FAULT> __global__ void slot_not_full(float* x, const __grid_constant__ CUtensorMap map) {
    fill_twice<!FAULT, true>(x, &map);
}
template <bool FAULT> __global__ void slot_not_empty(float* x, const __grid_constant__ CUtensorMap map) {
    fill_twice<true, !FAULT>(x, &map);
}

// ---- running them

// The fault is named with both places, and what would mend it; or it ends in a read before any write, or in a deadlock,
// where the order of the warps is such. The twin has no fault.
template <class K> void expect_race(K* fault, K* twin, const char* pattern, unsigned threads = 64) {
    const std::string text = outcome(fault, threads, false), none = outcome(twin, threads, false);
    const std::regex both("test_races.cu:[0-9]+.* race: .*test_races.cu:[0-9]+.*got no order"), mended(pattern);
    const bool named = std::regex_search(text, both) && std::regex_search(text, mended);
    const bool otherwise = std::regex_search(text, std::regex("was never written|deadlock"));
    EXPECT(named || otherwise, "got \"%s\", want %s", text.c_str(), pattern);
    EXPECT(none.empty(), "got \"%s\", want no error", none.c_str());
}
#define RACE(name, ...) \
    TEST(name) { expect_race(name<true>, name<false>, __VA_ARGS__); }
#define HOPPER_RACE(name, ...) \
    TEST(name) { needs_hopper(); expect_race(name<true>, name<false>, __VA_ARGS__); }

RACE(no_syncwarp, "of s: lane [0-9]+ of warp ([01]) reads it, and warp \\1 lane [0-9]+ .*want __syncwarp")
RACE(syncwarp_of_others, "want __syncwarp")
RACE(no_syncthreads, "want __syncthreads")
RACE(written_again, "(writes it, and warp [01] .* reads|reads it, and warp [01] .* writes) it.*want __syncthreads")
RACE(two_values, "writes it.*writes it.*one of them alone, or equal values")
RACE(bytes_of_a_word, "bytes [0-4] to [0-4] of s")
RACE(read_beside_atomics, "(reads it.*adds to it|adds to it.*reads it)")
RACE(arrives_early, "want __syncthreads.. or an mbarrier")
RACE(copy_without_wait, "want cp.async.wait_group")
RACE(copy_of_another, "want (cp.async.wait_group|__syncthreads)")
RACE(blocks_write_one_place, "global memory at .*another block writes it.*want two launches")
RACE(read_of_another_block, "global memory at .*another block (reads|writes) it.*want two launches")
RACE(atomics_beside_a_store, "another block (adds to|writes) it.*want two launches")
RACE(exchange_in_global_memory, "global memory at .*want __syncthreads")
HOPPER_RACE(phase_before, "of s.*want (__syncthreads|__syncwarp)")
HOPPER_RACE(no_async_fence, "a wgmma of warp.*want fence.proxy.async", 128)
HOPPER_RACE(wgmma_still_reads, "a wgmma of warp [0-3] reads (it.*want wgmma.wait_group|it.*writes it)", 128)
HOPPER_RACE(slot_not_full,
            "(a TMA load of warp 0 writes it|a TMA load writes it.*want a wait for the mbarrier)")
HOPPER_RACE(slot_not_empty, "a TMA load of warp 0 writes it.*reads it")

}  // namespace

int main(int argc, char** argv) { return run_tests(argc, argv); }
