// fault.h -- points in the program at which tests can cause a fault. A test program links tests/fault.cpp, which causes
// the fault that LOCKSTEP_FAULT describes; without that file nothing happens at these points.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>

// The damage that the caller must do to element `index` of its data. The hook cannot: the data may be on a device.
struct Damage { enum { none, nan, big, flip } kind; size_t index; };
[[gnu::weak]] Damage fault_hook(const char* point, int rank, int64_t step, size_t n);

// Marks such a point. n: how many numbers can be damaged here. Any thread may call it.
inline Damage fault_point(const char* point, int rank, int64_t step, size_t n = 0) {
    return fault_hook ? fault_hook(point, rank, step, n) : Damage{Damage::none, 0};
}
inline bool faults_are_on() { return fault_hook && std::getenv("LOCKSTEP_FAULT"); }
