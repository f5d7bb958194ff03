// dry_run.h -- what a run takes; --dry-run prints it.
#pragma once
#include "src/app/options.h"
#include "src/app/step_model.h"
#include "src/comm/comm.h"

namespace BACKEND {

// Prints model, step, memory of a rank, and whether it fits. options are resolved; shape: with its vocabulary.
void dry_run(const Options& options, const Shape& shape, const Comm* comm, int micro_batches);
Work step_work(const Options& options, const Shape& shape, int ranks, int micro_batches);      // on GPUs

}  // namespace BACKEND
