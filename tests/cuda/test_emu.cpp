// test_emu.cpp -- the emulator of tests/emu: that it computes what a GPU does, and that it notices every kind of fault
// it is there for.
//
// Each detection has a negative control: a kernel or a host program with that fault. Where the fault shows as a wrong
// result, some of the first seeds must give one while the same code without the fault is right under all. Faults that a
// sanitizer reports end the process, so they run in one of their own, `emu --planted NAME`, and only in a build with
// that sanitizer.
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>
#include <sys/wait.h>
#include "kernels/cuda/common.cuh"
#include "tests/test.h"

#ifdef SIMT_ASAN
constexpr bool kAsan = true;
#else
constexpr bool kAsan = false;
#endif
#ifdef SIMT_TSAN
constexpr bool kTsan = true;
#else
constexpr bool kTsan = false;
#endif

namespace BACKEND {
namespace {

// ------------------------------------------------------------------------------------------------ host helpers

void check(cudaError_t e) {
    if (e != cudaSuccess) FAIL("%s: %s", cudaGetErrorName(e), device_error_text(e));
}

// Device memory that holds `n` values.
template <class T>
struct Buffer {
    T* p = nullptr;
    size_t n;
    explicit Buffer(size_t n) : n(n) { check(cudaMalloc(&p, n * sizeof(T))); }
    explicit Buffer(const std::vector<T>& x) : Buffer(x.size()) {
        check(cudaMemcpy(p, x.data(), n * sizeof(T), cudaMemcpyHostToDevice));
    }
    Buffer(const Buffer&) = delete;
    ~Buffer() { cudaFree(p); }
    std::vector<T> host() const {
        std::vector<T> x(n);
        check(cudaMemcpy(x.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost));
        return x;
    }
};
struct TestStream {
    cudaStream_t s = nullptr;
    TestStream() { check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking)); }
    ~TestStream() { cudaStreamDestroy(s); }
    operator Stream() const { return reinterpret_cast<Stream>(s); }
};
struct TestEvent {
    cudaEvent_t e = nullptr;
    TestEvent() { check(cudaEventCreateWithFlags(&e, cudaEventDisableTiming)); }
    ~TestEvent() { cudaEventDestroy(e); }
};

// How many of the seeds 1..n make f() false.
template <class F>
int seeds_that_fail(int n, F f) {
    const unsigned before = simt::seed();
    int failed = 0;
    for (int s = 1; s <= n; s++) {
        simt::set_seed(unsigned(s));
        failed += !f();
    }
    simt::set_seed(before);
    return failed;
}

// What the failure of a kernel says; "" if it does not fail. Afterwards the device works as before.
template <class... P, class... A>
std::string failure(void (*kernel)(P...), int blocks, int threads, size_t smem, A... args) {
    launch(kernel, unsigned(blocks), unsigned(threads), smem, nullptr, args...);
    const cudaError_t e = cudaDeviceSynchronize();
    return e == cudaSuccess ? "" : device_error_text(e);
}
#define EXPECT_FAILURE(text, ...)                                        \
    do {                                                                 \
        const std::string said = failure(__VA_ARGS__);                   \
        EXPECT(said.find(text) != said.npos, "said '%s'", said.c_str()); \
    } while (0)

std::vector<bf16> small_integers(size_t n, unsigned step) {
    std::vector<bf16> x(n);
    for (size_t i = 0; i < n; i++) x[i] = to_bf16(float(int((i * step + i / 7) % 9) - 4));
    return x;
}

// Output of this program started again with `--planted name`, and its exit status.
std::string planted(const std::string& name, const std::string& environment, int* status = nullptr) {
    char self[4096];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    EXPECT(n > 0, "no /proc/self/exe");
    const std::string command = "TSAN_OPTIONS=\"$TSAN_OPTIONS atexit_sleep_ms=0\" " + environment + " '" +
                                std::string(self, size_t(n)) + "' --planted " + name + " 2>&1";
    FILE* pipe = popen(command.c_str(), "r");
    EXPECT(pipe, "popen failed");
    std::string text;
    for (int c; (c = std::fgetc(pipe)) != EOF;) text += char(c);
    const int result = pclose(pipe);
    if (status) *status = WIFEXITED(result) ? WEXITSTATUS(result) : 128;
    return text;
}

}  // namespace

// ------------------------------------------------------------------------------------------------ instructions against
// plain loops

