// dry_run.h -- what a run takes; --dry-run prints it.
#pragma once
#include "src/app/options.h"
#include "src/comm/comm.h"

namespace BACKEND {

// Prints model, step, memory of a rank, and whether it fits. options are resolved; shape: with its vocabulary.
void dry_run(const Options& options, const Shape& shape, const Comm* comm, int micro_batches);

}  // namespace BACKEND
