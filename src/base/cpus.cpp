// cpus.cpp -- see cpus.h.
#include "src/base/cpus.h"
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <sys/sysinfo.h>
#include <system_error>
#include <unistd.h>
#include "src/base/file.h"

cpu_set_t affinity_of(pid_t pid) {
    cpu_set_t mask;
    if (sched_getaffinity(pid, sizeof mask, &mask) == 0) return mask;
    CPU_ZERO(&mask);                    // more than 1,024 CPUs, or the process is gone
    for (unsigned c = 0; pid == 0 && c < std::thread::hardware_concurrency(); c++)
        CPU_SET(c, &mask);
    return mask;
}

// Version 2 of cgroups has the quota and its period in one file, version 1 has them in two.
double cgroup_cpus(const std::string& root) {
    double limit = 0;
    const auto take = [&](const std::string& numbers) {
        double quota, period;
        // Without a limit the file has "max" or -1.
        if (std::sscanf(numbers.c_str(), "%lf %lf", &quota, &period) != 2 || quota <= 0) return;
        limit = limit == 0 ? quota / period : std::min(limit, quota / period);
    };
    visit_cgroups(root, "cpu", [&](const std::string& group) {
        take(read_kernel_file(group + "/cpu.max"));
        take(read_kernel_file(group + "/cpu.cfs_quota_us") + " " +
             read_kernel_file(group + "/cpu.cfs_period_us"));
    });
    return limit;
}

int available_cpus() {
    return threads_by_environment(cpu_share({affinity_of(0)}, 0, cgroup_cpus()), 1);
}

int threads_by_environment(int threads, int ranks) {
    for (const auto& [name, sharing] :
         {std::pair("OMP_NUM_THREADS", 1), {"SLURM_CPUS_PER_TASK", ranks}}) {
        const char* const text = std::getenv(name);
        const int n = text ? std::atoi(text) : 0;  // of "8,2", for nested threads, the first counts
        // 1 is torchrun's default, not the user's choice.
        const bool of_torchrun = n == 1 && name[0] == 'O' && std::getenv("TORCHELASTIC_RUN_ID");
        if (n > 0 && sharing > 0 && !of_torchrun)
            threads = std::min(threads, std::max(1, n / sharing));
    }
    return threads;
}

void check_threads(int wanted) {
    const int cpus = sysconf(_SC_NPROCESSORS_ONLN), most = std::max(256, 16 * cpus);
    if (wanted > most)
        die(kExitUsage, "--threads: got %d, want at most %d: this host has %d CPUs", wanted, most,
            cpus);
}

int cpu_share(const std::vector<cpu_set_t>& masks, int local_rank, double quota) {
    double share = 0;
    for (int c = 0; c < CPU_SETSIZE; c++) {
        const auto may_use = [&](const cpu_set_t& mask) { return CPU_ISSET(c, &mask); };
        if (may_use(masks[local_rank])) share += 1.0 / std::ranges::count_if(masks, may_use);
    }
    if (quota > 0) share = std::min(share, quota / masks.size());
    // Rounded down, because one thread too many slows all the others.
    return std::max(1, int(share + 1e-6));
}

void stay_near_device(const std::string& address) {
    std::string folder = "/sys/bus/pci/devices/";
    for (const char c : address) folder += std::tolower(c);
    const std::string list = read_kernel_file(folder + "/local_cpulist");       // "0-23,96-119"
    cpu_set_t now = affinity_of(0), near;
    CPU_ZERO(&near);
    for (std::string_view rest = list; !rest.empty();) {
        const std::string part(next_word(&rest, ','));
        int first = 0, last = -1;
        if (std::sscanf(part.c_str(), "%d-%d", &first, &last) == 1) last = first;
        for (int c = first; c <= last && c < CPU_SETSIZE; c++) CPU_SET(c, &near);
    }
    CPU_AND(&near, &near, &now);
    const bool tied = CPU_COUNT(&now) < sysconf(_SC_NPROCESSORS_ONLN);
    if (!tied && CPU_COUNT(&near) > 0) sched_setaffinity(0, sizeof near, &near);
}

void visit_cgroups(const std::string& root, const std::string& controller,
                   const std::function<void(const std::string& folder)>& visit) {
    const std::string lines = read_kernel_file(root + "/proc/self/cgroup"),
                      mounts = root + "/sys/fs/cgroup";
    for (std::string_view rest = lines; !rest.empty();) {
        // "4:cpu,cpuacct:/job"; in version 2 "0::/job"
        std::string_view group = next_word(&rest, '\n');
        next_word(&group, ':');
        const std::string all(next_word(&group, ':'));
        const std::string mount = mounts + (all.empty() ? "" : "/" + controller);
        if (!all.empty() && ("," + all + ",").find("," + controller + ",") == all.npos) continue;
        // In a container, the path may be one of the host's that is not visible here. Then only the
        // mount itself, the container's own group, can be read.
        for (; group.starts_with('/') && group != "/"; group = group.substr(0, group.rfind('/')))
            visit(mount + std::string(group));
        visit(mount);
    }
}

Allowance allowed_memory(const std::string& root) {
    struct sysinfo host;
    sysinfo(&host);
    const double swap = host.totalswap * host.mem_unit;
    Allowance most = {host.totalram * host.mem_unit + swap, "this host"};
    visit_cgroups(root, "memory", [&](const std::string& folder) {
        for (const char* file : {"memory.max", "memory.limit_in_bytes"}) {
            double limit;
            // Without a limit the file has "max".
            if (std::sscanf(read_kernel_file(folder + "/" + file).c_str(), "%lf", &limit) != 1)
                continue;
            if (limit + swap < most.amount)
                most = {limit + swap, format("%s of %s", file, folder.c_str())};
        }
    });
    return most;
}

std::jthread start_thread(const char* what, const std::function<void()>& work) try {
    return std::jthread(work);
} catch (const std::system_error& e) {
    die(kExitOther,
        "no thread: %s: %s; ulimit -u or a cgroup's pids.max allows no more, or memory is short",
        what, e.what());
}