namespace {

// One warp: D(16,8) = A(16,16) B(8,16)^T through cp.async, ldmatrix (or, from the transposes At and Bt, ldmatrix.trans)
// and mma.
template <bool TRANS>
__global__ void mma_kernel(float* D, const bf16* A, const bf16* B) {
    SHARED(uint4, sA, 32);
    SHARED(uint4, sB, 16);
    bf16 *a = reinterpret_cast<bf16*>(sA), *b = reinterpret_cast<bf16*>(sB);
    const int t = threadIdx.x;
    cp_async16(a + t * 8, A + t * 8);
    if (t < 16) cp_async16(b + t * 8, B + t * 8);
    cp_async_commit();
    cp_async_wait<0>();
    __syncwarp();
    unsigned ra[4], rb[4];
    const int row = t % 8, matrix = t / 8;
    if constexpr (TRANS) {  // a is [k][m], b is [k][n]
        ldmatrix_x4<true>(ra, a + (row + matrix / 2 * 8) * 16 + matrix % 2 * 8);
        ldmatrix_x4<true>(rb, b + (row + matrix % 2 * 8) * 8);
    } else {
        ldmatrix_x4(ra, a + (row + matrix % 2 * 8) * 16 + matrix / 2 * 8);
        ldmatrix_x4(rb, b + row * 16 + matrix % 2 * 8);
    }
    float d[4] = {1, 1, 1, 1};
    const unsigned rb2[2] = {rb[0], rb[1]};
    mma_m16n8k16(d, ra, rb2);
    for (int i = 0; i < 4; i++) D[(t / 4 + i / 2 * 8) * 8 + t % 4 * 2 + i % 2] = d[i];
}

__global__ void shuffle_kernel(int* out) {
    const int t = threadIdx.x, T = blockDim.x;
    int* o = out + t;
    o[0 * T] = __shfl_xor_sync(~0u, t, 5);
    o[1 * T] = __shfl_down_sync(~0u, t, 3);
    o[2 * T] = __shfl_up_sync(~0u, t, 3);
    o[3 * T] = __shfl_sync(~0u, t, 7);
    o[4 * T] =
        __shfl_xor_sync(~0u, t, 9, 8);  // 9 leaves the group of 8: down there it is allowed, up there the own value
    o[5 * T] = __shfl_down_sync(~0u, t, 3, 8);
    o[6 * T] = __shfl_up_sync(~0u, t, 3, 8);
    o[7 * T] = __shfl_sync(~0u, t, 11, 8);
    o[8 * T] = int(__ballot_sync(~0u, t % 3 == 0));
    o[9 * T] = __any_sync(~0u, t == 33) + 2 * __all_sync(~0u, t < 40);
    o[10 * T] = __reduce_add_sync(~0u, t) * 1000 + __reduce_max_sync(~0u, t);
    o[11 * T] = int(__match_any_sync(~0u, unsigned(t / 5)));
    const unsigned half = t % 32 < 16 ? 0xffffu : 0xffff0000u;
    if (t % 32 < 16)
        o[12 * T] = __shfl_xor_sync(half, t, 1);
    else
        o[12 * T] = __shfl_xor_sync(half, t, 2);
    o[13 * T] = int(__shfl_sync(~0u, (long long)t << 33, 3) >> 33);
}

// Two barriers: the first warp writes, the others read; a ring of one element.
__global__ void named_barriers(int* out, int rounds) {
    SHARED(int, slot, 1);
    const int t = threadIdx.x;
    for (int i = 0; i < rounds; i++) {
        if (t < 32) {
            if (t == 0) slot[0] = i * i;
            bar_arrive<96>(0);
            bar_sync<96>(1);
        } else {
            bar_sync<96>(0);
            out[i * 64 + t - 32] = slot[0];
            bar_arrive<96>(1);
        }
    }
}

constexpr int kTile = 64 * 64 * 2;  // bytes of 64 rows of 64

// D(64,N) = A B^T with K = 128 from TMA and wgmma: one warpgroup, a ring of two stages with full and empty barriers,
// thread 128 loads.
template <int N, bool TA, bool TB, bool REGISTERS>
__global__ void wgmma_kernel(float* D, const TensorMap mapA, const TensorMap mapB, int steps) {
    DYNAMIC_SHARED(smem);
    SHARED(uint64_t, full, 2);
    SHARED(uint64_t, empty, 2);
    constexpr int STAGE = kTile * (1 + div_up(N, 64));
    const int t = threadIdx.x;
    if (t == 0) {
        for (int s = 0; s < 2; s++) mbar_init(full + s, 1), mbar_init(empty + s, 4);
        mbar_fence_init();
    }
    __syncthreads();
    if (t >= 128) {
        registers_down<24>();
        if (t > 128) return;
        for (int k = 0; k < steps; k++) {
            unsigned char* stage = smem + k % 2 * STAGE;
            uint64_t* bar = full + k % 2;
            mbar_wait(empty + k % 2, (k / 2 & 1) ^ 1);
            mbar_arrive(bar, STAGE);
            tma_load(stage, &mapA, bar, TA ? 0 : k * 64, TA ? k * 64 : 0);
            for (int j = 0; j < div_up(N, 64); j++)
                tma_load(stage + kTile * (1 + j), &mapB, bar, TB ? j * 64 : k * 64, TB ? k * 64 : j * 64);
        }
        return;
    }
    registers_up<240>();
    float d[N / 2];
    for (int k = 0; k < steps; k++) {
        unsigned char* stage = smem + k % 2 * STAGE;
        mbar_wait(full + k % 2, k / 2 & 1);
        const uint64_t a = wgmma_desc(stage, 8192, 1024), b = wgmma_desc(stage + kTile, 8192, 1024);
        wgmma_fence();
        unsigned rows[4][4];  // REGISTERS: A by way of ldmatrix, which undoes the swizzle
        for (int j = 0; j < 4; j++) {
            const uint64_t b_j = b + j * (TB ? 2048 : 32) / 16;
            if constexpr (REGISTERS) {
                const int row = t / 32 * 16 + t % 16, chunk = j * 2 + t % 32 / 16;
                ldmatrix_x4(rows[j], stage + row * 128 + (chunk ^ row % 8) * 16);
                wgmma<N, TB>(d, rows[j], b_j, k + j > 0);
            } else
                wgmma<N, TA, TB>(d, a + j * (TA ? 2048 : 32) / 16, b_j, k + j > 0);
        }
        wgmma_commit();
        wgmma_wait<0>();
        if (t % 32 == 0) mbar_arrive(empty + k % 2);
    }
    for (int i = 0; i < N / 2; i++)
        D[(t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8) * N + i / 4 * 8 + t % 4 * 2 + i % 2] = d[i];
}

// All threads: 16 rows of 64 columns from there on are in shared memory.
template <class... At>
DEVICE void load_box(unsigned char* smem, const TensorMap* from, uint64_t* bar, At... at) {
    if (threadIdx.x == 0) {
        mbar_init(bar, 1);
        mbar_fence_init();
        mbar_arrive(bar, 16 * 64 * 2);
        tma_load(smem, from, bar, at...);
    }
    __syncthreads();
    mbar_wait(bar, 0);
}

// A box in, twice its values out, at another place.
__global__ void tma_copy(const TensorMap from, const TensorMap to, int x, int y, int without_fence) {
    DYNAMIC_SHARED(smem);
    SHARED(uint64_t, bar, 1);
    const int t = threadIdx.x;
    load_box(smem, &from, bar, x, y);
    for (int i = t; i < 16 * 64; i += 32) {
        bf16* p = reinterpret_cast<bf16*>(smem) + i;
        *p = to_bf16(2 * to_float(*p));
    }
    if (!without_fence) async_fence();
    __syncthreads();
    if (t == 0) {
        tma_store(&to, smem, x, y);
        tma_store_commit();
        tma_store_wait<0>();
    }
}

enum { kRight, kNoFirstBarrier, kNoLastBarrier, kOwnBlockAlone };
// Row + column, from registers to a box of 16 rows by stmatrix, and out by TMA.
__global__ void store_box(const TensorMap map, int without_fence, int without_sync) {
    DYNAMIC_SHARED(smem);
    const int t = threadIdx.x;
    for (int q = 0; q < 4; q++) {
        unsigned r[4];
        for (int i = 0; i < 4; i++) {
            const int sum = q % 2 * 8 + t / 4 + q / 2 * 32 + i * 8 + t % 4 * 2;
            r[i] = pack2(float(sum), float(sum + 1));
        }
        stmatrix_x4(smem + (q % 2 * 8 + t % 8) * 128 + ((q / 2 * 4 + t / 8) ^ t % 8) * 16, r);
    }
    if (!without_fence) async_fence();
    if (!without_sync) __syncwarp();
    if (t == 0) {
        tma_store(&map, smem, 0, 0);
        tma_store_commit();
        tma_store_wait<0>();
    }
}

// The sums of tiles of 16 rows, one after the other in one place; each block of a cluster of two brings half of each,
// for both.
__global__ void tiles_of_two(float* out, const TensorMap map, int tiles, int fault) {
    DYNAMIC_SHARED(smem);
    SHARED(uint64_t, full, 1);
    SHARED(uint64_t, empty, 1);
    const int t = threadIdx.x, rank = int(cluster_rank());
    if (t == 0) {
        mbar_init(full, 1);
        mbar_init(empty, fault == kOwnBlockAlone ? 4 : 8);
        mbar_fence_init();
    }
    if (fault == kNoFirstBarrier)
        __syncthreads();
    else
        cluster_sync();
    float sum = 0;
    for (int i = 0; i < tiles; i++) {
        if (t == 0) {
            mbar_wait(empty, unsigned(i & 1) ^ 1);
            mbar_arrive(full, 16 * 128);
            tma_load_multicast(smem + rank * 1024, &map, full, 0, i * 16 + rank * 8, 3);
        }
        mbar_wait(full, i & 1);
        for (int k = t; k < 16 * 64; k += 128) sum += to_float(reinterpret_cast<bf16*>(smem)[k]);
        __syncwarp();
        if (fault != kOwnBlockAlone && t % 32 < 2)
            mbar_arrive_at(empty, unsigned(t % 32));
        else if (t % 32 == 0)
            mbar_arrive(empty);
    }
    out[blockIdx.x * 128 + t] = sum;
    if (fault != kNoLastBarrier) cluster_sync();
}

// Rows y.. y+15 of matrix z.
__global__ void tma_copy_of(bf16* out, const TensorMap from, int y, int z) {
    DYNAMIC_SHARED(smem);
    SHARED(uint64_t, bar, 1);
    const int t = threadIdx.x;
    load_box(smem, &from, bar, 0, y, z);
    for (int i = t; i < 16 * 64; i += 32)
        out[i] = reinterpret_cast<bf16*>(smem)[i / 64 * 64 + ((i % 64 / 8) ^ (i / 64 % 8)) * 8 + i % 8];
}

}  // namespace
}  // namespace BACKEND

using namespace BACKEND;

TEST(mma_is_exact) {
    const std::vector<bf16> A = small_integers(256, 5), B = small_integers(128, 7);
    std::vector<bf16> At(256), Bt(128);
    for (int k = 0; k < 16; k++) {
        for (int m = 0; m < 16; m++) At[size_t(k * 16 + m)] = A[size_t(m * 16 + k)];
        for (int n = 0; n < 8; n++) Bt[size_t(k * 8 + n)] = B[size_t(n * 16 + k)];
    }
    const Buffer<bf16> dA(A), dB(B), dAt(At), dBt(Bt);
    Buffer<float> D(128), E(128);
    launch(mma_kernel<false>, 1, 32, 0, nullptr, D.p, dA.p, dB.p);
    launch(mma_kernel<true>, 1, 32, 0, nullptr, E.p, dAt.p, dBt.p);
    const std::vector<float> d = D.host(), e = E.host();
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 8; n++) {
            float want = 1;
            for (int k = 0; k < 16; k++) want += to_float(A[size_t(m * 16 + k)]) * to_float(B[size_t(n * 16 + k)]);
            EXPECT(d[size_t(m * 8 + n)] == want, "(%d,%d): got %g, want %g", m, n, d[size_t(m * 8 + n)], want);
            EXPECT(e[size_t(m * 8 + n)] == want, "transposed (%d,%d): got %g, want %g", m, n, e[size_t(m * 8 + n)],
                   want);
        }
}

