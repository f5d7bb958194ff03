// dry_run.h -- --dry-run: the memory and time that a run takes.
#pragma once
#include "src/app/options.h"
#include "src/app/step_model.h"
#include "src/comm/comm.h"

namespace BACKEND {

// Prints model, step, a rank's memory, whether it fits; with --for a step's time. options.shape has its vocabulary.
void dry_run(const Options& options, const Comm* comm, int micro_batches);
void check_memory(const Options& options, const Comm* comm);    // kExitOther if this host cannot give its ranks that
Work step_work(const Options& options, int ranks, int micro_batches);      // for predict_step

}  // namespace BACKEND
