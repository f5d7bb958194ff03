// cpus.cpp -- see cpus.h.
#include "cpus.h"
#include <algorithm>
#include <thread>
#include <unistd.h>
#include "common.h"
#include "file.h"

static cpu_set_t mask_of(pid_t pid) {
    cpu_set_t mask;
    if (sched_getaffinity(pid, sizeof mask, &mask) == 0) return mask;
    CPU_ZERO(&mask);                    // more than 1,024 CPUs, or the process is gone
    for (unsigned c = 0; pid == 0 && c < std::max(1u, std::thread::hardware_concurrency()); c++) CPU_SET(c, &mask);
    return mask;
}

// Version 2: cpu.max of the process's group and of those above it; version 1: two files. A container usually sees its own group as the root.
double cgroup_cpus(const std::string& root) {
    double limit = 0, quota = 0, period = 0;
    const auto take = [&](double cpus) { if (cpus > 0 && (limit == 0 || cpus < limit)) limit = cpus; };
    const std::string groups = "\n" + read_kernel_file(root + "/proc/self/cgroup");
    const size_t at = groups.find("\n0::");
    std::string group = at == std::string::npos ? "" : groups.substr(at + 4, groups.find('\n', at + 4) - at - 4);
    for (;; group.resize(group.find_last_of('/'))) {
        const std::string numbers = read_kernel_file(root + "/sys/fs/cgroup" + group + "/cpu.max");
        if (std::sscanf(numbers.c_str(), "%lf %lf", &quota, &period) == 2) take(quota / period);
        if (group.find('/') == std::string::npos) break;
    }
    if (std::sscanf(read_kernel_file(root + "/sys/fs/cgroup/cpu/cpu.cfs_quota_us").c_str(), "%lf", &quota) == 1 && quota > 0 &&
        std::sscanf(read_kernel_file(root + "/sys/fs/cgroup/cpu/cpu.cfs_period_us").c_str(), "%lf", &period) == 1) take(quota / period);
    return limit;
}

int available_cpus() { return cpu_share({mask_of(0)}, 0, cgroup_cpus()); }

int cpu_share(const std::vector<cpu_set_t>& masks, int local_rank, double quota) {
    double share = 0;
    for (int c = 0; c < CPU_SETSIZE; c++)
        if (CPU_ISSET(c, &masks[size_t(local_rank)]))
            share += 1.0 / double(std::count_if(masks.begin(), masks.end(), [&](const cpu_set_t& m) { return CPU_ISSET(c, &m); }));
    if (quota > 0) share = std::min(share, quota / double(masks.size()));
    return std::max(1, int(share + 1e-6));      // rounded down: a thread too many is throttled with all the others
}

int rank_threads(Comm* comm, int wanted) {
    struct Told { cpu_set_t mask; int wanted; };
    std::vector<Told> all(static_cast<size_t>(comm->size));
    const Told mine = {mask_of(0), wanted};
    comm_allgather(comm, all.data(), &mine, sizeof mine);
    std::vector<cpu_set_t> masks;
    cpu_set_t together;
    CPU_ZERO(&together);
    int sum = 0;
    for (int l = 0; l < comm->local_size; l++) {
        const Told& t = all[size_t(comm->host * comm->local_size + l)];
        masks.push_back(t.mask);
        CPU_OR(&together, &together, &t.mask);
        sum += t.wanted;
    }
    const double quota = cgroup_cpus();
    const int share = cpu_share(masks, comm->local_rank, quota), usable = cpu_share({together}, 0, quota);
    if (comm->local_rank == 0 && comm->launcher == "Open MPI") {
        const cpu_set_t launcher = mask_of(getppid());
        if (const int theirs = cpu_share({launcher}, 0, quota); usable < theirs)
            warn("mpirun ties its ranks to %d of %d CPUs of %s; all of them: mpirun --bind-to none", usable, theirs, comm->peers[size_t(comm->rank)].host.c_str());
    }
    if (comm->local_rank == 0 && wanted > 0 && sum > usable)
        warn("--threads %d: %d threads on %d CPUs of %s are slower than %d; leave it out", wanted, sum, usable, comm->peers[size_t(comm->rank)].host.c_str(), usable);
    return wanted > 0 ? wanted : share;
}
