// fault.h -- faults on purpose, for tests: LOCKSTEP_FAULT="rank=1,step=7,at=bwd,do=kill". Off unless the variable is set, loud when it is.
//
//   at   bwd   after the first leaf's backward: nan and flip hit its gradients        opt   after the update: the fp32 weights
//   do   kill  stop  exit:N  sleep:S  nan (the first value)  flip:K (bit 20 of value K)
#pragma once
#include <cstddef>
#include <cstdint>

// A number to spoil, for the caller to do: the data may be on a device.
struct Damage { enum { none, nan, flip } kind; size_t index; };

// Does what the variable asks if point, rank and step are the ones it names; otherwise nothing. n: numbers there are to spoil.
// A malformed value is an Error (2).
Damage fault_point(const char* point, int rank, int64_t step, size_t n);
