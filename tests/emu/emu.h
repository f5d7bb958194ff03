// emu.h -- the words of CUDA C++, the instructions of cuda.cuh and the runtime API, for a C++ compiler: .cu files that
// include it (through common.cuh) become namespace emu, and simt.h runs their kernels. The bodies are in units.cpp and
// runtime.cpp.
//
// Asynchronous instructions take effect at a random legal moment, so a wait that is missing or too short reads stale
// data. Streams are queues that a thread of their own executes in a random legal order, see runtime.cpp. More from the
// environment:
//   SIMT_ARCH=n         the architecture to be, 80 86 89 90 100 120 (90): what it lacks traps, and its limit of shared
//   memory holds SIMT_SMS=n          its multiprocessors SIMT_SYNC=1         a launch or copy is done when the call
//   returns SIMT_EAGER_MS=n     streams start by themselves when nobody has waited for them for so long (5); 0: never,
//   then the order in
//                       which a single thread's work is executed depends on the seed alone
//   SIMT_IGNORE_WAITS=1 a fault for tests of the tests: no stream waits for another's event
//   SIMT_MEMORY_MB=n    device memory (4096)
//   SIMT_DEVICES=n      devices (1)
//   SIMT_NO_GRAPHS=1    no graph can be instantiated; 2: none with dependent launches
//   SIMT_COVERAGE=FILE  a line for each kernel that is launched: its offset in the program, the program
//   (tests/scripts/test_coverage.sh)
#pragma once
#include <math.h>
#include <atomic>
#include <bit>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include "src/base/common.h"
#include "tests/emu/simt.h"
#include "src/base/types.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define DEVICE inline
#define UNROLL
constexpr bool kSm90a = true;
constexpr bool has_code_for(int) { return true; }
#define SHARED(T, name, n)   \
    static char name##_site; \
    T(&name)[n] = *static_cast<T(*)[n]>(simt::shared_array(&name##_site, sizeof(T[n]), alignof(T)))
#define DYNAMIC_SHARED(name) unsigned char* name = simt::shared_memory()

// What the functions below are made of; the emulator's own names are here, out of the kernels' way.
namespace simt {

template <class T>
concept Integer = std::is_integral_v<T> &&(sizeof(T) == 4 || sizeof(T) == 8);

void submit(const void* kernel, uint3 grid, uint3 block, unsigned cluster, size_t smem, Stream stream,
            std::function<void()> body, Loc at);
uint64_t dependent_launches();  // how many were put into streams, by graphs too
// Maps for TMA that this thread made, and why the last was refused. constinit: without it g++ 12 reaches the number
// through a wrapper that its undefined-behaviour sanitizer takes for a null pointer.
extern constinit thread_local uint64_t maps_made;
extern thread_local std::string map_refused;
const char* last_error();       // what the last failure said

// What lane `from` gives as x; of a lane outside the mask it is undefined on a GPU, and 0xff here.
void shuffle(unsigned mask, void* x, size_t bytes, int from, const char* what, Loc loc);
template <class T>
T shuffle(unsigned mask, T x, int from, const char* what, Loc loc) {
    static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
    shuffle(mask, &x, sizeof x, from, what, loc);
    return x;
}
void ldmatrix(unsigned* r, const void* row, bool transposed, Loc loc);
void cp_async_wait(int newest);
void tma_store_wait(int newest, Loc loc);
void wgmma(float* d, int n, bool ta, bool tb, uint64_t a, const unsigned* a_registers, uint64_t b, bool accumulate,
           Loc loc);
void wgmma_wait(int newest, Loc loc);

}  // namespace simt

namespace emu {

// ------------------------------------------------------------------------------------------------ types

using simt::uint3, simt::threadIdx, simt::blockIdx, simt::blockDim, simt::gridDim;
constexpr int warpSize = 32;
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct alignas(8) int2 {
    int x, y;
};
struct alignas(16) int4 {
    int x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct float3 {
    float x, y, z;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) double2 {
    double x, y;
};
struct alignas(16) ulonglong2 {
    unsigned long long x, y;
};
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline double2 make_double2(double x, double y) { return {x, y}; }

// ------------------------------------------------------------------------------------------------ arithmetic

template <class A, class B>
std::common_type_t<A, B> min(A a, B b) {
    return b < a ? b : a;
}
template <class A, class B>
std::common_type_t<A, B> max(A a, B b) {
    return a < b ? b : a;
}

inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }

inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fsqrt_rn(float a) { return ::sqrtf(a); }
inline float __fmaf_rn(float a, float b, float c) { return ::fmaf(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __dsqrt_rn(double a) { return ::sqrt(a); }
inline double __fma_rn(double a, double b, double c) { return ::fma(a, b, c); }
inline float __double2float_rn(double x) { return float(x); }
inline int __float2int_rn(float x) { return int(::lrintf(x)); }
inline float __int2float_rn(int x) { return float(x); }
inline float __uint2float_rn(unsigned x) { return float(x); }
inline float __saturatef(float x) { return x > 0 ? x < 1 ? x : 1.0f : 0.0f; }
// The approximate ones are as exact here as libm.
inline float rsqrtf(float x) { return 1.0f / ::sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / ::sqrt(x); }
inline float __frsqrt_rn(float x) { return float(1.0 / ::sqrt(double(x))); }
inline float __expf(float x) { return ::expf(x); }
inline float __logf(float x) { return ::logf(x); }
inline float __log2f(float x) { return ::log2f(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __powf(float a, float b) { return ::powf(a, b); }

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(unsigned x) { return std::countl_zero(x); }
inline int __clzll(unsigned long long x) { return std::countl_zero(x); }
inline int __ffs(unsigned x) { return x ? std::countr_zero(x) + 1 : 0; }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(uint64_t(a) * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<unsigned long long>(Wide(a) * b >> 64);
}

inline float exp2_fast(float x) { return ::exp2f(x); }
inline float rsqrt_fast(float x) { return rsqrtf(x); }
// To nearest, a tie to even; every NaN becomes the same one, as cvt.rn.bf16x2.f32 makes it.
inline unsigned pack2(float low, float high) {
    const auto round = [](float x) {
        const unsigned u = __float_as_uint(x);
        return x != x ? 0x7fffu : (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
    };
    return round(low) | round(high) << 16;
}

// ------------------------------------------------------------------------------------------------ memory

template <class T>
T __ldg(const T* p) {
    return *p;
}
template <class T>
T __ldcs(const T* p) {
    return *p;
}
template <class T>
T __ldcg(const T* p) {
    return *p;
}
template <class T>
T __ldca(const T* p) {
    return *p;
}
template <class T>
void __stcs(T* p, std::type_identity_t<T> x) {
    *p = x;
}
template <class T>
void __stcg(T* p, std::type_identity_t<T> x) {
    *p = x;
}
template <class T>
void __stwt(T* p, std::type_identity_t<T> x) {
    *p = x;
}

// Integers only: with floats the sum would depend on the order, and nothing here may.
template <simt::Integer T>
T atomicAdd(T* p, std::type_identity_t<T> x) {
    return std::atomic_ref(*p).fetch_add(x, std::memory_order_relaxed);
}
template <simt::Integer T>
T atomicSub(T* p, std::type_identity_t<T> x) {
    return std::atomic_ref(*p).fetch_sub(x, std::memory_order_relaxed);
}
template <simt::Integer T>
T atomicOr(T* p, std::type_identity_t<T> x) {
    return std::atomic_ref(*p).fetch_or(x, std::memory_order_relaxed);
}
template <simt::Integer T>
T atomicAnd(T* p, std::type_identity_t<T> x) {
    return std::atomic_ref(*p).fetch_and(x, std::memory_order_relaxed);
}
template <simt::Integer T>
T atomicXor(T* p, std::type_identity_t<T> x) {
    return std::atomic_ref(*p).fetch_xor(x, std::memory_order_relaxed);
}
template <simt::Integer T>
T atomicExch(T* p, std::type_identity_t<T> x) {
    return std::atomic_ref(*p).exchange(x, std::memory_order_relaxed);
}
template <simt::Integer T>
T atomicCAS(T* p, std::type_identity_t<T> old, std::type_identity_t<T> x) {
    std::atomic_ref<T>(*p).compare_exchange_strong(old, x, std::memory_order_relaxed);
    return old;
}
template <simt::Integer T>
T atomicMax(T* p, std::type_identity_t<T> x) {
    std::atomic_ref<T> a(*p);
    T old = a.load(std::memory_order_relaxed);
    while (old < x && !a.compare_exchange_weak(old, x, std::memory_order_relaxed)) {
    }
    return old;
}
template <simt::Integer T>
T atomicMin(T* p, std::type_identity_t<T> x) {
    std::atomic_ref<T> a(*p);
    T old = a.load(std::memory_order_relaxed);
    while (x < old && !a.compare_exchange_weak(old, x, std::memory_order_relaxed)) {
    }
    return old;
}
void __threadfence();
inline void __threadfence_block() { __threadfence(); }

// ------------------------------------------------------------------------------------------------ threads of a block

inline void __syncthreads(simt::Loc loc = {}) { simt::barrier(0, 0, true, "__syncthreads", loc); }
inline void __syncwarp(unsigned mask = ~0u, simt::Loc loc = {}) { simt::warp_sync(mask, loc); }
inline unsigned cluster_rank() { return simt::cluster_rank(); }
inline void cluster_sync(simt::Loc loc = {}) { simt::barrier(simt::kCluster, 0, true, "barrier.cluster", loc); }
inline void grid_dependency_sync(simt::Loc loc = {}) { simt::dependency_sync(loc); }
[[noreturn]] inline void __trap(simt::Loc loc = {}) { simt::fail("__trap at %s:%u", loc.file, loc.line); }

template <class T>
T __shfl_sync(unsigned mask, T x, int from, int width = 32, simt::Loc loc = {}) {
    const int lane = int(simt::lane());
    return simt::shuffle(mask, x, (lane & -width) + (from & (width - 1)), "__shfl_sync", loc);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T x, int distance, int width = 32, simt::Loc loc = {}) {
    const int lane = int(simt::lane()), from = lane ^ distance;
    return simt::shuffle(mask, x, (from & -width) <= (lane & -width) ? from : lane, "__shfl_xor_sync", loc);
}
template <class T>
T __shfl_down_sync(unsigned mask, T x, int distance, int width = 32, simt::Loc loc = {}) {
    const int lane = int(simt::lane()), from = lane + distance;
    return simt::shuffle(mask, x, (from & -width) == (lane & -width) ? from : lane, "__shfl_down_sync", loc);
}
template <class T>
T __shfl_up_sync(unsigned mask, T x, int distance, int width = 32, simt::Loc loc = {}) {
    const int lane = int(simt::lane()), from = lane - distance;
    return simt::shuffle(mask, x, from >= (lane & -width) ? from : lane, "__shfl_up_sync", loc);
}
unsigned __ballot_sync(unsigned mask, bool x, simt::Loc loc = {});
inline bool __any_sync(unsigned mask, bool x, simt::Loc loc = {}) { return __ballot_sync(mask, x, loc) != 0; }
bool __all_sync(unsigned mask, bool x, simt::Loc loc = {});
unsigned __match_any_sync(unsigned mask, unsigned x, simt::Loc loc = {});
int __reduce_add_sync(unsigned mask, int x, simt::Loc loc = {});
unsigned __reduce_add_sync(unsigned mask, unsigned x, simt::Loc loc = {});
int __reduce_max_sync(unsigned mask, int x, simt::Loc loc = {});
int __reduce_min_sync(unsigned mask, int x, simt::Loc loc = {});
unsigned __reduce_max_sync(unsigned mask, unsigned x, simt::Loc loc = {});
unsigned __reduce_min_sync(unsigned mask, unsigned x, simt::Loc loc = {});

// ------------------------------------------------------------------------------------------------ ldmatrix, mma,
// cp.async

template <bool TRANS = false>
void ldmatrix_x4(unsigned (&r)[4], const void* row, simt::Loc loc = {}) {
    simt::ldmatrix(r, row, TRANS, loc);
}
void mma_m16n8k16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], simt::Loc loc = {});

// Each copy lands when it is issued or, as likely, not before its thread waits for it.
void cp_async16(void* dst, const void* src, bool valid = true, simt::Loc loc = {});
void cp_async_commit();
template <int N>
void cp_async_wait() {
    simt::cp_async_wait(N);
}

// ------------------------------------------------------------------------------------------------ barriers, TMA, wgmma

template <int N>
void bar_sync(int which, simt::Loc loc = {}) {
    static_assert(N > 0 && N % 32 == 0);
    simt::barrier(1 + which, N, true, "bar.sync", loc);
}
template <int N>
void bar_arrive(int which, simt::Loc loc = {}) {
    static_assert(N > 0 && N % 32 == 0);
    simt::barrier(1 + which, N, false, "bar.arrive", loc);
}
void mbar_init(uint64_t* bar, int n);
inline void mbar_fence_init() {}
void mbar_arrive(uint64_t* bar, int bytes = 0, simt::Loc loc = {});
void mbar_arrive_at(uint64_t* bar, unsigned rank, simt::Loc loc = {});
void mbar_wait(uint64_t* bar, unsigned parity, simt::Loc loc = {});

struct TensorMap {
    unsigned char* data;
    int64_t columns, rows, pitch, count, distance;  // the last three: bytes, matrices (0: a map of one), bytes
    int box_columns, box_rows;
};
// The driver's function, with the limits that cuda.h documents; of its choices the emulator has those that are named
// here. What it refused last, it says in simt::map_refused.
enum CUresult { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1, CUDA_ERROR_NOT_SUPPORTED = 801 };
enum CUtensorMapDataType { CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 = 9 };
enum CUtensorMapInterleave { CU_TENSOR_MAP_INTERLEAVE_NONE = 0 };
enum CUtensorMapSwizzle { CU_TENSOR_MAP_SWIZZLE_128B = 3 };
enum CUtensorMapL2promotion { CU_TENSOR_MAP_L2_PROMOTION_L2_256B = 3 };
enum CUtensorMapFloatOOBfill { CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0 };
using cuuint32_t = uint32_t;
using cuuint64_t = uint64_t;
CUresult cuTensorMapEncodeTiled(TensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                const cuuint64_t* size, const cuuint64_t* stride, const cuuint32_t* box,
                                const cuuint32_t* step, CUtensorMapInterleave, CUtensorMapSwizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
inline auto tensor_map_encoder() { return cuTensorMapEncodeTiled; }
void stmatrix_x4(void* row, const unsigned (&r)[4], simt::Loc loc = {});
void async_fence(simt::Loc loc = {});
inline void tma_prefetch(const TensorMap*) {}
void tma_load(void* dst, const TensorMap* map, uint64_t* bar, int x, int y, simt::Loc loc = {});
void tma_load(void* dst, const TensorMap* map, uint64_t* bar, int x, int y, int z, simt::Loc loc = {});
void tma_load_multicast(void* dst, const TensorMap* map, uint64_t* bar, int x, int y, unsigned blocks,
                        simt::Loc loc = {});
void tma_store(const TensorMap* map, const void* src, int x, int y, simt::Loc loc = {});
void tma_store_commit();
template <int N>
void tma_store_wait(simt::Loc loc = {}) {
    simt::tma_store_wait(N, loc);
}

// A warpgroup's wgmma is the work of four warps, each on 16 rows of A. Here the four run apart: a warp's wait says
// nothing about what its neighbours have read. That is the strictest reading of the PTX ISA.
unsigned shared_address(const void* p);  // offset in dynamic shared memory
template <int N, bool TA, bool TB>
void wgmma(float (&d)[N / 2], uint64_t a, uint64_t b, bool accumulate, simt::Loc loc = {}) {
    static_assert(N == 8 || N == 64 || N == 128 || N == 160 || N == 256);
    simt::wgmma(d, N, TA, TB, a, nullptr, b, accumulate, loc);
}
template <int N, bool TB>
void wgmma(float (&d)[N / 2], const unsigned (&a)[4], uint64_t b, bool accumulate, simt::Loc loc = {}) {
    static_assert(N == 64 || N == 128);
    simt::wgmma(d, N, false, TB, 0, a, b, accumulate, loc);
}
void wgmma_fence(simt::Loc loc = {});
void wgmma_commit(simt::Loc loc = {});
template <class D>
void wgmma_hold(D&) {}
template <int N>
void wgmma_wait(simt::Loc loc = {}) {
    simt::wgmma_wait(N, loc);
}
template <int N, class D>
void wgmma_wait(D&, simt::Loc loc = {}) {
    simt::wgmma_wait(N, loc);
}
template <int N, class D, class E>
void wgmma_wait(D&, E&, simt::Loc loc = {}) {
    simt::wgmma_wait(N, loc);
}
template <int R>
void registers_up() {
    static_assert(R % 8 == 0 && R >= 24 && R <= 256);
}
template <int R>
void registers_down() {
    static_assert(R % 8 == 0 && R >= 24 && R <= 256);
}

// ------------------------------------------------------------------------------------------------ the runtime

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInitializationError = 3,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorHostMemoryAlreadyRegistered = 712,
    cudaErrorHostMemoryNotRegistered = 713,
    cudaErrorLaunchFailure = 719,
    cudaErrorNotPermitted = 800,
    cudaErrorNotSupported = 801,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901,
    cudaErrorStreamCaptureUnjoined = 904,
    cudaErrorStreamCaptureIsolation = 905,
    cudaErrorUnknown = 999
};
const char* cudaGetErrorString(cudaError_t error);
const char* cudaGetErrorName(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
// The last failure in words: a kernel's message with file and line, where there is one.
const char* device_error_text(cudaError_t error);

enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock,
    cudaDevAttrMaxSharedMemoryPerBlock,
    cudaDevAttrMaxSharedMemoryPerBlockOptin,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor,
    cudaDevAttrMultiProcessorCount,
    cudaDevAttrComputeCapabilityMajor,
    cudaDevAttrComputeCapabilityMinor
};
struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin;
    int major, minor, multiProcessorCount, pciBusID, pciDeviceID, pciDomainID;
};
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
inline cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int) {
    if (bytes > 0) *text = '\0';
    return cudaSuccess;
}  // on no bus
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);

using cudaStream_t = struct CUstream_st*;  // null: the default stream, one more queue; it waits for no other
using cudaEvent_t = struct CUevent_st*;
using cudaGraph_t = struct CUgraph_st*;
using cudaGraphExec_t = struct CUgraphExec_st*;
using cudaHostFn_t = void (*)(void*);

// Fresh memory holds 0xff bytes, NaN as any float; so does freed memory, for a while. Sizes are exact, for the address
// sanitizer.
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaMalloc(void** memory, size_t bytes);
cudaError_t cudaFree(void* memory);  // waits for all streams first
cudaError_t cudaMallocHost(void** memory, size_t bytes);
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* memory);
enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice };
struct cudaPointerAttributes {
    cudaMemoryType type;
};
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory);
cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void* memory);
template <class T>
cudaError_t cudaMalloc(T** memory, size_t bytes) {
    return cudaMalloc(reinterpret_cast<void**>(memory), bytes);
}
template <class T>
cudaError_t cudaMallocHost(T** memory, size_t bytes) {
    return cudaMallocHost(reinterpret_cast<void**>(memory), bytes);
}
constexpr unsigned cudaHostAllocDefault = 0, cudaHostAllocPortable = 1, cudaHostRegisterDefault = 0,
                   cudaHostRegisterPortable = 1;

