// dry_run.h -- the GPUs that --for knows, and what a run takes of their memory.
#pragma once
#include <string>
#include "src/options/options.h"

// The GPUs that --for knows, and their memory in bytes. tools/step_model.h has their speed.
struct PlannedGpu { const char* name; double memory; };
inline constexpr PlannedGpu kPlannedGpus[] = {{"a100", 80e9}, {"h100", 80e9}, {"h200", 141e9}, {"b200", 180e9},
                                              {"4090", 24e9}};
constexpr double kPerHost = 8;          // GPUs per host

namespace BACKEND {

// Parses the value of --for, "8xh100" or "h100". Returns the GPU and sets *ranks to their number. kExitUsage: unknown.
const PlannedGpu& gpu_asked_for(const std::string& text, int* ranks);
// Returns the bytes that `sharing` ranks need for arrays, and sets *said to a line about one rank. sharing: on CPUs the
// ranks of a host, which share one copy of weights and state; on a GPU 1.
double memory_of(const Options& o, int ranks, bool on_gpu, int sharing, std::string* said);

}  // namespace BACKEND
