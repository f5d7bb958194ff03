// spin.h -- waiting a moment for another thread or process without sleeping.
#pragma once
#include <sched.h>
#include "src/base/common.h"

inline void pause_cpu() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Polls done() for at most `seconds` and returns whether it became true. Gives the core away between looks: on a busy
// machine the other side may need it (4 ranks on 2 cores: 7 us a barrier, 55 us if the core is kept. AMD EPYC).
template <class F> bool spin_until(double seconds, const F& done) {
    for (const double end = now_seconds() + seconds; now_seconds() < end; sched_yield())
        for (int i = 0; i < 16; i++, pause_cpu())
            if (done()) return true;
    return false;
}
