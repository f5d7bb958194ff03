// dispatch.cpp -- which table of hot loops this CPU gets.
#include <cstdlib>
#include <string>
#include "common.h"
#include "hot.h"
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace BACKEND {

#if defined(__x86_64__)
#ifdef AMX_IN_SOFTWARE
namespace amx_in_software { extern const HotLoops hot_loops; }
#endif
namespace amx { extern const HotLoops hot_loops; }
namespace avx512 { extern const HotLoops hot_loops; }
namespace avx2 { extern const HotLoops hot_loops; }
#endif
namespace portable { extern const HotLoops hot_loops; }

#if defined(__x86_64__)
static bool has_avx512() {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq");
}

// Linux gives the tile registers, 8 KiB that context switches save, to processes that ask for them: once, for all their threads.
static bool has_amx() {
    constexpr int kAskForState = 0x1023, kTileData = 18;            // ARCH_REQ_XCOMP_PERM of asm/prctl.h
    unsigned a, b, c, d;
    const bool cpu = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 22 & 1) && (d >> 24 & 1);     // AMX-BF16, AMX-TILE
    return cpu && has_avx512() && syscall(SYS_arch_prctl, kAskForState, kTileData) == 0;
}
#endif

struct Candidate { const HotLoops* loops; bool (*supported)(); };

// Best first. AMX multiplies bf16 only.
static const Candidate candidates[] = {
#if defined(__x86_64__)
    {sizeof(floatX) == 2 ? &amx::hot_loops : nullptr, has_amx},
    {&avx512::hot_loops, has_avx512},
    {&avx2::hot_loops, [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }},
#endif
    {&portable::hot_loops, [] { return true; }},
#ifdef AMX_IN_SOFTWARE
    {&amx_in_software::hot_loops, [] { return true; }},             // for tests, by name only
#endif
};

static const HotLoops& choose() {
    const char* wanted = std::getenv("LOCKSTEP_ISA");               // for tests: a lesser one than the best
    std::string names;
    for (const Candidate& c : candidates) {
        if (!c.loops || !c.supported()) continue;
        if (!wanted || !*wanted || std::string(wanted) == c.loops->name) return *c.loops;
        names += (names.empty() ? "" : ", ") + std::string(c.loops->name);
    }
    die(kExitUsage, "environment: LOCKSTEP_ISA: got %s, want one this CPU has: %s", wanted, names.c_str());
}

const HotLoops& hot() {
    static const HotLoops& chosen = choose();
    return chosen;
}

}  // namespace BACKEND
