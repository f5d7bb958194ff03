// dispatch.cpp -- which table of hot loops this CPU gets.
#include <cstdlib>
#include <string>
#include "common.h"
#include "hot.h"

namespace BACKEND {

#if defined(__x86_64__)
namespace avx512 { extern const HotLoops hot_loops; }
namespace avx2 { extern const HotLoops hot_loops; }
#endif
namespace portable { extern const HotLoops hot_loops; }

struct Candidate { const HotLoops* loops; bool (*supported)(); };

// Best first.
static const Candidate candidates[] = {
#if defined(__x86_64__)
    {&avx512::hot_loops, [] { return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                                     __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"); }},
    {&avx2::hot_loops, [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }},
#endif
    {&portable::hot_loops, [] { return true; }},
};

static const HotLoops& choose() {
    const char* wanted = std::getenv("LOCKSTEP_ISA");               // for tests: a lesser one than the best
    std::string names;
    for (const Candidate& c : candidates) {
        if (!c.supported()) continue;
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
