// fault.h -- faults on purpose, for tests: LOCKSTEP_FAULT="rank=1,step=7,at=bwd,do=kill". Off unless the variable is set, loud when it is.
//
//   at   bwd   after the first leaf's backward: data are its gradients        opt   after the update: data are the weights
//   do   kill  stop  exit:N  sleep:S  nan (the first value)  flip:K (bit 20 of value K)
#pragma once
#include <cstddef>
#include <cstdint>

// Does what the variable asks if point, rank and step are the ones it names; otherwise nothing. A malformed value is an Error (2).
void fault_point(const char* point, int rank, int64_t step, float* data, size_t n);