TEST(shuffles_and_votes) {
    constexpr int T = 64;
    Buffer<int> out(14 * T);
    launch(shuffle_kernel, 1, T, 0, nullptr, out.p);
    const std::vector<int> o = out.host();
    for (int t = 0; t < T; t++) {
        const int w = t & ~31, l = t & 31, g = t & ~7, m = t & 7;
        unsigned third = 0, fifth = 0;
        for (int i = 0; i < 32; i++)
            third |= unsigned((w + i) % 3 == 0) << i, fifth |= unsigned((w + i) / 5 == t / 5) << i;
        const int want[14] = {t ^ 5,
                              l < 29 ? t + 3 : t,
                              l >= 3 ? t - 3 : t,
                              w + 7,
                              (t ^ 9) < g + 8 ? t ^ 9 : t,
                              m < 5 ? t + 3 : t,
                              m >= 3 ? t - 3 : t,
                              g + 3,
                              int(third),
                              int(w == 32) + 2 * int(w == 0),
                              (w * 32 + 31 * 16) * 1000 + w + 31,
                              int(fifth),
                              l < 16 ? t ^ 1 : t ^ 2,
                              w + 3};
        for (int k = 0; k < 14; k++) {
            const int got = o[size_t(k * T + t)];
            EXPECT(got == want[k], "case %d thread %d: got %d, want %d", k, t, got, want[k]);
        }
    }
}

TEST(named_barriers_pass_values) {
    Buffer<int> out(10 * 64);
    EXPECT(seeds_that_fail(10,
                           [&] {
                               launch(named_barriers, 1, 96, 0, nullptr, out.p, 10);
                               const std::vector<int> o = out.host();
                               for (int i = 0; i < 640; i++)
                                   if (o[size_t(i)] != i / 64 * (i / 64)) return false;
                               return true;
                           }) == 0,
           "a value came too early or too late");
}

template <int N, bool TA, bool TB, bool REGISTERS = false>
static void expect_wgmma() {
    constexpr int K = 192;
    const std::vector<bf16> A = small_integers(64 * K, 5),
                            B = small_integers(size_t(N) * K, 11);  // K-major: [mn][k]; else [k][mn]
    const Buffer<bf16> dA(A), dB(B);
    Buffer<float> D(64 * N);
    const TensorMap mapA = TA ? tensor_map(dA.p, 64, K, 64, 64, 64) : tensor_map(dA.p, K, 64, K, 64, 64);
    const TensorMap mapB = TB ? tensor_map(dB.p, N, K, N, 64, 64) : tensor_map(dB.p, K, N, K, 64, 64);
    const int bad = seeds_that_fail(kTsan ? 1 : 4, [&] {
        launch(wgmma_kernel<N, TA, TB, REGISTERS>, 1, 256, 2 * kTile * (1 + div_up(N, 64)), nullptr, D.p, mapA, mapB,
               K / 64);
        const std::vector<float> d = D.host();
        for (int m = 0; m < 64; m++)
            for (int n = 0; n < N; n++) {
                float want = 0;
                for (int k = 0; k < K; k++)
                    want += to_float(A[size_t(TA ? k * 64 + m : m * K + k)]) *
                            to_float(B[size_t(TB ? k * N + n : n * K + k)]);
                if (d[size_t(m * N + n)] != want) return false;
            }
        return true;
    });
    EXPECT(bad == 0, "N=%d TA=%d TB=%d registers=%d: wrong under %d seeds", N, TA, TB, REGISTERS, bad);
}
TEST(wgmma_and_tma_are_exact) {
    expect_wgmma<8, false, false>();
    expect_wgmma<64, false, false>();
    expect_wgmma<128, false, true>();
    expect_wgmma<160, true, false>();
    expect_wgmma<256, true, true>();
    expect_wgmma<256, false, false>();
    expect_wgmma<64, false, false, true>();
    expect_wgmma<128, false, true, true>();
}

TEST(stmatrix_and_its_fence) {
    Buffer<bf16> out(16 * 64);
    const TensorMap map = tensor_map(out.p, 64, 16, 64, 64, 16);
    launch(store_box, 1, 32, 16 * 128, nullptr, map, 0, 0);
    const std::vector<bf16> o = out.host();
    for (int i = 0; i < 16 * 64; i++)
        EXPECT(to_float(o[size_t(i)]) == float(i / 64 + i % 64), "row %d, column %d: got %g", i / 64, i % 64,
               to_float(o[size_t(i)]));
    EXPECT_FAILURE("no async_fence since a row of it was written", store_box, 1, 32, 16 * 128, map, 1, 0);
    EXPECT_FAILURE("no async_fence since its source was written", tma_copy, 1, 32, 16 * 128, map, map, 0, 0, 1);
    EXPECT(seeds_that_fail(5, [&] { return failure(store_box, 1, 32, 16 * 128, map, 0, 1).empty(); }) > 0,
           "a store before the other lanes' fences is not seen");
}

constexpr int kTilesOfTwo = 5;
static cudaError_t two_blocks(std::vector<float>* sums, int fault) {
    const Buffer<bf16> in(small_integers(kTilesOfTwo * 16 * 64, 5));
    Buffer<float> out(4 * 128);
    launch_clusters(2, tiles_of_two, 4, 128, 16 * 128, nullptr, out.p,
                    tensor_map(in.p, 64, kTilesOfTwo * 16, 64, 64, 8), kTilesOfTwo, fault);
    const cudaError_t e = cudaDeviceSynchronize();
    *sums = out.host();
    return e;
}
TEST(clusters) {
    float want = 0;
    for (const bf16 x : small_integers(kTilesOfTwo * 16 * 64, 5)) want += to_float(x);
    std::vector<float> sums;
    const auto right = [&](int fault) {
        if (two_blocks(&sums, fault) != cudaSuccess) return false;
        for (int block = 0; block < 4; block++)
            if (std::accumulate(sums.begin() + block * 128, sums.begin() + block * 128 + 128, 0.0f) != want)
                return false;
        return true;
    };
    EXPECT(seeds_that_fail(10, [&] { return right(kRight); }) == 0,
           "two blocks that load for each other got wrong sums");
    if (kTsan) return;
    EXPECT(seeds_that_fail(10, [&] { return right(kOwnBlockAlone); }) > 0,
           "a tile that the other block still reads is overwritten, and nobody sees it");
    EXPECT(two_blocks(&sums, kNoFirstBarrier) != cudaSuccess, "a block that may not have begun is written to");
    EXPECT(std::string(device_error_text(cudaErrorLaunchFailure)).find("before the cluster's first barrier") !=
               std::string::npos,
           "%s", device_error_text(cudaErrorLaunchFailure));
    std::string said;
    EXPECT(seeds_that_fail(10,
                           [&] {
                               const bool good = two_blocks(&sums, kNoLastBarrier) == cudaSuccess;
                               if (!good) said = device_error_text(cudaErrorLaunchFailure);
                               return good;
                           }) > 0 &&
               said.find("another block that has ended") != said.npos,
           "a block that has ended is written to: '%s'", said.c_str());
    expect_error(kExitOther, "a grid of whole ones",
                 [] { launch_clusters(2, tiles_of_two, 3, 128, 0, nullptr, nullptr, TensorMap(), 1, 0); });
}

TEST(tma_boxes_end_at_the_edge) {
    constexpr int R = 21, C = 72;
    const std::vector<bf16> in = small_integers(R * C, 3);
    const Buffer<bf16> from(in);
    const std::vector<bf16> sevens(R * C, to_bf16(7));
    for (int place = 0; place < 3; place++) {
        const int x = place == 1 ? 40 : place == 2 ? -8 : 0, y = place == 1 ? 10 : place == 2 ? -3 : 0;
        Buffer<bf16> to(sevens);
        launch(tma_copy, 1, 32, 16 * 128, nullptr, tensor_map(from.p, C, R, C, 64, 16),
               tensor_map(to.p, C, R, C, 64, 16), x, y, 0);
        const std::vector<bf16> o = to.host();
        for (int r = 0; r < R; r++)
            for (int c = 0; c < C; c++) {
                const bool inside = r >= y && r < y + 16 && c >= x && c < x + 64;
                const float got = to_float(o[size_t(r * C + c)]),
                            want = inside ? 2 * to_float(in[size_t(r * C + c)]) : 7;
                EXPECT(got == want, "box at (%d,%d): [%d][%d]: got %g, want %g", y, x, r, c, got, want);
            }
    }
}

