// ops.cpp -- picks the instruction set and passes the calls of kernels.h on to its table.
#include "kernels/cpu/ops.h"
#include <cstdlib>
#include <string>
#include "src/base/common.h"
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace BACKEND {

namespace amx { extern const Ops ops; }
namespace avx512 { extern const Ops ops; }
namespace avx2 { extern const Ops ops; }
namespace portable { extern const Ops ops; }
namespace amx_in_software { extern const Ops ops __attribute__((weak)); }      // a test links it

constexpr bool kHalf = sizeof(floatX) == 2;             // AMX multiplies bf16 only

#if defined(__x86_64__)
// Linux gives the tile registers to processes that ask for them: once, for all their threads.
[[maybe_unused]] static bool has_amx() {
    constexpr int kAskForState = 0x1023, kTileData = 18;            // ARCH_REQ_XCOMP_PERM of asm/prctl.h
    unsigned a, b, c, d;
    const bool cpu = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 22 & 1) && (d >> 24 & 1);     // BF16, TILE
    return cpu && syscall(SYS_arch_prctl, kAskForState, kTileData) == 0;
}
#endif

// Calls f(table) for the sets that this CPU has, the best first, until it returns true.
template <class F> static void each_set(const F& f) {
#if defined(__x86_64__)
    const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    if constexpr (kHalf)
        if (has_avx512 && has_amx() && f(amx::ops)) return;
    if (has_avx512 && f(avx512::ops)) return;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && f(avx2::ops)) return;
#endif
    if (f(portable::ops)) return;
    if (&amx_in_software::ops) f(amx_in_software::ops);
}

static const Ops& choose() {
    const char* const wanted = std::getenv("LOCKSTEP_ISA");             // for tests: a lesser one than the best
    const Ops* chosen = nullptr;
    std::string names;
    each_set([&](const Ops& set) {
        names += (names.empty() ? "" : ", ") + std::string(set.isa);
        if (!wanted || !*wanted || std::string(wanted) == set.isa) chosen = &set;
        return chosen != nullptr;
    });
    if (!chosen) die(kExitUsage, "environment: LOCKSTEP_ISA: got %s, want one this CPU has: %s", wanted, names.c_str());
    return *chosen;
}

static const Ops& ops() {
    static const Ops& chosen = choose();
    return chosen;
}

bool storage_is_fast() { return !kHalf || std::string(ops().isa) == "amx"; }

const char* device_name() {
    static thread_local std::string name;
    const int n = get_threads();
    name = format("cpu %s, %d thread%s", ops().isa, n, n == 1 ? "" : "s");
    return name.c_str();
}

#define OP(result, name, parameters, arguments) result name parameters { return ops().name arguments; }
#include "kernels/cpu/op_table.h"

// The plain forms of three ops: without a branch, without GELU.
void layernorm_forward(floatX* out, float* mean, float* rstd, const floatX* inp, const floatX* weight,
                       const floatX* bias, int N, int C, Stream s) {
    residual_layernorm_forward(nullptr, out, mean, rstd, inp, nullptr, weight, bias, N, C, {}, s);
}
void matmul_forward(floatX* out, const floatX* inp, const floatX* weight, const floatX* bias, int N, int C, int OC,
                    Stream s) {
    matmul_gelu_forward(out, nullptr, inp, weight, bias, N, C, OC, s);
}
void matmul_backward_input(floatX* dinp, const floatX* dout, const floatX* weight, int N, int C, int OC, Stream s) {
    matmul_gelu_backward_input(dinp, dout, weight, nullptr, N, C, OC, s);
}

}  // namespace BACKEND