// Source and destination are read and written when the stream gets there, whatever memory they are.
enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault
};
cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream = nullptr);
cudaError_t cudaMemcpy(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemsetAsync(void* memory, int byte, size_t bytes, cudaStream_t stream = nullptr);
cudaError_t cudaMemset(void* memory, int byte, size_t bytes);

constexpr unsigned cudaStreamDefault = 0, cudaStreamNonBlocking = 1;
cudaError_t cudaStreamCreate(cudaStream_t* stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority);
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest);
cudaError_t cudaStreamDestroy(cudaStream_t stream);  // when its work is done
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument);

constexpr unsigned cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2;
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
// External: a node of the graph under capture, on the event itself; every launch records it, or waits for its newest
// record.
constexpr unsigned cudaEventRecordDefault = 0, cudaEventRecordExternal = 1, cudaEventWaitDefault = 0,
                   cudaEventWaitExternal = 1;
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to);

enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal,
    cudaStreamCaptureModeThreadLocal,
    cudaStreamCaptureModeRelaxed
};
enum cudaStreamCaptureStatus {
    cudaStreamCaptureStatusNone,
    cudaStreamCaptureStatusActive,
    cudaStreamCaptureStatusInvalidated
};
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status);
constexpr unsigned long long cudaGraphInstantiateFlagUseNodePriority = 8;
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags = 0);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize, cudaFuncAttributePreferredSharedMemoryCarveout };
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value);
template <class... P>
cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute attribute, int value) {
    return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}