// What is below a matrix's last row is nothing, not the next matrix.
TEST(tma_boxes_end_with_their_matrix) {
    constexpr int R = 11, kCount = 3;
    const std::vector<bf16> in = small_integers(kCount * R * 64, 3);
    const Buffer<bf16> from(in);
    Buffer<bf16> out(16 * 64);
    for (int z = 0; z <= kCount; z++)
        for (const int y : {0, 5}) {
            launch(tma_copy_of, 1, 32, 16 * 128, nullptr, out.p, tensor_map(from.p, 64, R, 64, 64, 16, kCount, R * 64),
                   y, z);
            const std::vector<bf16> o = out.host();
            for (int r = 0; r < 16; r++)
                for (int c = 0; c < 64; c++) {
                    const float want = z < kCount && y + r < R ? to_float(in[size_t((z * R + y + r) * 64 + c)]) : 0;
                    EXPECT(to_float(o[size_t(r * 64 + c)]) == want, "matrix %d, row %d, column %d", z, y + r, c);
                }
        }
}

// ------------------------------------------------------------------------------------------------ faults of kernels

namespace BACKEND {
namespace {

// Mirrors each 64 values in shared memory; block `racy` has no barrier between writing and reading.
__global__ void mirror(int* out, int racy) {
    SHARED(int, s, 64);
    const int t = threadIdx.x;
    s[t] = t;
    if (int(blockIdx.x) != racy) __syncthreads();  // line kMirrorBarrier
    out[blockIdx.x * 64 + t] = s[63 - t];
}
constexpr int kMirrorBarrier = __LINE__ - 3;
bool mirror_is_right(int racy) {
    Buffer<int> out(640);
    launch(mirror, 10, 64, 0, nullptr, out.p, racy);
    const std::vector<int> o = out.host();
    for (int i = 0; i < 640; i++)
        if (o[size_t(i)] != 63 - i % 64) return false;
    return true;
}

__global__ void divergent_barrier(int* out) {
    if (threadIdx.x % 32 < 16)
        __syncthreads();
    else
        __syncthreads();
    out[threadIdx.x] = 1;
}
__global__ void divergent_shuffle(int* out) {
    if (threadIdx.x % 32 < 16)
        out[threadIdx.x] = __shfl_xor_sync(~0u, 1, 1);
    else
        out[threadIdx.x] = __shfl_xor_sync(~0u, 1, 2);
}
__global__ void different_masks(int* out) {
    out[threadIdx.x] = __shfl_xor_sync(threadIdx.x % 32 < 8 ? ~0u : 0xffffff80u, 1, 1);
}
__global__ void stuck_in_barrier(int* out) {
    if (threadIdx.x < 32) bar_sync<64>(0);  // the other 32 never come
    out[threadIdx.x] = 1;
}
__global__ void stuck_in_warp(int* out) {
    if (threadIdx.x == 3)
        __syncthreads();
    else
        out[threadIdx.x] = __shfl_sync(~0u, 1, 0);
}
__global__ void returned_lanes(float* out) {  // mma with half a warp
    if (threadIdx.x >= 16) return;
    float d[4] = {};
    const unsigned a[4] = {}, b[2] = {};
    mma_m16n8k16(d, a, b);
    out[threadIdx.x] = d[0];
}
__global__ void foreign_mask(int* out) { out[threadIdx.x] = __shfl_xor_sync(0xffffu, 1, 1); }
__global__ void lane_outside(float* out) {  // half of the lanes ask the other half, which does not take part
    if (threadIdx.x < 16) out[threadIdx.x] = __shfl_xor_sync(0xffffu, 1.0f, 16);
}
__global__ void surplus_arrival(int* out) {
    SHARED(uint64_t, bar, 1);
    if (threadIdx.x == 0) mbar_init(bar, 2), mbar_arrive(bar), mbar_arrive(bar, 64), mbar_arrive(bar);
    out[threadIdx.x] = 1;
}
__global__ void bar_never_made(int* out) {
    SHARED(uint64_t, bar, 1);
    mbar_wait(bar, 0);
    out[threadIdx.x] = 1;
}
__global__ void wrong_parity(int* out) {
    SHARED(uint64_t, bar, 1);
    if (threadIdx.x == 0) mbar_init(bar, 1);
    __syncthreads();
    mbar_wait(bar, 0);  // of a new barrier the phase of parity 1 has ended
    out[threadIdx.x] = 1;
}

// Four stages by cp.async, of which `short_by` are not waited for.
template <int SHORT>
__global__ void cp_wait(int* out, const int* in) {
    SHARED(uint4, s, 32 * 4);
    const int t = threadIdx.x;
    for (int i = 0; i < 4; i++) {
        cp_async16(s + i * 32 + t, in + (i * 32 + t) * 4);
        cp_async_commit();
    }
    for (int i = 0; i < 4; i++) {
        if (i == 0) cp_async_wait<3 + SHORT>();
        if (i == 1) cp_async_wait<2 + SHORT>();
        if (i == 2) cp_async_wait<1 + SHORT>();
        if (i == 3) cp_async_wait<0 + SHORT>();
        out[i * 32 + t] = int(s[i * 32 + t].y);
    }
    cp_async_wait<0>();
}
__global__ void cp_not_awaited(const int* in, int wait_before_commit) {
    SHARED(uint4, s, 32);
    cp_async16(s + threadIdx.x, in + threadIdx.x * 4);
    if (wait_before_commit) cp_async_wait<0>();  // waits for nothing: the group is still open
}
__global__ void cp_unaligned(const int* in) {
    SHARED(uint4, s, 32);
    cp_async16(s + threadIdx.x, in + threadIdx.x * 4 + 1);
    cp_async_commit();
    cp_async_wait<0>();
}
__global__ void cp_zero_fill(int* out, const int* in) {
    SHARED(uint4, s, 32);
    const int t = threadIdx.x;
    cp_async16(s + t, in + t * 4, t < 20);  // in ends there
    cp_async_commit();
    cp_async_wait<0>();
    out[t] = int(s[t].w);
}
__global__ void tma_not_awaited(const TensorMap map, int store) {
    DYNAMIC_SHARED(smem);
    SHARED(uint64_t, bar, 1);
    if (threadIdx.x == 0) {
        mbar_init(bar, 1);
        mbar_arrive(bar, 64 * 64 * 2);
        if (store)
            tma_store(&map, smem, 0, 0);
        else
            tma_load(smem, &map, bar, 0, 0);
    }
}
__global__ void wgmma_unfenced(int) {
    DYNAMIC_SHARED(smem);
    float d[32];
    wgmma<64, false, false>(d, wgmma_desc(smem, 8192, 1024), wgmma_desc(smem, 8192, 1024), false);
    wgmma_commit();
    wgmma_wait<0>();
}
// Reads its accumulators before the wgmma is waited for.
__global__ void wgmma_wait_short(float* out, int without_fence) {
    DYNAMIC_SHARED(smem);
    bf16* p = reinterpret_cast<bf16*>(smem);
    for (int i = threadIdx.x; i < 64 * 64; i += 128) p[i] = to_bf16(1);
    if (!without_fence) async_fence();
    __syncthreads();
    float d[32] = {};
    wgmma_fence();
    wgmma<64, false, false>(d, wgmma_desc(smem, 8192, 1024), wgmma_desc(smem, 8192, 1024), false);
    wgmma_commit();
    out[threadIdx.x] = d[0];
    wgmma_wait<0>();
}

__global__ void starts_as_nan(int* bad) {
    SHARED(float, s, 64);
    DYNAMIC_SHARED(raw);
    float* d = reinterpret_cast<float*>(raw);
    const int t = threadIdx.x;
    if (s[t] == s[t] || d[t] == d[t]) atomicAdd(bad, 1);  // NaN alone differs from itself
    __syncthreads();
    s[t] = d[t] = 7;
}
template <int N>
DEVICE int* own_array() {
    SHARED(int, array, N);
    return array;
}
__global__ void distinct_arrays(int* out) {
    SHARED(int, a, 4);
    SHARED(int, b, 4);
    int *c = own_array<4>(), *d = own_array<5>();
    a[0] = 1, b[0] = 2, c[0] = 3, d[0] = 4;
    out[0] = a[0] * 1000 + b[0] * 100 + c[0] * 10 + d[0];
    out[1] = int(own_array<4>() == c);
}
__global__ void unaligned_array(int* out) {  // bf16 arrays are aligned to 2, whatever a compiler happens to do
    SHARED(bf16, s, 64);
    unsigned r[4];
    for (int i = threadIdx.x; i < 64; i += 32) s[i] = to_bf16(0);
    ldmatrix_x4(r, s + threadIdx.x % 8 * 8);
    out[threadIdx.x] = int(r[0]);
}
__global__ void count(int* sum, unsigned long long* longest, int* lowest) {
    const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
    atomicAdd(sum, i);
    atomicMax(longest, (unsigned long long)i);
    atomicMin(lowest, i);
}
// A sum whose order is that of the threads' coming: what no kernel here may do.
__global__ void sum_as_they_come(float* out, const float* x) {
    SHARED(int, ticket, 1);
    SHARED(float, sum, 1);
    const int t = threadIdx.x;
    if (t == 0) ticket[0] = 0, sum[0] = 0;
    __syncthreads();
    __shfl_sync(~0u, 0, 0);  // a place to change places
    atomicAdd(ticket, 1);
    sum[0] += x[t];
    __syncthreads();
    if (t == 0) out[0] = sum[0];
}
__global__ void fill(int* p, int n, int value) {
    const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) p[i] = value;
}
__global__ void twice_plus(int* p, int n, int add) {
    const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) p[i] = p[i] * 2 + add;
}
__global__ void overrun_global(int* p) { p[threadIdx.x] = 1; }
__global__ void overrun_dynamic(int* out) {
    DYNAMIC_SHARED(raw);
    out[threadIdx.x] = reinterpret_cast<int*>(raw)[threadIdx.x];
}
__global__ void overrun_static(int* out) {
    SHARED(int, s, 60);
    out[threadIdx.x] = s[threadIdx.x];
}
// Two blocks write to the same place, once both run. The flags are relaxed, so they order nothing.
__global__ void both_write(int* out, std::atomic<int>* running) {
    running->fetch_or(1 << blockIdx.x, std::memory_order_relaxed);
    while (running->load(std::memory_order_relaxed) != 3) std::this_thread::yield();
    out[threadIdx.x] = int(blockIdx.x);
}
// Warp-level exchange through shared memory, with or without the barrier that orders it.
__global__ void warp_exchange(int* out, int racy) {
    SHARED(int, s, 64);
    const int t = threadIdx.x;
    s[t] = t;
    if (!racy) __syncwarp();
    __shfl_sync(~0u, 0, 0);  // no order of memory in itself
    out[t] = s[t ^ 1];
}

}  // namespace
}  // namespace BACKEND

