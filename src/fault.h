// fault.h -- faults on purpose, for tests: LOCKSTEP_FAULT="rank=1,step=7,at=bwd,do=kill". Off unless the variable is set, loud when it is.
//
//   at   fwd, bwd          before the first leaf; after its backward: nan, big and flip hit its gradients
//        loss              before --skip-spikes looks at it: big
//        reduce            before the reduction is waited for
//        opt, opt_m, opt_v after the update: the fp32 weights, the first, the second moments
//        ckpt_copy         a save: before the state is copied; the step is the checkpoint's
//        ckpt_write        in the background, between the rank's two files
//        ckpt_done, ckpt_placed, ckpt_latest    rank 0: DONE is written; the folder has its name; `latest` names it
//        load              rank 0: before a checkpoint is read; the step is 0
//   do   kill  stop  exit:N  sleep:S  eio (an Error 74)  nan, big (the first value: NaN, 1e6, of a loss 100 times)  flip:K (bit 20 of value K)
//   try  N: only in attempt N of --np's supervisor, from 0. Several faults are separated by ";".
#pragma once
#include <cstddef>
#include <cstdint>

// A number to spoil, for the caller to do: the data may be on a device.
struct Damage { enum { none, nan, big, flip } kind; size_t index; };

// Does what the variable asks if point, rank and step are the ones it names; otherwise nothing. n: numbers there are to spoil.
// Any thread may call it.
Damage fault_point(const char* point, int rank, int64_t step, size_t n = 0);
void check_faults();            // a malformed value is an Error (2): before anything is written
bool fault_ahead(const char* point, int rank, int64_t step);    // it will do something there
