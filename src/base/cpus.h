// cpus.h -- what this process may use of the machine: CPUs, by its affinity mask and its cgroup's
// quota, and memory, by the host's size and its cgroup's limit. How it starts a thread, and how a
// thread waits for another.
#pragma once
#include <functional>
#include <sched.h>
#include <string>
#include <thread>
#include <vector>
#include "src/base/common.h"

// Returns the quota in CPUs; 0: there is none. root: a folder for /, in tests.
double cgroup_cpus(const std::string& root = "");
cpu_set_t affinity_of(pid_t pid);                       // pid 0: this process
// Returns the number of CPUs in the affinity mask, or fewer if the quota or the environment allows
// fewer.
int available_cpus();
void check_threads(int wanted);     // kExitUsage above 16 threads for each CPU, and above 256

// Returns `threads`, or less if OMP_NUM_THREADS or SLURM_CPUS_PER_TASK allows less. ranks: how many
// ranks share the CPUs of the Slurm task; 0: SLURM_CPUS_PER_TASK does not describe these ranks and
// is ignored.
int threads_by_environment(int threads, int ranks);

// Returns how many threads a rank of this host gets, at least 1. masks: the CPUs that each of the
// host's ranks may use; a CPU that k ranks may use counts 1/k. quota: CPUs for all these ranks
// together; 0: no limit.
int cpu_share(const std::vector<cpu_set_t>& masks, int local_rank, double quota);

// Binds this thread, and the threads that it starts, to the CPUs next to a PCI device
// ("0000:1b:00.0"). Does nothing if a launcher has bound it to some CPUs already, or if the machine
// does not say which CPUs are next to the device.
void stay_near_device(const std::string& address);

// How much memory this process may use, and by which limit: the host's size, or the limit of a
// cgroup (version 1 or 2) or of one of its parent groups. by: "memory.max of /sys/fs/cgroup/job".
struct Allowance { double amount; std::string by; };
// Returns the bytes, swap included. root: a folder for /, in tests.
Allowance allowed_memory(const std::string& root = "");

// Calls visit(folder) for each cgroup that limits this process with `controller` ("cpu"): for its
// own group first, then for each parent group.
void visit_cgroups(const std::string& root, const std::string& controller,
                   const std::function<void(const std::string& folder)>& visit);

// Starts a thread that calls work(). kExitOther: none can be started. what: its name in that error.
std::jthread start_thread(const char* what, const std::function<void()>& work);

// ---- waiting for another thread or process for a short time, without sleeping

inline void pause_cpu() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Polls done() for at most `seconds` and returns whether it became true. After `keep` seconds it
// calls sched_yield every 16 polls: the thread that it waits for may need this core. (4 ranks on 2
// cores of an AMD EPYC: a barrier takes 7 us with sched_yield and 55 us without.)
template <class F> bool spin_until(double seconds, const F& done, double keep = 0) {
    for (const double start = now_seconds();;) {
        for (int i = 0; i < 16; i++, pause_cpu())
            if (done()) return true;
        const double spent = now_seconds() - start;
        if (spent >= seconds) return false;
        if (spent >= keep) sched_yield();
    }
}