// ------------------------------------------------------------------------------------------------ dependent launches

namespace BACKEND {
static bool behind_kernel =
    false;  // kernels/runtime.cu, which is not linked here, knows what the last thing in a stream was
cudaStream_t launch_stream(Stream stream, bool* behind) {
    *behind = behind_kernel;
    return reinterpret_cast<cudaStream_t>(stream);
}
}  // namespace BACKEND

namespace {

// x[t] = x[63 - t], by one block of 64. What precedes the wait is right, or has a fault.
enum Fault { kNone, kReadsEarly, kWritesEarly, kCopiesEarly, kNeverWaits, kOneDoesNotWait, kNoBarrier };
__global__ void after_another(int* x, Fault fault) {
    SHARED(int4, early, 1);
    SHARED(int, from, 64);
    const int t = threadIdx.x;
    from[t] = 63 - (t ^ 32);
    if (fault == kReadsEarly) from[t] += x[t] / 1000;
    if (fault == kWritesEarly && t == 9) x[t] = 0;
    if (fault == kCopiesEarly && t == 9) cp_async16(early, x);
    cp_async_commit();
    cp_async_wait<0>();
    if (fault != kNoBarrier) __syncthreads();
    if (fault != kNeverWaits && (fault != kOneDoesNotWait || t != 40)) grid_dependency_sync();
    const int value = x[from[t ^ 32] & 63];
    __syncthreads();
    x[t] = value;
}

}  // namespace

TEST(dependent_launches_are_checked) {
    struct Strict {
        Strict() { simt::kernels_depend = true; }
        ~Strict() { simt::kernels_depend = false; }
    } strict;
    std::vector<int> forth(64), back(64);
    for (int i = 0; i < 64; i++) forth[size_t(i)] = back[size_t(63 - i)] = i;
    const Buffer<int> x(forth);
    const auto run = [&](Fault fault) {
        check(cudaMemcpy(x.p, forth.data(), 256, cudaMemcpyHostToDevice));
        return failure(after_another, 1, 64, 0, x.p, fault);
    };
    const auto says = [&](Fault fault, const char* text) {
        return seeds_that_fail(10, [&] { return run(fault).find(text) == std::string::npos; });
    };
    EXPECT(seeds_that_fail(10, [&] { return run(kNone).empty() && x.host() == back; }) == 0, "a right kernel fails");
    EXPECT(says(kNeverWaits, "a thread returned without grid_dependency_sync") == 10 &&
               says(kNeverWaits, "launched at tests/cuda/test_emu.cpp:") == 10,
           "none waits");
    EXPECT(
        says(kOneDoesNotWait, "grid_dependency_sync") == 10 && says(kOneDoesNotWait, "a thread returned without") > 0,
        "one does not wait");
    for (const Fault fault : {kReadsEarly, kWritesEarly, kCopiesEarly}) {
        const int seen =
            says(fault, "global memory is touched before grid_dependency_sync at tests/cuda/test_emu.cpp:");
        EXPECT(kAsan || kTsan ? seen == 0 : seen > 0 && seen < 10, "fault %d: seen under %d of 10 seeds", fault, seen);
    }
    // The wait is no barrier, though now and then all threads of a block come to it before one goes on.
    if (!kTsan)
        EXPECT(seeds_that_fail(10, [&] { return run(kNoBarrier).empty() && x.host() == back; }) > 0,
               "never wrong without the barrier");
}

TEST(dependent_launches_follow_kernels) {
    const TestStream a;
    Buffer<int> x(std::vector<int>(8, 0));
    const auto dependent = [&](int add) {
        behind_kernel = true;
        launch(twice_plus, 1, 8, 0, a, x.p, 8, add);
        behind_kernel = false;
    };
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    check(cudaStreamBeginCapture(a.s, cudaStreamCaptureModeGlobal));
    launch(fill, 1, 8, 0, a, x.p, 8, 3);
    dependent(1), dependent(2);
    check(cudaStreamEndCapture(a.s, &graph));
    check(cudaGraphInstantiate(&exec, graph));
    const uint64_t before = simt::dependent_launches();
    for (int i = 0; i < 3; i++) check(cudaGraphLaunch(exec, a.s));
    check(cudaStreamSynchronize(a.s));
    EXPECT(x.host()[0] == 16 && simt::dependent_launches() - before == 6, "got %d, %d dependent launches", x.host()[0],
           int(simt::dependent_launches() - before));
    check(cudaGraphExecDestroy(exec));
    check(cudaGraphDestroy(graph));
    // Behind a copy, and behind a capture, which has put nothing into the stream.
    for (const bool captured : {false, true}) {
        if (captured) {
            check(cudaStreamBeginCapture(a.s, cudaStreamCaptureModeGlobal));
            launch(fill, 1, 8, 0, a, x.p, 8, 3);
            check(cudaStreamEndCapture(a.s, &graph));
            check(cudaGraphDestroy(graph));
        } else {
            launch(fill, 1, 8, 0, a, x.p, 8, 3);
            check(cudaMemsetAsync(x.p, 0, 32, a.s));
        }
        dependent(1);
        const cudaError_t e = cudaStreamSynchronize(a.s);
        EXPECT(
            e == cudaErrorLaunchFailure && std::string(device_error_text(e)).find("is no kernel") != std::string::npos,
            "captured %d: %s", captured, device_error_text(e));
    }
}

TEST(missing_barrier_gives_wrong_results) {
    EXPECT(seeds_that_fail(10, [] { return mirror_is_right(-1); }) == 0, "wrong with the barrier");
    if (!kTsan) EXPECT(seeds_that_fail(10, [] { return mirror_is_right(5); }) > 0, "never wrong without the barrier");
}

TEST(divergence_is_an_error) {
    Buffer<int> out(64);
    EXPECT_FAILURE("divergent barrier: lanes of one warp come to __syncthreads from tests/cuda/test_emu.cpp:",
                   divergent_barrier, 2, 64, 0, out.p);
    EXPECT_FAILURE("divergent warp operation: lane ", divergent_shuffle, 2, 64, 0, out.p);
    EXPECT_FAILURE("divergent warp operation: lane ", different_masks, 1, 32, 0, out.p);
    EXPECT_FAILURE("is not in its mask 0000ffff", foreign_mask, 1, 64, 0, out.p);
    Buffer<float> x(64);
    EXPECT_FAILURE("mma at tests/cuda/test_emu.cpp:", returned_lanes, 1, 32, 0, x.p);
    launch(lane_outside, 1, 32, 0, nullptr, x.p);
    EXPECT(std::isnan(x.host()[0]), "a replica outside the mask gave a number");
    EXPECT(mirror_is_right(-1), "the next launch is wrong");
}

