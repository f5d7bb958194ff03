// test_faults.cu -- the software GPU names every fault and every race of these kernels, and none of their twins,
// whatever the order in which warps and lanes happen to run.
#include <regex>
#include "kernels/cuda/hopper.cuh"
#include "tests/test.h"

using namespace BACKEND;

namespace {

// ------------------------ running them

// Returns the kernel's error, "" where it has none. Three blocks run; `dependent`: a second time behind themselves,
// where griddepcontrol.wait must come first.
template <class K> std::string outcome(K* kernel, unsigned threads, bool dependent) {
    float* x = nullptr;
    cudaMalloc(&x, 1 << 16);
    cudaMemsetAsync(x, 0, 1 << 16, nullptr);
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaError_t error = cudaSuccess;
    for (unsigned turn = 0; turn <= unsigned(dependent) && error == cudaSuccess; turn++) {
        const cudaLaunchConfig_t config = {dim3(3), dim3(threads), 16384, nullptr, &early, turn};
        if constexpr (std::is_same_v<K, void(float*, CUtensorMap)>)
            error = cudaLaunchKernelEx(&config, kernel, x,
                                       tensor_map(reinterpret_cast<bf16*>(x + 4096), 64, 64, 64, 64, 8));
        else error = cudaLaunchKernelEx(&config, kernel, x, static_cast<const float*>(x + 4096));
    }
    if (error == cudaSuccess) error = cudaDeviceSynchronize();
    const std::string text = error == cudaSuccess ? "" : cudaGetErrorString(error);
    EXPECT(cudaFree(x) == cudaSuccess, "another error after \"%s\"", text.c_str());
    return text;
}

// The fault is named, with its place in the source; the twin has none.
template <class K> void expect_fault(K* fault, K* twin, const std::string& pattern, unsigned threads = 64,
                                     bool dependent = false) {
    const std::string text = outcome(fault, threads, dependent), none = outcome(twin, threads, dependent);
    EXPECT(std::regex_search(text, std::regex(pattern)), "got \"%s\", want %s", text.c_str(), pattern.c_str());
    const bool at_the_end = text.find(": ends with ") != text.npos;
    EXPECT(at_the_end || text.find("test_faults.cu:") != text.npos, "no place in \"%s\"", text.c_str());
    EXPECT(none.empty(), "got \"%s\", want no error", none.c_str());
}
// A race is named with both places, and what would mend it; or it ends in a read before any write, or in a deadlock,
// where the order of the warps is such.
std::string race(const char* pattern) {
    return "was never written|deadlock|"
           "^(?=[^]*test_faults.cu:[0-9]+.* race: .*test_faults.cu:[0-9]+.*got no order)[^]*(?:" +
           std::string(pattern) + ")";
}

// ------------------------ kernels with a fault

// A kernel gets 64 KB of zeros, x, and x + 4096 floats, or a map of 64 x 64 numbers there; x has a place for each
// thread of the grid. It has the fault where FAULT, and is right elsewhere.
// The text behind its name is what must be said then.
__device__ unsigned place() { return blockIdx.x * 128 + threadIdx.x; }
void needs_hopper() { if (!hopper()) SKIP("no mbarriers on this GPU"); }
#define FAULTY(name, needs, from, ...) \
    template <bool FAULT> __global__ void name(float* x, from); \
    TEST(name) { needs; expect_fault(name<true>, name<false>, __VA_ARGS__); } \
    template <bool FAULT> __global__ void name(float* x, from)
#define KERNEL(name, ...) FAULTY(name, , const float* from, __VA_ARGS__)
#define HOPPER_ONLY(name, ...) FAULTY(name, needs_hopper(), const float* from, __VA_ARGS__)
#define HOPPER_KERNEL(name, ...) FAULTY(name, needs_hopper(), const __grid_constant__ CUtensorMap map, __VA_ARGS__)

// Lanes of a warp that are not together.
KERNEL(lanes_apart,
       "deadlock:[^]*lanes fffffff7 at .*test_faults.*shfl.sync[^]*lanes 00000008 at test_faults.*bar.sync") {
    if (FAULT && threadIdx.x == 3) __syncthreads();
    x[place()] = __shfl_sync(~0u, from[threadIdx.x], 0);
    if (!FAULT || threadIdx.x != 3) __syncthreads();
}
KERNEL(not_in_its_mask, "lane [12][0-9] is not in its member mask 0000ffff") {
    x[place()] = __shfl_xor_sync(FAULT ? 0xffffu : ~0u, from[threadIdx.x], 1);
}
KERNEL(asks_who_is_not_there, "lane 0 reads lane 16, which takes no part") {
    if (threadIdx.x < 16) x[place()] = __shfl_xor_sync(0xffffu, from[threadIdx.x], FAULT ? 16 : 8);
}
KERNEL(half_a_warp_multiplies, "mma by lanes 0000ffff: it wants all") {
    if (FAULT && threadIdx.x >= 16) return;
    float d[4] = {};
    mma_m16n8k16(d, {0, 0, 0, 0}, {0, 0});
    x[place()] = d[0];
}
// Barriers that some do not come to, or with other numbers.
KERNEL(one_warp_at_the_barrier,
       "deadlock:\n  warp 0 lanes ffffffff at .*test_faults.cu:.*: bar.sync 1, 64$") {
    if (!FAULT || threadIdx.x < 32) bar_sync<64>(0);
    x[place()] = from[threadIdx.x];
}
KERNEL(barrier_of_two_sizes,
       "barrier 1: (32|64) threads, and (64|32) before|barrier that 32 threads have come to") {
    if (threadIdx.x < 32) bar_arrive<64>(0);
    else if (FAULT) bar_sync<32>(0);
    else bar_sync<64>(0);
}
KERNEL(arrives_for_nobody, "ends with a barrier that 32 threads have come to") {
    if (threadIdx.x < 32) bar_arrive<64>(0);
    else if (!FAULT) bar_sync<64>(0);
}
// Memory that is not there, not aligned, not written.
KERNEL(beyond_the_end, "lanes [0-9a-f]{8}: global access of 4 bytes at 0x[0-9a-f]+: not allocated") {
    x[FAULT ? 16384 - 63 + threadIdx.x : place()] = from[threadIdx.x];
}
KERNEL(before_the_begin, "global access of 4 bytes at 0x[0-9a-f]+: not allocated") {
    x[place()] = (FAULT && threadIdx.x == 9 ? x - 1 : from)[0];
}
KERNEL(misaligned_vector, "address 0x[0-9a-f]+ is not aligned to 16 bytes") {
    as<float4>(x + place() * 4) = as<float4>(from + threadIdx.x * 4 + FAULT);
}
KERNEL(beyond_shared_memory, "shared access of 4 bytes at [0-9]+ of 16384") {
    extern __shared__ __align__(1024) unsigned char bytes[];
    float* const s = reinterpret_cast<float*>(bytes);
    s[threadIdx.x + (FAULT ? 4096 : 0)] = 1;
    x[place()] = s[threadIdx.x];
}
KERNEL(misaligned_in_shared_memory, "address 0x[0-9a-f]+ is not aligned to 4 bytes") {
    __shared__ __align__(16) unsigned char s[512];
    as<unsigned>(s + threadIdx.x * 4 + (FAULT ? 2 : 0)) = threadIdx.x;
    __syncwarp();
    x[place()] = float(s[(threadIdx.x ^ 1) * 4 + 2]);
}
KERNEL(never_written, "shared read of 4 bytes at 160: byte 0 was never written") {
    __shared__ float s[64];
    if (!FAULT || threadIdx.x != 40) s[threadIdx.x] = 1;
    __syncwarp();
    x[place()] = s[threadIdx.x ^ 1];
}
KERNEL(beyond_local_memory, "local access of 4 bytes at 32 of 32") {
    float own[8];
    for (int i = 0; i < 8; i++) own[i] = from[i];
    x[place()] = own[threadIdx.x % 8 + (FAULT ? 4 : 0)];
}
KERNEL(divides_by_zero, "division by zero") {
    as<int>(x + place()) = 7 / (as<int>(from + threadIdx.x) + !FAULT);
}
KERNEL(unknown_instruction, "line [0-9]+ .*nanosleep.u32: unknown instruction") {
    if (FAULT) asm volatile("nanosleep.u32 20;");
    x[place()] = from[threadIdx.x];
}
// cp.async.
KERNEL(copy_beyond_the_end, "global access of 16 bytes at 0x[0-9a-f]+: not allocated") {
    __shared__ __align__(16) float s[256];
    cp_async16(s + threadIdx.x * 4, FAULT ? x + 16384 : x + (1 << 20), FAULT);      // else it reads nothing
    cp_async_commit();
    cp_async_wait<0>();
    x[place()] = s[threadIdx.x * 4];
}
enum CopyFault { kGoodCopy, kEarlyCopy, kMisalignedCopy, kOpenGroup, kNotWaitedFor, kOfAnother };
template <CopyFault FAULT> __global__ void copy(float* x, const float* from) {
    __shared__ __align__(16) float s[256];
    if (FAULT != kEarlyCopy) grid_dependency_sync();
    cp_async16(s + threadIdx.x * 4, from + threadIdx.x * 4 + (FAULT == kMisalignedCopy));
    if (FAULT != kOpenGroup) cp_async_commit();
    cp_async_wait<FAULT == kNotWaitedFor>();
    cp_async_commit();                  // a group that is open was not waited for
    if (FAULT == kOpenGroup) return;
    if (FAULT != kOfAnother) __syncthreads();
    x[place()] = s[(threadIdx.x ^ (FAULT == kNotWaitedFor ? 0 : 32)) * 4];
    cp_async_wait<0>();
    if (FAULT == kEarlyCopy) grid_dependency_sync();
}
// Dependent launches.
HOPPER_ONLY(reads_early, "global memory before griddepcontrol.wait", 64, true) {
    float sum = 0;
    if (FAULT) sum = from[threadIdx.x];
    grid_dependency_sync();
    x[place()] = sum;
}
HOPPER_ONLY(writes_early, "global memory before griddepcontrol.wait", 64, true) {
    if (FAULT && threadIdx.x == 9) x[place()] = 1;
    grid_dependency_sync();
}
HOPPER_ONLY(never_waits,
            "returns without griddepcontrol.wait|launch_dependents before the wait", 64, true) {
    if (!FAULT || threadIdx.x != 40) grid_dependency_sync();
}
// mbarriers and TMA.
enum MbarrierFault { kGoodMbarrier, kNeverMade, kSurplusArrival, kMissingBytes, kOtherPhase, kReadAsNumber };
template <MbarrierFault FAULT> __global__ void mbarrier(float* x, const float*) {
    __shared__ uint64_t bar[2];
    if (threadIdx.x == 0) {
        if (FAULT != kNeverMade) mbar_init(bar, 2);
        bar[1] = 1;
    }
    __syncthreads();
    if (threadIdx.x == 0 && FAULT != kNeverMade) {
        mbar_arrive(bar);
        mbar_arrive(bar, FAULT == kSurplusArrival || FAULT == kMissingBytes ? 64 : 0);
        if (FAULT != kMissingBytes) mbar_arrive(bar);       // the first phase goes on until its bytes have come
    }
    if (FAULT == kMissingBytes) return;
    mbar_wait(bar, FAULT == kOtherPhase);
    x[place()] = float(unsigned(bar[FAULT == kReadAsNumber ? 0 : 1]));
}
enum LoadFault { kGoodLoad, kEarlyLoad, kNoInitFence, kMisalignedBox, kFewerBytes, kNoWaitForLoad };
template <LoadFault FAULT> __global__ void load(float* x, const __grid_constant__ CUtensorMap map) {
    extern __shared__ __align__(1024) unsigned char box[];
    __shared__ uint64_t bar[1];
    if (threadIdx.x == 0) {
        mbar_init(bar, 1);
        if (FAULT != kNoInitFence) mbar_fence_init();
        mbar_arrive(bar, FAULT == kFewerBytes ? 512 : 1024);
        if (FAULT != kEarlyLoad) grid_dependency_sync();
        tma_load(box + (FAULT == kMisalignedBox ? 128 : 0), &map, bar, 0, 0);
    }
    __syncthreads();
    if (FAULT == kNoWaitForLoad) return;
    mbar_wait(bar, 0);
    grid_dependency_sync();
    x[place()] = reinterpret_cast<float*>(box)[threadIdx.x];
}
enum ProductFault {
    kGood, kNoFence, kWrittenSince, kReadEarly, kNoWait, kMisalignedTile, kLanesDiffer, kNoAsyncFence, kStillRead
};
template <ProductFault FAULT> __global__ void product(float* x, const float*) {
    extern __shared__ __align__(1024) unsigned char tiles[];
    unsigned* const words = reinterpret_cast<unsigned*>(tiles);
    for (unsigned i = threadIdx.x; i < 4096; i += blockDim.x) words[i] = 0;
    if (FAULT != kNoAsyncFence) async_fence();
    __syncthreads();
    float d[4] = {};
    wgmma_hold(d);
    const uint64_t b = wgmma_desc(tiles + 8192, 0, 1024) + (FAULT == kLanesDiffer ? threadIdx.x % 2 : 0);
    if (FAULT != kNoFence) wgmma_fence();
    if (FAULT == kWrittenSince) d[0] = float(threadIdx.x);
    wgmma<8, false, false>(d, wgmma_desc(tiles + (FAULT == kMisalignedTile ? 128 : 0), 0, 1024), b, true);
    wgmma_commit();
    if (FAULT == kReadEarly) x[place()] = d[0];
    if (FAULT == kNoWait) return;
    if (FAULT == kStillRead) words[threadIdx.x] = 1;
    wgmma_wait<0>(d);
    __syncthreads();
    words[threadIdx.x] = 1;
    x[place()] = d[1];
}

// ------------------------ races

KERNEL(no_syncwarp,
       race("of s: lane [0-9]+ of warp ([01]) reads it, and warp \\1 lane [0-9]+ .*want __syncwarp")) {
    __shared__ float s[64];
    s[threadIdx.x] = x[place()];
    if (!FAULT) __syncwarp();
    x[place()] = s[threadIdx.x ^ 1];
}
KERNEL(syncwarp_of_others, race("want __syncwarp")) {
    __shared__ float s[64];
    const unsigned half = threadIdx.x & 16;
    s[threadIdx.x] = x[place()];
    if (half) __syncwarp(0xffff0000u);
    else __syncwarp(0x0000ffffu);
    x[place()] = s[threadIdx.x ^ (FAULT ? 16 : 8)];
}
KERNEL(no_syncthreads, race("want __syncthreads")) {
    __shared__ float s[64];
    s[threadIdx.x] = x[place()];
    if (!FAULT) __syncthreads();
    x[place()] = s[threadIdx.x ^ 32];
}
KERNEL(written_again,
       race("(writes it, and warp [01] .* reads|reads it, and warp [01] .* writes) it.*want __syncthreads")) {
    __shared__ float s[64];
    s[threadIdx.x] = x[place()];
    __syncthreads();
    const float sum = s[threadIdx.x ^ 32] + s[threadIdx.x];
    if (!FAULT) __syncthreads();
    s[threadIdx.x] = sum;
    __syncthreads();
    x[place()] = s[threadIdx.x ^ 32];
}
KERNEL(two_values, race("writes it.*writes it.*one of them alone, or equal values")) {
    __shared__ float s[64];
    s[threadIdx.x / 2] = FAULT ? float(threadIdx.x) : 1.0f;
    __syncthreads();
    x[place()] = s[threadIdx.x / 2];
}
// Neighbouring bytes do not meet.
KERNEL(bytes_of_a_word, race("bytes [0-4] to [0-4] of s")) {
    __shared__ __align__(4) unsigned char s[64];
    s[threadIdx.x] = static_cast<unsigned char>(threadIdx.x);
    if (FAULT && threadIdx.x == 5) *reinterpret_cast<unsigned*>(s) = 1;
    __syncthreads();
    reinterpret_cast<unsigned*>(x)[place()] = s[threadIdx.x ^ 33];
}
KERNEL(read_beside_atomics, race("(reads it.*adds to it|adds to it.*reads it)")) {
    __shared__ unsigned n[1];
    if (threadIdx.x == 0) n[0] = 0;
    __syncthreads();
    atomicAdd(n, 1u);
    if (!FAULT) __syncthreads();
    x[place()] = float(n[0]);
}
// Warp 0 writes and goes on, warp 1 waits for it and reads.
KERNEL(arrives_early, race("want __syncthreads.. or an mbarrier")) {
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
// Races in global memory.
KERNEL(blocks_write_one_place,
       race("global memory at .*another block writes it.*want two launches")) {
    x[FAULT ? threadIdx.x : place()] = float(blockIdx.x);
}
KERNEL(read_of_another_block,
       race("global memory at .*another block (reads|writes) it.*want two launches")) {
    x[place()] = 1 + (FAULT ? x : from)[threadIdx.x];
}
KERNEL(atomics_beside_a_store, race("another block (adds to|writes) it.*want two launches")) {
    unsigned* const counts = reinterpret_cast<unsigned*>(x);
    if (place() == 128) counts[FAULT ? 0 : 128] = 5;
    if (blockIdx.x != 1) atomicAdd(counts, 1u);
}
KERNEL(exchange_in_global_memory, race("global memory at .*want __syncthreads")) {
    x[place()] = 1;
    if (!FAULT) __syncthreads();
    x[place() + 1024] = x[place() ^ 32];
}
// The last of three blocks adds up what all have written, and resets their counter.
enum Fences { kGoodFences, kNoneBefore, kTooEarly, kNoneBehind };
template <Fences FENCES> __global__ void last_block_adds(float* x, const float*) {
    __shared__ unsigned before[1];
    unsigned* const counter = reinterpret_cast<unsigned*>(x) + 8192;
    if (FENCES == kTooEarly) __threadfence();
    x[place()] = 1;
    __syncthreads();
    if (threadIdx.x == 0) {
        if (FENCES == kGoodFences || FENCES == kNoneBehind) __threadfence();
        before[0] = atomicAdd(counter, 1u);
        if (FENCES != kNoneBehind) __threadfence();
    }
    __syncthreads();
    if (before[0] < 2) return;
    x[place() + 512] = x[threadIdx.x ^ 32] + x[(threadIdx.x ^ 32) + 128] + x[(threadIdx.x ^ 32) + 256];
    if (threadIdx.x == 1) *counter = 0;
}
// By mbarriers.
HOPPER_ONLY(phase_before, race("of s.*want (__syncthreads|__syncwarp)")) {
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
HOPPER_KERNEL(slot_not_full,
              race("(a TMA load of warp 0 writes it|a TMA load writes it.*want a wait for the mbarrier)")) {
    fill_twice<!FAULT, true>(x, &map);
}
HOPPER_KERNEL(slot_not_empty, race("a TMA load of warp 0 writes it.*reads it")) {
    fill_twice<true, !FAULT>(x, &map);
}

// ------------------------ kernels with several faults

TEST(copies) {
    const auto expect = [](auto* fault, const std::string& pattern) { expect_fault(fault, copy<kGoodCopy>, pattern); };
    expect(copy<kMisalignedCopy>, "cp.async: 16 bytes from 0x[0-9a-f]+4 to [0-9]+");
    expect(copy<kOpenGroup>, "returns with cp.async not waited for");
    expect(copy<kNotWaitedFor>, race("want cp.async.wait_group"));
    expect(copy<kOfAnother>, race("want (cp.async.wait_group|__syncthreads)"));
    needs_hopper();
    expect_fault(copy<kEarlyCopy>, copy<kGoodCopy>, "global memory before griddepcontrol.wait", 64, true);
}
TEST(mbarriers) {
    needs_hopper();
    const auto expect = [](auto* fault, const char* text) { expect_fault(fault, mbarrier<kGoodMbarrier>, text); };
    expect(mbarrier<kNeverMade>, "no mbarrier at shared address");
    expect(mbarrier<kSurplusArrival>, "more arrivals in a phase than the 2 it was made for");
    expect(mbarrier<kMissingBytes>, "ends with an mbarrier of 64 bytes");
    expect(mbarrier<kOtherPhase>, "deadlock:[^]*warp 0 lanes ffffffff at .*mbarrier.try_wait");
    expect(mbarrier<kReadAsNumber>, "shared access at [0-9]+: an mbarrier");
}
TEST(loads) {
    needs_hopper();
    expect_fault(load<kEarlyLoad>, load<kGoodLoad>, "TMA before griddepcontrol.wait", 64, true);
    expect_fault(load<kNoInitFence>, load<kGoodLoad>, "no fence.mbarrier_init since its barrier was made");
    expect_fault(load<kMisalignedBox>, load<kGoodLoad>, "TMA load to shared address [0-9]+: not aligned");
    expect_fault(load<kFewerBytes>, load<kGoodLoad>, "deadlock:[^]*mbarrier.try_wait");
    expect_fault(load<kNoWaitForLoad>, load<kGoodLoad>, "ends with a TMA load that was not waited for");
}
TEST(products) {
    needs_hopper();
    const auto expect = [](auto* fault, const std::string& text) { expect_fault(fault, product<kGood>, text, 128); };
    expect(product<kNoFence>, "wgmma: no wgmma.fence before it");
    expect(product<kWrittenSince>, "register 0 of its was written since wgmma.fence");
    expect(product<kReadEarly>, "reads an accumulator of an unfinished wgmma");
    expect(product<kNoWait>, "returns with wgmma not waited for");
    expect(product<kMisalignedTile>, "not at a multiple of 1024");
    expect(product<kLanesDiffer>, "lanes give different B");
    expect(product<kNoAsyncFence>, race("a wgmma of warp.*want fence.proxy.async"));
    expect(product<kStillRead>, race("a wgmma of warp [0-3] reads (it.*want wgmma.wait_group|it.*writes it)"));
    EXPECT(outcome(product<kGood>, 96, false).find("not a whole warpgroup") != std::string::npos, "three warps");
}

TEST(last_blocks) {
    for (auto* fault : {last_block_adds<kNoneBefore>, last_block_adds<kTooEarly>, last_block_adds<kNoneBehind>})
        expect_fault(fault, last_block_adds<kGoodFences>, race("another block writes it.*atomics with __threadfence"));
}

}  // namespace

int main(int argc, char** argv) { return run_tests(argc, argv); }
