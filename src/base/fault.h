// fault.h -- points where tests break the program. A test program links tests/fault.cpp, which does there what
// LOCKSTEP_FAULT says; without it nothing happens.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>

// What the caller shall do to its number `index`: the data may be on a device.
struct Damage { enum { none, nan, big, flip } kind; size_t index; };
[[gnu::weak]] Damage fault_hook(const char* point, int rank, int64_t step, size_t n);

// n: numbers that may be spoiled here. Any thread.
inline Damage fault_point(const char* point, int rank, int64_t step, size_t n = 0) {
    return fault_hook ? fault_hook(point, rank, step, n) : Damage{Damage::none, 0};
}
inline bool faults_are_on() { return fault_hook && std::getenv("LOCKSTEP_FAULT"); }