TEST(deadlock_names_the_places) {
    Buffer<int> out(64);
    EXPECT_FAILURE("threads 0..31: bar.sync at tests/cuda/test_emu.cpp:", stuck_in_barrier, 1, 64, 0, out.p);
    EXPECT_FAILURE("threads 32..63: returned", stuck_in_barrier, 1, 64, 0, out.p);
    EXPECT_FAILURE("threads 3..3: __syncthreads at tests/cuda/test_emu.cpp:", stuck_in_warp, 1, 32, 0, out.p);
    EXPECT_FAILURE("threads 4..31: __shfl_sync at tests/cuda/test_emu.cpp:", stuck_in_warp, 1, 32, 0, out.p);
    EXPECT_FAILURE("(SIMT_SEED=", stuck_in_warp, 1, 32, 0, out.p);
    EXPECT_FAILURE("block (", stuck_in_warp, 1, 32, 0, out.p);
}

TEST(mbarriers_are_checked) {
    Buffer<int> out(64);
    EXPECT_FAILURE("more arrivals in a phase than the 2", surplus_arrival, 1, 64, 0, out.p);
    EXPECT_FAILURE("not initialised", bar_never_made, 1, 64, 0, out.p);
    EXPECT_FAILURE("threads 0..31: mbarrier wait at tests/cuda/test_emu.cpp:", wrong_parity, 1, 32, 0, out.p);
}

TEST(cp_async_lands_late) {
    std::vector<int> in(512);
    for (int i = 0; i < 512; i++) in[size_t(i)] = i;
    const Buffer<int> from(in);
    Buffer<int> out(128);
    auto right = [&] {
        const std::vector<int> o = out.host();
        for (int i = 0; i < 128; i++)
            if (o[size_t(i)] != i * 4 + 1) return false;
        return true;
    };
    auto right_with = [&](void (*kernel)(int*, const int*)) {
        launch(kernel, 1, 32, 0, nullptr, out.p, from.p);
        return right();
    };
    EXPECT(seeds_that_fail(5, [&] { return right_with(cp_wait<0>); }) == 0, "wrong with all waits");
    EXPECT(seeds_that_fail(5, [&] { return right_with(cp_wait<1>); }) > 0, "a wait one short is not seen");
    EXPECT_FAILURE("returned with 1 cp.async not waited for, the oldest from tests/cuda/test_emu.cpp:", cp_not_awaited,
                   1, 32, 0, from.p, 0);
    EXPECT_FAILURE("returned with 1 cp.async not waited for", cp_not_awaited, 1, 32, 0, from.p, 1);
    EXPECT_FAILURE("not 16-byte aligned", cp_unaligned, 1, 32, 0, from.p);
    const Buffer<int> few(std::vector<int>(80, 3));
    launch(cp_zero_fill, 1, 32, 0, nullptr, out.p, few.p);
    const std::vector<int> o = out.host();
    for (int t = 0; t < 32; t++) EXPECT(o[size_t(t)] == (t < 20 ? 3 : 0), "thread %d: got %d", t, o[size_t(t)]);
}

TEST(hopper_waits_are_checked) {
    Buffer<bf16> a(64 * 64);
    const TensorMap map = tensor_map(a.p, 64, 64, 64, 64, 64);
    EXPECT(seeds_that_fail(10,
                           [&] {
                               return failure(tma_not_awaited, 1, 32, kTile, map, 0).find("1 copies in flight") ==
                                      std::string::npos;
                           }) > 0,
           "a load in flight at the end is not seen");
    EXPECT_FAILURE("1 TMA stores not waited for", tma_not_awaited, 1, 32, kTile, map, 1);
    EXPECT_FAILURE("no wgmma_fence before it", wgmma_unfenced, 1, 128, kTile, 0);
    Buffer<float> out(128);
    EXPECT_FAILURE("no async_fence since its source was written", wgmma_wait_short, 1, 128, kTile, out.p, 1);
    EXPECT(seeds_that_fail(5,
                           [&] {
                               launch(wgmma_wait_short, 1, 128, kTile, nullptr, out.p, 0);
                               const std::vector<float> o = out.host();
                               return std::all_of(o.begin(), o.end(), [](float x) { return x == 64; });
                           }) > 0,
           "accumulators that are read too early are not seen");
}

TEST(shared_memory) {
    Buffer<int> bad(std::vector<int>(1, 0));
    launch(starts_as_nan, 8, 64, 256, nullptr, bad.p);
    EXPECT(bad.host()[0] == 0, "%d values were not NaN at the start", bad.host()[0]);
    Buffer<int> out(32);
    launch(distinct_arrays, 1, 1, 0, nullptr, out.p);
    EXPECT(out.host()[0] == 1234 && out.host()[1] == 1, "arrays share memory: %d", out.host()[0]);
    EXPECT_FAILURE("ldmatrix at tests/cuda/test_emu.cpp:", unaligned_array, 1, 32, 0, out.p);
    expect_error(kExitOther, "shared memory", [&] { launch(overrun_dynamic, 1, 64, 300 * 1024, nullptr, out.p); });
    expect_error(kExitOther, "empty", [&] { launch(overrun_dynamic, 0, 64, 0, nullptr, out.p); });
    expect_error(kExitOther, "too large", [&] { launch(overrun_dynamic, 1, 1025, 0, nullptr, out.p); });
}

TEST(atomics) {
    Buffer<int> sum(std::vector<int>{0}), lowest(std::vector<int>{9});
    Buffer<unsigned long long> longest(std::vector<unsigned long long>{0});
    launch(count, 5, 40, 0, nullptr, sum.p, longest.p, lowest.p);
    EXPECT(sum.host()[0] == 199 * 100 && longest.host()[0] == 199 && lowest.host()[0] == 0, "sum %d", sum.host()[0]);
}

TEST(order_of_sums_shows) {
    if (kTsan) SKIP("it is a data race");
    std::vector<float> x(64);
    for (int i = 0; i < 64; i++) x[size_t(i)] = 1.0f / float(i + 1);
    const Buffer<float> in(x);
    Buffer<float> out(1);
    std::set<float> sums;
    seeds_that_fail(8, [&] {
        launch(sum_as_they_come, 1, 64, 0, nullptr, out.p, in.p);
        sums.insert(out.host()[0]);
        return true;
    });
    EXPECT(sums.size() > 1, "eight seeds, one sum");
}

// ------------------------------------------------------------------------------------------------ streams

// x = 2x + 1 on one stream and x = 2x + 2 on another, in this order if the event is there.
static int two_streams(bool with_event) {
    Buffer<int> x(std::vector<int>(64, 3));
    const TestStream a, b;
    const TestEvent e;
    launch(twice_plus, 2, 32, 0, a, x.p, 64, 1);
    if (with_event) {
        check(cudaEventRecord(e.e, a.s));
        check(cudaStreamWaitEvent(b.s, e.e));
    }
    launch(twice_plus, 2, 32, 0, b, x.p, 64, 2);
    check(cudaStreamSynchronize(a.s));
    check(cudaStreamSynchronize(b.s));
    return x.host()[0];
}
TEST(missing_event_gives_wrong_results) {
    EXPECT(seeds_that_fail(16, [] { return two_streams(true) == 16; }) == 0, "wrong with the event");
    const int wrong = seeds_that_fail(16, [] { return two_streams(false) == 16; });
    EXPECT(wrong > 0 && wrong < 16, "without the event wrong under %d of 16 seeds", wrong);
}

TEST(host_buffers_are_read_late) {
    Buffer<int> x(64);
    std::vector<int> host(64, 1);
    const TestStream s;
    check(cudaHostRegister(host.data(), 256, 0));
    check(cudaMemcpyAsync(x.p, host.data(), 256, cudaMemcpyHostToDevice, s.s));
    host[0] = 2;  // too early: the stream has not been there
    check(cudaStreamSynchronize(s.s));
    EXPECT(x.host()[0] == 2, "the copy was made at the call");
    check(cudaHostUnregister(host.data()));
    int late = 0;  // memory that is not pinned may be read at the call, or later
    for (int i = 0; i < 8; i++) {
        host[0] = 1;
        check(cudaMemcpyAsync(x.p, host.data(), 256, cudaMemcpyHostToDevice, s.s));
        host[0] = 2;
        check(cudaStreamSynchronize(s.s));
        late += x.host()[0] == 2;
    }
    EXPECT(late == 4, "%d of 8 copies of pageable memory were made late", late);

    launch(fill, 1, 64, 0, s, x.p, 64, 5);
    host[0] = 7;
    check(cudaMemcpyAsync(host.data(), x.p, 256, cudaMemcpyDeviceToHost, s.s));
    const int early = host[0];  // read before the stream was waited for
    check(cudaStreamSynchronize(s.s));
    EXPECT(early == 7 && host[0] == 5, "got %d early, %d late", early, host[0]);
}