cudaStream_t launch_stream(
    Stream stream, bool* behind_kernel);  // kernels/runtime.cu; where that is not linked, a stream is what it says

// ------------------------------------------------------------------------------------------------ launch

struct GridAt : dim3 {  // and the place of the call, for messages
    simt::Loc at;
    GridAt(dim3 grid, simt::Loc at = {}) : dim3(grid), at(at) {}
    GridAt(unsigned blocks, simt::Loc at = {}) : dim3(blocks), at(at) {}
};

// Appends to the stream's queue; the arguments are copied now.
template <class... P, class... A>
void launch_clusters(unsigned cluster, void (*kernel)(P...), GridAt grid, dim3 block, size_t smem, Stream stream,
                     A&&... args) {
    static_assert((!std::is_reference_v<P> && ...), "a kernel's arguments are values");
    const std::tuple<P...> copy(static_cast<P>(args)...);
    simt::submit(
        reinterpret_cast<const void*>(kernel), {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, cluster, smem,
        stream, [kernel, copy] { std::apply(kernel, copy); }, grid.at);
}
template <class... P, class... A>
void launch(void (*kernel)(P...), GridAt grid, dim3 block, size_t smem, Stream stream, A&&... args) {
    launch_clusters(1, kernel, grid, block, smem, stream, args...);
}

}  // namespace emu
