// spin.h -- waits for another thread or process for a short time without sleeping.
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

// Polls done() for at most `seconds` and returns whether it became true. After `keep` seconds it calls sched_yield
// every 16 polls: the thread that it waits for may need this core. (4 ranks on 2 cores of an AMD EPYC: a barrier takes
// 7 us with sched_yield and 55 us without.)
template <class F> bool spin_until(double seconds, const F& done, double keep = 0) {
    for (const double start = now_seconds();;) {
        for (int i = 0; i < 16; i++, pause_cpu())
            if (done()) return true;
        const double spent = now_seconds() - start;
        if (spent >= seconds) return false;
        if (spent >= keep) sched_yield();
    }
}