TEST(wait_that_is_never_met) {
    const TestStream a, b;
    const TestEvent e;
    Buffer<int> x(64);
    check(cudaStreamWaitEvent(a.s, e.e));  // recorded never
    launch(fill, 1, 64, 0, a, x.p, 64, 5);
    launch(fill, 1, 64, 0, b, x.p, 64, 6);
    const cudaError_t result = cudaStreamSynchronize(a.s);
    const std::string said = device_error_text(result);
    EXPECT(result == cudaErrorUnknown && said.find("stream ") != said.npos &&
               said.find("(2 entries) waits for record 1") != said.npos,
           "%s", said.c_str());
    check(cudaDeviceSynchronize());
    EXPECT(cudaEventSynchronize(e.e) == cudaErrorUnknown,
           "the host does not wait for an event that was never recorded");
    // One that another thread records in time is met.
    check(cudaStreamWaitEvent(a.s, e.e));
    std::thread other([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        cudaEventRecord(e.e, b.s);
    });
    const cudaError_t met = cudaStreamSynchronize(a.s);
    other.join();
    check(met);
}

TEST(kernel_errors_come_with_the_next_wait) {
    const TestStream a, b;
    Buffer<int> x(std::vector<int>(64, 1));
    launch(divergent_barrier, 1, 64, 0, a, x.p);
    launch(fill, 1, 64, 0, a, x.p, 64, 9);  // behind it: dropped
    EXPECT(cudaStreamSynchronize(a.s) == cudaErrorLaunchFailure, "no error");
    EXPECT(cudaGetLastError() == cudaErrorLaunchFailure && cudaGetLastError() == cudaSuccess, "the last error");
    check(cudaStreamSynchronize(b.s));
    EXPECT(x.host()[0] == 1, "a kernel ran after the failure");
}

TEST(host_functions) {
    const TestStream a;
    static std::vector<int> seen;
    static std::atomic<cudaError_t> inside;
    seen.clear();
    Buffer<int> x(std::vector<int>(1, 0));
    for (int i = 0; i < 3; i++) {
        launch(fill, 1, 1, 0, a, x.p, 1, i);
        check(cudaLaunchHostFunc(
            a.s,
            [](void* p) {
                std::this_thread::sleep_for(std::chrono::milliseconds(2));
                seen.push_back(*static_cast<int*>(p));
                inside = cudaStreamSynchronize(nullptr);
            },
            x.p));
    }
    check(cudaStreamSynchronize(a.s));
    EXPECT((seen == std::vector<int>{0, 1, 2}), "out of order");
    EXPECT(inside == cudaErrorNotPermitted, "a host function may call the runtime");
}

TEST(goes_on_by_itself) {
    const TestStream a;
    static std::atomic<bool> called;
    called = false;
    check(cudaLaunchHostFunc(
        a.s, [](void*) { called = true; }, nullptr));
    for (int i = 0; i < 2000 && !called; i++) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT(called, "a host function waits for ever while nobody waits for it");
    // Polling gets there too, from behind a host function that has the stream wait, however slow this thread is.
    Buffer<int> x(1);
    static std::atomic<bool> released;
    released = false;
    check(cudaLaunchHostFunc(
        a.s,
        [](void*) {
            while (!released) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        },
        nullptr));
    for (int i = 0; i < 20; i++) launch(fill, 1, 1, 0, a, x.p, 1, i);
    const bool waits = cudaStreamQuery(a.s) == cudaErrorNotReady;
    released = true;
    EXPECT(waits, "ready at once");
    // For a minute at most: the core may be shared.
    for (int polls = 0; polls < 60000 && cudaStreamQuery(a.s) == cudaErrorNotReady; polls++)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    check(cudaStreamQuery(a.s));
}

TEST(events) {
    const TestStream a;
    cudaEvent_t from, to;
    check(cudaEventCreateWithFlags(&from, cudaEventDefault));
    check(cudaEventCreateWithFlags(&to, cudaEventDefault));
    check(cudaEventRecord(from, a.s));
    check(cudaLaunchHostFunc(
        a.s, [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }, nullptr));
    check(cudaEventRecord(to, a.s));
    float ms = 0;
    EXPECT(cudaEventElapsedTime(&ms, from, to) == cudaErrorNotReady, "the time is known before it has passed");
    check(cudaEventSynchronize(to));
    check(cudaEventQuery(from));
    check(cudaEventElapsedTime(&ms, from, to));
    EXPECT(ms >= 15 && ms < 20000, "%g ms", ms);
    check(cudaEventDestroy(from));
    check(cudaEventDestroy(to));
    EXPECT(cudaEventRecord(to, a.s) == cudaErrorInvalidResourceHandle, "an event lives on after its end");
}

