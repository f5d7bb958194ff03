// cpus.h -- which of the machine's CPUs this process may use: the affinity mask and the cgroup's quota.
#pragma once
#include <sched.h>
#include <string>
#include <vector>

double cgroup_cpus(const std::string& root = "");       // the quota in CPUs; 0: none. root: a folder for /, in tests
cpu_set_t affinity_of(pid_t pid);                       // pid 0: this process
int available_cpus();           // CPUs in the affinity mask; fewer if the quota or the environment allows fewer
void check_threads(int wanted);                         // kExitUsage above 16 threads for each CPU, and above 256

// Returns `threads`, or less if OMP_NUM_THREADS or SLURM_CPUS_PER_TASK allows less. ranks: how many ranks share the
// CPUs of the Slurm task; 0: SLURM_CPUS_PER_TASK does not describe these ranks and is ignored.
int threads_by_environment(int threads, int ranks);

// Returns how many threads a rank of this host gets, at least 1. masks: the CPUs that each of the host's ranks may use;
// a CPU that k ranks may use counts 1/k. quota: CPUs for all these ranks together; 0: no limit.
int cpu_share(const std::vector<cpu_set_t>& masks, int local_rank, double quota);

// Binds this thread, and the threads that it starts, to the CPUs next to a PCI device ("0000:1b:00.0"). Does nothing if
// a launcher has bound it to some CPUs already, or if the machine does not say which CPUs are next to the device.
void stay_near_device(const std::string& address);
