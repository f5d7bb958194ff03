// allowance.cpp -- see allowance.h.
#include "src/base/allowance.h"
#include <sys/sysinfo.h>
#include <system_error>
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

Allowance allowed_memory(const std::string& root) {
    struct sysinfo host;
    sysinfo(&host);
    const double swap = double(host.totalswap) * host.mem_unit;
    Allowance most = {double(host.totalram) * host.mem_unit + swap, "this host"};
    visit_cgroups(root, "memory", [&](const std::string& folder) {
        for (const char* file : {"memory.max", "memory.limit_in_bytes"}) {
            double limit;
            if (std::sscanf(read_kernel_file(folder + "/" + file).c_str(), "%lf", &limit) != 1) continue;   // "max"
            if (limit + swap < most.amount) most = {limit + swap, format("%s of %s", file, folder.c_str())};
        }
    });
    return most;
}

std::jthread start_thread(const char* what, const std::function<void()>& work) try {
    return std::jthread(work);
} catch (const std::system_error& e) {
    die(kExitOther, "no thread: %s: %s; ulimit -u or a cgroup's pids.max allows no more, or memory is short", what,
        e.what());
}