// x = 3; on b: x = 2x + 1; on a again: x = 2x + 2. `join`: a waits for b.
static cudaError_t capture(cudaGraphExec_t* exec, int* x, cudaStream_t a, cudaStream_t b, bool join) {
    const TestEvent fork, joined;
    auto on = [](cudaStream_t s) { return reinterpret_cast<Stream>(s); };
    check(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
    launch(fill, 1, 8, 0, on(a), x, 8, 3);
    check(cudaEventRecord(fork.e, a));
    check(cudaStreamWaitEvent(b, fork.e));
    launch(twice_plus, 1, 8, 0, on(b), x, 8, 1);
    check(cudaEventRecord(joined.e, b));
    if (join) check(cudaStreamWaitEvent(a, joined.e));
    launch(twice_plus, 1, 8, 0, on(a), x, 8, 2);
    EXPECT(cudaStreamSynchronize(a) == cudaErrorStreamCaptureUnsupported, "a captured stream can be waited for");
    cudaGraph_t graph;
    if (const cudaError_t e = cudaStreamEndCapture(a, &graph)) return e;
    EXPECT(cudaGraphInstantiate(exec, graph, 0) == cudaErrorInvalidValue, "priorities are lost");
    check(cudaGraphInstantiate(exec, graph, cudaGraphInstantiateFlagUseNodePriority));
    return cudaGraphDestroy(graph);
}
TEST(graphs) {
    const TestStream a, b;
    Buffer<int> x(std::vector<int>(8, 0));
    cudaGraphExec_t exec;
    EXPECT(capture(&exec, x.p, a.s, b.s, false) == cudaErrorStreamCaptureUnjoined,
           "a stream that was not joined goes unnoticed");
    check(capture(&exec, x.p, a.s, b.s, true));
    check(cudaDeviceSynchronize());
    EXPECT(x.host()[0] == 0, "capturing has executed something");
    EXPECT(seeds_that_fail(10,
                           [&] {
                               check(cudaGraphLaunch(exec, a.s));
                               launch(twice_plus, 1, 8, 0, a, x.p, 8, 0);
                               check(cudaGraphLaunch(exec, a.s));
                               launch(twice_plus, 1, 8, 0, a, x.p, 8, 5);
                               check(cudaStreamSynchronize(a.s));
                               return x.host()[0] == ((3 * 2 + 1) * 2 + 2) * 2 + 5;
                           }) == 0,
           "a graph's order is wrong");
    check(cudaGraphExecDestroy(exec));
}

TEST(memory) {
    Buffer<float> x(1000);
    for (float v : x.host()) EXPECT(std::isnan(v), "fresh memory holds %g", v);
    void* p = nullptr;
    EXPECT(cudaMalloc(&p, size_t(1) << 60) == cudaErrorMemoryAllocation && !p, "an absurd size");
    size_t free = 0, total = 0, after = 0;
    check(cudaMemGetInfo(&free, &total));
    check(cudaMalloc(&p, 1 << 20));
    check(cudaMemGetInfo(&after, &total));
    EXPECT(after == free - (1 << 20) && free < total, "%zu free, then %zu", free, after);
    check(cudaMemset(p, 0, 1 << 20));
    if (!kAsan) {
        const volatile float* old = static_cast<float*>(p);
        check(cudaFree(p));
        EXPECT(std::isnan(old[5]), "freed memory holds %g", old[5]);
    } else {
        check(cudaFree(p));
    }
    EXPECT(cudaFree(p) != cudaSuccess, "freed twice");
    std::vector<float> h(1001);
    EXPECT(cudaMemcpy(x.p, h.data(), 4004, cudaMemcpyHostToDevice) == cudaErrorInvalidValue, "a copy beyond the end");
    EXPECT(cudaMemcpy(h.data(), x.p, 4000, cudaMemcpyHostToDevice) == cudaErrorInvalidValue,
           "a copy in the wrong direction");
    EXPECT(cudaMemsetAsync(h.data(), 0, 8) == cudaErrorInvalidValue, "a fill of host memory");
    check(cudaMallocHost(&p, 100));
    check(cudaFreeHost(p));
    EXPECT(cudaFreeHost(h.data()) == cudaErrorInvalidValue, "host memory that is not pinned is freed");
    check(cudaHostRegister(h.data(), 4004, 0));
    EXPECT(cudaHostRegister(h.data(), 4004, 0) == cudaErrorHostMemoryAlreadyRegistered, "registered twice");
    check(cudaHostUnregister(h.data()));
    int sms = 0, smem = 0;
    check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    check(cudaDeviceGetAttribute(&smem, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    EXPECT(sms > 0 && smem >= 99 * 1024, "%d SMs, %d bytes", sms, smem);
}

// ------------------------------------------------------------------------------------------------ in a process of
// their own

// The order in which kernels and copies of three streams happen, as a number.
static unsigned trace() {
    Buffer<int> x(std::vector<int>(1, 1));
    const TestStream s[3];
    for (int i = 0; i < 12; i++) launch(twice_plus, 1, 1, 0, s[i % 3], x.p, 1, i);
    for (const TestStream& t : s) check(cudaStreamSynchronize(t.s));
    return unsigned(x.host()[0]);
}

static int run_planted(const std::string& name) {
    if (name == "overrun_global") {
        Buffer<int> x(60);
        failure(overrun_global, 1, 64, 0, x.p);
    } else if (name == "overrun_dynamic") {
        Buffer<int> x(64);
        failure(overrun_dynamic, 1, 64, 240, x.p);
    } else if (name == "overrun_static") {
        Buffer<int> x(64);
        failure(overrun_static, 1, 64, 0, x.p);
    } else if (name == "use_after_free") {
        int* p;
        {
            Buffer<int> x(64);
            p = x.p;
        }
        failure(overrun_global, 1, 64, 0, p);
    } else if (name.starts_with("race"))
        mirror_is_right(std::atoi(name.c_str() + 4));
    else if (name.starts_with("warp")) {
        Buffer<int> x(64);
        failure(warp_exchange, 1, 64, 0, x.p, std::atoi(name.c_str() + 4));
    } else if (name == "blocks") {
        Buffer<int> x(64);
        std::atomic<int> running{0};
        failure(both_write, 2, 64, 0, x.p, &running);
    } else if (name == "mirror")
        return seeds_that_fail(10, [] { return mirror_is_right(-1); });
    else if (name == "events")
        return seeds_that_fail(16, [] { return two_streams(true) == 16; });
    else if (name == "trace") {
        for (int i = 0; i < 4; i++) std::printf("%u ", trace());
        std::printf("\n");
    } else if (name == "fork_first") {  // each side of a fork that comes first has a device of its own
        const pid_t child = fork();
        const bool right = mirror_is_right(-1);
        if (child == 0) _exit(right ? 0 : 1);
        int status = 1;
        waitpid(child, &status, 0);
        return right && status == 0 ? 0 : 1;
    } else if (name == "fork_late") {
        mirror_is_right(-1);
        const pid_t child = fork();
        if (child == 0) _exit(cudaDeviceSynchronize() == cudaErrorInitializationError ? 0 : 1);
        int status = 1;
        waitpid(child, &status, 0);
        return status == 0 && mirror_is_right(-1) ? 0 : 1;
    } else if (name == "limit") {
        Buffer<int> x(64);
        try {
            launch(overrun_dynamic, 1, 16, 100 * 1024, nullptr, x.p);
        } catch (const Error& e) {
            std::printf("%s\n", e.message.c_str());
        }
    } else if (name == "right") {
        mirror_is_right(-1);
        std::printf("%u\n", trace());
    } else
        return 3;
    return 0;
}

TEST(address_sanitizer) {
    if (!kAsan) SKIP("not built with -fsanitize=address");
    for (const char* name : {"overrun_global", "overrun_dynamic", "overrun_static", "use_after_free"}) {
        const std::string said = planted(name, "");
        const bool found =
            said.find("ERROR: AddressSanitizer: heap-") != said.npos || said.find("runtime error: index") != said.npos;
        EXPECT(found && said.find("test_emu.cpp") != said.npos, "%s: %s", name, said.c_str());
    }
}

TEST(thread_sanitizer) {
    if (!kTsan) SKIP("not built with -fsanitize=thread");
    const std::string race = "WARNING: ThreadSanitizer: data race";
    for (const char* order : {"SIMT_SEED=0", "SIMT_SEED=1"}) {
        for (const char* name :
             {"race0", "race5", "race9", "warp1"}) {  // in the first block, in the middle, in the last
            const std::string said = planted(name, order);
            EXPECT(said.find(race) != said.npos && said.find("test_emu.cpp") != said.npos, "%s %s: %s", order, name,
                   said.c_str());
        }
        for (const char* name : {"race-1", "warp0"}) {
            const std::string said = planted(name, order);
            EXPECT(said.empty(), "%s %s: %s", order, name, said.c_str());
        }
    }
    const std::string said = planted("blocks", "SIMT_THREADS=2");
    EXPECT(said.find(race) != said.npos, "a race between blocks: %s", said.c_str());
}

TEST(same_seed_same_order) {
    const std::string one = planted("trace", "SIMT_EAGER_MS=0 SIMT_SEED=5"),
                      again = planted("trace", "SIMT_EAGER_MS=0 SIMT_SEED=5");
    const std::string other = planted("trace", "SIMT_EAGER_MS=0 SIMT_SEED=6"),
                      plain = planted("trace", "SIMT_EAGER_MS=0 SIMT_SEED=0");
    EXPECT(one == again && one.size() > 8, "'%s', then '%s'", one.c_str(), again.c_str());
    EXPECT(one != other && one != plain, "seeds do not matter: '%s'", one.c_str());
    // Seed 0: first come, first served, and one stream after another.
    EXPECT(planted("trace", "SIMT_EAGER_MS=0 SIMT_SEED=0") == plain, "seed 0 is not always the same");
}

TEST(environment) {
    int status = 1;
    std::string said = planted("right", "SIMT_THREADS=3", &status);
    EXPECT(status == 0, "three threads: %s", said.c_str());
    planted("fork_first", "", &status);
    if (!kTsan) EXPECT(status == 0, "fork before the first use: status %d", status);
    planted("fork_late", "", &status);
    if (!kTsan) EXPECT(status == 0, "fork after the first use: status %d", status);
    said = planted("limit", "SIMT_ARCH=86");
    EXPECT(said.find("sm_86 has 101376") != said.npos, "100 KB on sm_86: %s", said.c_str());
    EXPECT(planted("limit", "SIMT_ARCH=80").empty(), "100 KB on sm_80 is refused");
}

TEST(faults_on_request) {
    if (kTsan) SKIP("it is a data race");
    int status = 0;
    planted("mirror", format("SIMT_SKIP_BARRIER=test_emu.cpp:%d", kMirrorBarrier), &status);
    EXPECT(status > 0, "a barrier that is not there goes unnoticed");
    planted("mirror", format("SIMT_SKIP_BARRIER=test_emu.cpp:%d", kMirrorBarrier + 1), &status);
    EXPECT(status == 0, "a line without a barrier makes %d seeds fail", status);
    planted("events", "SIMT_IGNORE_WAITS=1", &status);
    EXPECT(status > 0, "waits that are not there go unnoticed");
    planted("events", "", &status);
    EXPECT(status == 0, "%d seeds fail", status);
}

TEST(coverage_lists_kernels) {
    const std::string file = format("/tmp/lockstep-coverage-%d", int(getpid()));
    std::remove(file.c_str());
    planted("right", "SIMT_COVERAGE=" + file);
    planted("right", "SIMT_COVERAGE=" + file);
    std::ifstream in(file);
    std::multiset<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.insert(line);
    std::remove(file.c_str());
    const std::set<std::string> kernels(lines.begin(), lines.end());
    // mirror and twice_plus, in two runs
    EXPECT(lines.size() == 4 && kernels.size() == 2, "%zu lines, %zu kernels", lines.size(), kernels.size());
}

int main(int argc, char** argv) {
    unsetenv("SIMT_SYNC");  // much of this is about what it turns off
    simt::kernels_depend = false;
    if (argc == 3 && std::string(argv[1]) == "--planted") return run_planted(argv[2]);
    return run_tests(argc, argv);
}
