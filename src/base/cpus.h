// cpus.h -- which of the machine's CPUs this process may use: the affinity mask and the cgroup's quota.
#pragma once
#include <sched.h>
#include <string>
#include <vector>

double cgroup_cpus(const std::string& root = "");       // CPUs that the quota is worth; 0: no limit. root: for tests
cpu_set_t affinity_of(pid_t pid);                       // 0: of this process
int available_cpus();           // the affinity mask's CPUs, cut by the quota and by threads_by_environment
void check_threads(int wanted);                         // kExitUsage for more than a host's CPUs can be asked for

// Returns `threads`, or what OMP_NUM_THREADS or SLURM_CPUS_PER_TASK allow if that is less. ranks: of the task; 0: the
// task is not theirs.
int threads_by_environment(int threads, int ranks);

// Threads for one of the ranks of a host, given all their masks: a CPU that k of them may use counts 1/k, and the quota
// is for all of them together. At least 1.
int cpu_share(const std::vector<cpu_set_t>& masks, int local_rank, double quota);

// Ties this thread and those it starts to the CPUs beside a PCI device ("0000:1b:00.0"), unless a launcher has tied it
// to some already, or the machine does not say which they are.
void stay_near_device(const std::string& address);
