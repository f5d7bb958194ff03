// dry_run.h -- --dry-run: what a run would take.
#pragma once
#include <string>
#include "comm.h"
#include "gpt.h"
#include "options.h"

namespace BACKEND {

// Prints the model, the memory of a rank and, from a trial matmul on this device, an estimate of the time. options are resolved; leaves of a step.
void dry_run(const Options& options, const GptConfig& config, const Comm* comm, int leaves);

// "per rank, MB: weights ...": what the run will take; their sum in *bytes.
std::string memory_text(const Options& options, const GptConfig& config, const Comm* comm, double* bytes = nullptr);

}  // namespace BACKEND
