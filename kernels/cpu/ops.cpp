// ops.cpp -- picks the instruction set and passes the calls of kernels.h on to its table.
#include "kernels/cpu/runtime.h"
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>
#include "src/base/common.h"
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace BACKEND {

namespace amx { extern const Ops ops; }
namespace avx512 { extern const Ops ops; }
namespace avx512_bf16 { extern const Ops ops; }
namespace avx2 { extern const Ops ops; }
namespace portable { extern const Ops ops; }
namespace amx_in_software { extern const Ops ops __attribute__((weak)); }      // a test links it

constexpr bool kHalf = sizeof(floatX) == 2;             // AMX multiplies bf16 only

#if defined(__x86_64__)
// Returns whether the CPU has AMX and Linux lets this process use it. One request holds for all
// threads of a process.
[[maybe_unused]] static bool has_amx() {
    constexpr int kAskForState = 0x1023, kTileData = 18;    // ARCH_REQ_XCOMP_PERM of asm/prctl.h
    unsigned a, b, c, d;
    // BF16, TILE
    const bool cpu = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 22 & 1) && (d >> 24 & 1);
    return cpu && syscall(SYS_arch_prctl, kAskForState, kTileData) == 0;
}
#endif

// Returns the instruction sets that this CPU has, the best first.
static std::vector<const Ops*> instruction_sets() {
    std::vector<const Ops*> sets;
#if defined(__x86_64__)
    const bool has_avx512 =
        __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    if (has_avx512) sets.push_back(&avx512::ops);
    // Pairs of bf16 take half the time of floats on AMD's CPUs. On Intel's they take twice the
    // time, because vdpbf16ps has a quarter of the rate of a multiply-add (docs/cpu.md).
    if constexpr (kHalf) {
        if (has_avx512 && __builtin_cpu_supports("avx512bf16"))
            sets.insert(__builtin_cpu_is("amd") ? sets.begin() : sets.end(), &avx512_bf16::ops);
        if (has_avx512 && has_amx()) sets.insert(sets.begin(), &amx::ops);
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) sets.push_back(&avx2::ops);
#endif
    sets.push_back(&portable::ops);
    if (&amx_in_software::ops) sets.push_back(&amx_in_software::ops);
    return sets;
}

// Returns the best, or for tests the one that LOCKSTEP_ISA names.
static const Ops& choose() {
    const char* const wanted = std::getenv("LOCKSTEP_ISA");
    std::string names;
    for (const Ops* set : instruction_sets()) {
        if (!wanted || !*wanted || !std::strcmp(wanted, set->isa)) return *set;
        names += (names.empty() ? "" : ", ") + std::string(set->isa);
    }
    die(kExitUsage, "environment: LOCKSTEP_ISA: got %s, want one this CPU has: %s", wanted,
        names.c_str());
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

// Instruction sets with fused multiply-add of floats are one kind, because they run the same
// sequence of rounded operations: avx2, avx512, and portable on Arm. Each of the others is a kind
// of its own: those that multiply bf16 add in another order, and without fused multiply-add the
// products are rounded, too.
const char* device_kind() {
    const std::string_view isa = ops().isa;
#if defined(__aarch64__)
    return "cpu fma" ARITHMETIC;
#else
    if (isa == "avx2" || isa == "avx512") return "cpu fma" ARITHMETIC;
#endif
    static const std::string kind = "cpu " + std::string(isa) + ARITHMETIC;
    return kind.c_str();
}

#define OP(result, name, parameters, arguments) \
    result name parameters { return ops().name arguments; }
#include "build/op_table.h"

}  // namespace BACKEND
