// cpus.h -- which of the machine's CPUs are ours: the affinity mask, the cgroup's quota, and the other ranks of the host.
#pragma once
#include <sched.h>
#include <string>
#include <vector>
#include "comm.h"

// CPUs that a cgroup's quota is worth, or 0 for no limit (containers). root: of the file system, for tests.
double cgroup_cpus(const std::string& root = "");

// CPUs this process may use: the affinity mask, cut by the quota.
int available_cpus();

// Threads for one of the ranks of a host, given all their masks: a CPU that k of them may use counts 1/k, and the quota is for all of
// them together. At least 1, so that only more ranks than CPUs share one.
int cpu_share(const std::vector<cpu_set_t>& masks, int local_rank, double quota);

// Threads for this rank: `wanted` (--threads) or, where that is 0, its share. Collective. Warns, once per host, of ranks that a launcher has
// tied to fewer CPUs than it has itself, and of more threads than CPUs.
int rank_threads(Comm* comm, int wanted);
