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

// Polls done() for at most `seconds` and returns whether it became true. After `keep` seconds it gives the core away
// between looks: on a busy machine the other side may need it (4 ranks on 2 cores: 7 us a barrier, 55 us if the core is
// kept. AMD EPYC).
template <class F> bool spin_until(double seconds, const F& done, double keep = 0) {
    for (const double start = now_seconds();;) {
        for (int i = 0; i < 16; i++, pause_cpu())
            if (done()) return true;
        const double spent = now_seconds() - start;
        if (spent >= seconds) return false;
        if (spent >= keep) sched_yield();
    }
}
