// ceilings.h -- what this machine can do at most, measured: multiply-adds per second and bytes per second, by one core
// or by all at once.
//
// The loops are in assembly, so that what is measured is what stands here, whatever the compiler; each row of the table
// says what a CPU without its instructions lacks. "from L1" reads its operands as the inner loop of a matmul does: a
// panel of each from the first-level cache, one tile of sums in registers. A multiply-add counts 2 flops, a copied byte
// 2 bytes: read and written.
#pragma once
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <vector>
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include "kernels/cpu/runtime.h"
#include "src/base/common.h"

namespace ceilings {

// What a thread's loop may use: memory of the first-level cache (32 KiB), of the second, and outside all caches.
struct Memory {
    char* near;
    size_t l2_bytes, far_bytes;
    char *from, *to;
};

enum Kind { kFp32, kBf16, kCopy, kRead };
struct Ceiling {
    Kind kind;
    const char* name;
    const char* (*missing)();               // null: this CPU can
    double (*loop)(long n, const Memory&);  // n times, n > 0; returns the flops or bytes of one time
};

// One thread is timed by its CPU clock, which stops while other programs have the core; several threads by the wall's.
inline double clock_seconds() {
    if (BACKEND::get_threads() > 1) return now_seconds();
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}
inline double seconds(const std::function<void()>& f) {
    const double begin = clock_seconds();
    f();
    return clock_seconds() - begin;
}

inline double median(std::vector<double> x) {
    std::nth_element(x.begin(), x.begin() + long(x.size() / 2), x.end());
    return x[x.size() / 2];
}

// -------------------------------------------------------------------------------------------------------------- the
// loops

static const char* nothing_missing() { return nullptr; }

static double copy_memcpy(long n, const Memory& m) {
    for (; n > 0; n--) std::memcpy(m.to, m.from, m.far_bytes);
    return 2.0 * double(m.far_bytes);
}

// 12 sums of 4, a multiplication and an addition each: what the oldest CPU of this architecture has.
static double portable_registers(long n, const Memory&) {
    typedef float Vec __attribute__((vector_size(16)));
    Vec sum[12] = {}, a = Vec{} + 0.5f, b = Vec{} + 0.25f;
    for (; n > 0; n--) {
        asm volatile("" : "+m"(a), "+m"(b));  // or the compiler would see through it
        const Vec x = a, y = b;
#pragma GCC unroll 12
        for (int i = 0; i < 12; i++) sum[i] = sum[i] * x + y;
    }
    for (const Vec& s : sum) asm volatile("" : : "m"(s));
    return 12 * 4 * 2;
}

#if defined(__x86_64__)
#define CLOBBERED                                                                                              \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", \
        "xmm13", "xmm14", "xmm15", "cc", "memory"  // the compiler uses no others here: it does not know of AVX-512

static const char* missing_avx2() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? nullptr : "this CPU has no AVX2";
}
static const char* missing_avx512() { return __builtin_cpu_supports("avx512f") ? nullptr : "this CPU has no AVX-512"; }
static const char* missing_bf16() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    __get_cpuid_count(7, 1, &a, &b, &c, &d);
    return missing_avx512() ? missing_avx512() : a >> 5 & 1 ? nullptr : "this CPU has no AVX-512-bf16";
}
// Tiles are 8 KiB of state that a process must ask Linux (5.16) for: ARCH_REQ_XCOMP_PERM of XTILEDATA.
static const char* missing_amx() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    __get_cpuid_count(7, 0, &a, &b, &c, &d);
    if ((d >> 22 & 1) == 0 || (d >> 24 & 1) == 0) return "this CPU has no AMX-bf16";
    return syscall(SYS_arch_prctl, 0x1023, 18) == 0 ? nullptr : "the system refuses AMX's tiles";
}

// 12 sums of 8, or 24 of 16: more than latency times units, and all that the registers hold beside the operands.
#define SUMS12(INSTRUCTION) ".irp r,0,1,2,3,4,5,6,7,8,9,10,11\n " INSTRUCTION "\\r\n .endr\n"
#define SUMS24(INSTRUCTION) \
    SUMS12(INSTRUCTION) ".irp r,12,13,14,15,16,17,18,19,20,21,22,23\n " INSTRUCTION "\\r\n .endr\n"
