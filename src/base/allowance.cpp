// allowance.cpp -- see allowance.h.
#include "src/base/allowance.h"
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <system_error>
#include <unistd.h>
#include "src/base/common.h"
#include "src/base/file.h"

void visit_cgroups(const std::string& root, const std::string& controller,
                   const std::function<void(const std::string& folder)>& visit) {
    const std::string lines = read_kernel_file(root + "/proc/self/cgroup"), mounts = root + "/sys/fs/cgroup";
    for (std::string_view rest = lines; !rest.empty();) {
        std::string_view group = next_word(&rest, '\n');        // "4:cpu,cpuacct:/job"; in version 2 "0::/job"
        next_word(&group, ':');
        const std::string all(next_word(&group, ':')), mount = mounts + (all.empty() ? "" : "/" + controller);
        if (!all.empty() && ("," + all + ",").find("," + controller + ",") == all.npos) continue;
        // In a container, the path may be one of the host's that is not visible here. Then only the mount itself, the
        // container's own group, can be read.
        for (; group.starts_with('/') && group != "/"; group = group.substr(0, group.rfind('/')))
            visit(mount + std::string(group));
        visit(mount);
    }
}

// Returns the least of `most` and of the limits in the cgroups' `files`. `beside` is added to each of these.
static Allowance least_of(Allowance most, const std::string& root, const char* controller,
                          const std::vector<const char*>& files, double beside) {
    visit_cgroups(root, controller, [&](const std::string& folder) {
        for (const char* file : files) {
            double limit;
            if (std::sscanf(read_kernel_file(folder + "/" + file).c_str(), "%lf", &limit) != 1) continue;   // "max"
            if (limit + beside < most.amount) most = {limit + beside, format("%s of %s", file, folder.c_str())};
        }
    });
    return most;
}

Allowance allowed_memory(const std::string& root) {
    struct sysinfo host;
    sysinfo(&host);
    const double swap = double(host.totalswap) * host.mem_unit, all = double(host.totalram) * host.mem_unit + swap;
    return least_of({all, "this host"}, root, "memory", {"memory.max", "memory.limit_in_bytes"}, swap);
}

Allowance allowed_threads(const std::string& root) {
    rlimit of_user;
    getrlimit(RLIMIT_NPROC, &of_user);
    Allowance most = {std::atof(read_kernel_file(root + "/proc/sys/kernel/threads-max").c_str()), "this host"};
    if (most.amount == 0) most.amount = 1e9;
    if (geteuid() != 0 && double(of_user.rlim_cur) < most.amount) most = {double(of_user.rlim_cur), "ulimit -u"};
    return least_of(most, root, "pids", {"pids.max"}, 0);
}

std::jthread start_thread(const char* what, const std::function<void()>& work) {
    for (int tries = 0;; tries++) try {
        return std::jthread(work);
    } catch (const std::system_error& e) {
        const Allowance most = allowed_threads();
        if (tries == 100)
            die(kExitOther, "no thread: %s: %s for 10 seconds; %s allows %.0f threads, its memory may be short, too",
                what, e.what(), most.by.c_str(), most.amount);
        usleep(100000);
    }
}
