// dry_run.h -- --dry-run: the memory that a run takes.
#pragma once
#include <string>
#include "src/app/options.h"
#include "src/comm/comm.h"

// GPUs of --for with their bytes. tools/step_model.h has their speed, in the same order.
struct PlannedGpu { const char* name; double memory; };
inline constexpr PlannedGpu kPlannedGpus[] = {{"a100", 80e9}, {"h100", 80e9}, {"h200", 141e9}, {"b200", 180e9},
                                              {"4090", 24e9}};
constexpr double kPerHost = 8;          // GPUs of a host

namespace BACKEND {

// The GPU of --for, "8xh100" or "h100", and how many of them. kExitUsage: there is none such.
const PlannedGpu& gpu_asked_for(const std::string& text, int* ranks);
// Prints model, step, a rank's memory, whether it fits; with --for a step's time. options.shape has its vocabulary.
void dry_run(const Options& options, const Comm* comm, int micro_batches);
void check_memory(const Options& options, const Comm* comm);    // kExitOther if this host cannot give its ranks that

}  // namespace BACKEND