#define ZERO "vzeroall\n"
#define ZERO512 ZERO ".irp r,16,17,18,19,20,21,22,23\n vpxord %%zmm\\r,%%zmm\\r,%%zmm\\r\n .endr\n"
static double avx2_registers(long n, const Memory& m) {
    asm volatile(ZERO
                 "vmovaps (%1),%%ymm12\n vmovaps 32(%1),%%ymm13\n"
                 "1: " SUMS12("vfmadd231ps %%ymm12,%%ymm13,%%ymm") "dec %0\n jnz 1b\n vzeroupper"
                 : "+r"(n)
                 : "r"(m.near)
                 : CLOBBERED);
    return 12 * 8 * 2;
}
static double avx512_registers(long n, const Memory& m) {
    asm volatile(ZERO512
                 "vmovaps (%1),%%zmm24\n vmovaps 64(%1),%%zmm25\n"
                 "1: " SUMS24("vfmadd231ps %%zmm24,%%zmm25,%%zmm") "dec %0\n jnz 1b\n vzeroupper"
                 : "+r"(n)
                 : "r"(m.near)
                 : CLOBBERED);
    return 24 * 16 * 2;
}
static double avx512_bf16_registers(long n, const Memory& m) {
    asm volatile(ZERO512
                 "vmovaps (%1),%%zmm24\n vmovaps 64(%1),%%zmm25\n"
                 "1: " SUMS24("vdpbf16ps %%zmm24,%%zmm25,%%zmm") "dec %0\n jnz 1b\n vzeroupper"
                 : "+r"(n)
                 : "r"(m.near)
                 : CLOBBERED);
    return 24 * 16 * 4;  // two products a lane
}

// For each k two vectors of b are loaded, and the 6 or 12 numbers of a spread over a vector: a tile of 6 x 16 or 12
// x 32.
#define ROW(REG, A, B0, B1, OFFSET, S0, S1) \
    "vbroadcastss " #OFFSET "(%0)," REG #A  \
    "\n"                                    \
    " vfmadd231ps " REG #B0 "," REG #A "," REG #S0 "\n vfmadd231ps " REG #B1 "," REG #A "," REG #S1 "\n"
#define ROW256(OFFSET, S0, S1) ROW("%%ymm", 14, 12, 13, OFFSET, S0, S1)
#define ROW512(OFFSET, S0, S1) ROW("%%zmm", 26, 24, 25, OFFSET, S0, S1)
static double avx2_l1(long n, const Memory& m) {
    constexpr long kDepth = 256;  // panels of 6 and of 16 KiB
    for (; n > 0; n--) {
        const char *a = m.near, *b = m.near + 8192;
        long k = kDepth;
        asm volatile(ZERO "1: vmovaps (%1),%%ymm12\n vmovaps 32(%1),%%ymm13\n" ROW256(0, 0, 1) ROW256(4, 2, 3)
                         ROW256(8, 4, 5) ROW256(12, 6, 7) ROW256(16, 8, 9)
                             ROW256(20, 10, 11) "add $24,%0\n add $64,%1\n dec %2\n jnz 1b\n vzeroupper"
                     : "+r"(a), "+r"(b), "+r"(k)
                     :
                     : CLOBBERED);
    }
    return kDepth * 6 * 16 * 2;
}
static double avx512_l1(long n, const Memory& m) {
    constexpr long kDepth = 128;
    for (; n > 0; n--) {
        const char *a = m.near, *b = m.near + 8192;
        long k = kDepth;
        asm volatile(ZERO512 "1: vmovaps (%1),%%zmm24\n vmovaps 64(%1),%%zmm25\n" ROW512(0, 0, 1) ROW512(4, 2, 3)
                         ROW512(8, 4, 5) ROW512(12, 6, 7) ROW512(16, 8, 9) ROW512(20, 10, 11) ROW512(24, 12, 13)
                             ROW512(28, 14, 15) ROW512(32, 16, 17) ROW512(36, 18, 19) ROW512(40, 20, 21)
                                 ROW512(44, 22, 23) "add $48,%0\n add $128,%1\n dec %2\n jnz 1b\n vzeroupper"
                     : "+r"(a), "+r"(b), "+r"(k)
                     :
                     : CLOBBERED);
    }
    return kDepth * 12 * 32 * 2;
}

// Two by two tiles of 16 x 16 sums, two tiles of a, two of b (16 rows of 64 bytes: 32 numbers, or 16 pairs).
struct alignas(64) TileConfig {
    uint8_t palette = 1, start = 0, zero[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
#define PRODUCTS                                                                                                    \
    "tdpbf16ps %%tmm6,%%tmm4,%%tmm0\n tdpbf16ps %%tmm7,%%tmm4,%%tmm1\n tdpbf16ps %%tmm6,%%tmm5,%%tmm2\n tdpbf16ps " \
    "%%tmm7,%%tmm5,%%tmm3\n"
constexpr double kProducts = 4 * 16 * 16 * 32 * 2;
#define TILE_ZERO ".irp t,0,1,2,3\n tilezero %%tmm\\t\n .endr\n"
#define TILE_LOADS                                                                                              \
    "tileloadd (%1,%2,1),%%tmm4\n tileloadd 1024(%1,%2,1),%%tmm5\n tileloadd 2048(%1,%2,1),%%tmm6\n tileloadd " \
    "3072(%1,%2,1),%%tmm7\n"
static double amx_registers(long n, const Memory& m) {
    const TileConfig config;
    asm volatile("ldtilecfg %3\n" TILE_ZERO TILE_LOADS "1: " PRODUCTS "dec %0\n jnz 1b\n tilerelease"
                 : "+r"(n)
                 : "r"(m.near), "r"(64L), "m"(config)
                 : "cc", "memory");
    return kProducts;
}
static double amx_l1(long n, const Memory& m) {
    constexpr long kSteps = 8;  // 8 x 32 numbers of k: panels of 16 KiB each
    const TileConfig config;
    asm volatile("ldtilecfg %0" : : "m"(config));
    for (; n > 0; n--) {
        const char* at = m.near;
        long k = kSteps;
        asm volatile(TILE_ZERO "1: " TILE_LOADS PRODUCTS "add $4096,%1\n dec %0\n jnz 1b"
                     : "+r"(k), "+r"(at)
                     : "r"(64L)
                     : "cc", "memory");
    }
    asm volatile("tilerelease");
    return kSteps * kProducts;
}

// Streaming stores do not read what they overwrite.
static double copy_streaming(long n, const Memory& m) {
    for (; n > 0; n--) {
        const char *from = m.from, *end = m.from + m.far_bytes;
        char* to = m.to;
        asm volatile(
            "1: vmovaps (%0),%%ymm0\n vmovaps 32(%0),%%ymm1\n vmovntps %%ymm0,(%1)\n vmovntps %%ymm1,32(%1)\n"
            "add $64,%0\n add $64,%1\n cmp %2,%0\n jne 1b\n sfence\n vzeroupper"
            : "+r"(from), "+r"(to)
            : "r"(end)
            : CLOBBERED);
    }
    return 2.0 * double(m.far_bytes);
}
// Every byte is read and written where it lies, as the optimizer does.
static double copy_in_place(long n, const Memory& m) {
    for (; n > 0; n--) {
        char *at = m.from, *end = m.from + m.far_bytes;
        asm volatile(
            "1: vmovaps (%0),%%ymm0\n vmovaps 32(%0),%%ymm1\n vmovaps %%ymm0,(%0)\n vmovaps %%ymm1,32(%0)\n"
            "add $64,%0\n cmp %1,%0\n jne 1b\n vzeroupper"
            : "+r"(at)
            : "r"(end)
            : CLOBBERED);
    }
    return 2.0 * double(m.far_bytes);
}
#define READ(REG, STEP)                                                                       \
    for (; n > 0; n--) {                                                                      \
        const char *from = m.near, *end = m.near + m.l2_bytes;                                \
        asm volatile(".set at,0\n 1: .irp r,0,1,2,3,4,5,6,7\n vmovaps \\r*" #STEP "(%0)," REG \
                     "\\r\n .endr\n add $8*" #STEP ",%0\n cmp %1,%0\n jne 1b\n vzeroupper"    \
                     : "+r"(from)                                                             \
                     : "r"(end)                                                               \
                     : CLOBBERED);                                                            \
    }                                                                                         \
    return double(m.l2_bytes);
static double read_l2_256(long n, const Memory& m) { READ("%%ymm", 32) }
static double read_l2_512(long n, const Memory& m) { READ("%%zmm", 64) }
#endif

static const Ceiling table[] = {
    {kFp32, "fp32 multiply and add, 4 wide, registers", nothing_missing, portable_registers},
#if defined(__x86_64__)
    {kFp32, "fp32 AVX2 vfmadd231ps, registers", missing_avx2, avx2_registers},
    {kFp32, "fp32 AVX2 vfmadd231ps, tile 6 x 16 from L1", missing_avx2, avx2_l1},
    {kFp32, "fp32 AVX-512 vfmadd231ps, registers", missing_avx512, avx512_registers},
    {kFp32, "fp32 AVX-512 vfmadd231ps, tile 12 x 32 from L1", missing_avx512, avx512_l1},
    {kBf16, "bf16 AVX-512 vdpbf16ps, registers", missing_bf16, avx512_bf16_registers},
    {kBf16, "bf16 AMX tdpbf16ps, 2 x 2 tiles, registers", missing_amx, amx_registers},
    {kBf16, "bf16 AMX tdpbf16ps, 2 x 2 tiles, 4 loads from L1", missing_amx, amx_l1},
#endif
    {kCopy, "copy of memory, memcpy", nothing_missing, copy_memcpy},
#if defined(__x86_64__)
    {kCopy, "copy of memory, streaming stores", missing_avx2, copy_streaming},
    {kCopy, "copy of memory onto itself", missing_avx2, copy_in_place},
    {kRead, "read of half the second-level cache, 32 bytes a load", missing_avx2, read_l2_256},
    {kRead, "read of half the second-level cache, 64 bytes a load", missing_avx512, read_l2_512},
#endif
};

// ------------------------------------------------------------------------------------------------------------
// measuring

// One measurement with the pool's threads, some 2 milliseconds long: waking the threads does not count.
inline double rate(const Ceiling& c) {
    constexpr size_t kFar =
        size_t(256) << 20;  // of all threads; copies leave the last cache, the large ones of servers too
    const int threads = BACKEND::get_threads();
    const long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
    static std::vector<char> far;
    if (c.kind == kCopy && far.empty()) far.assign(2 * kFar + 64, 1);
    const size_t piece = kFar / size_t(threads) / 4096 * 4096;
    char* const base = reinterpret_cast<char*>(round_up<uintptr_t>(reinterpret_cast<uintptr_t>(far.data()), 64));
    double work = 0;
    const auto run = [&](long n) {
        return seconds([&] {
            BACKEND::parallel_for(threads, [&](int i) {
                Memory m = {nullptr, l2 > 0 ? size_t(l2) / 2 : size_t(256) << 10, piece, base + size_t(i) * piece,
                            base + kFar + size_t(i) * piece};
                m.near = reinterpret_cast<char*>(
                    BACKEND::thread_buffer(std::max<size_t>(m.l2_bytes, 32768) / sizeof(float)));
                if (c.kind <= kBf16)  // numbers from 0.5 to 2 as floats, and as pairs of bf16
                    for (int k = 0; k < 16384; k++)
                        reinterpret_cast<uint16_t*>(m.near)[k] = uint16_t(0x3f00 + k * 37 % 256);
                const double one = c.loop(n, m);
                if (i == 0) work = one;
            });
        });
    };
    if (c.kind == kCopy) {
        const double t = run(1);
        return work * threads / t;
    }
    long n = 16;
    for (double t = run(n); t < 1e-3; t = run(n)) n = std::max(2 * n, long(2e-3 / std::max(t, 1e-6) * double(n)));
    const double t = run(n);
    return work * double(n) * threads / t;
}

// The fastest of a kind that this CPU has, null if none.
inline const Ceiling* best(Kind kind) {
    const Ceiling* found = nullptr;
    double most = 0;
    for (const Ceiling& c : table)
        for (int i = 0; i < 5 && c.kind == kind && !c.missing(); i++)
            if (const double r = rate(c); r > most) {
                most = r;
                found = &c;
            }
    return found;
}

}  // namespace ceilings
