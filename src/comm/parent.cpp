// parent.cpp -- see parent.h.
#include "src/comm/parent.h"
#include <algorithm>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "src/base/common.h"
#include "src/base/file.h"

static Descriptor launcher;                     // a pidfd: a number may soon be another process's

// torchrun is Python and has its name in the command line; the others' begin with one of these.
static bool is_launcher(const std::string& name, const std::string& program, const std::string& command) {
    if (name == "torchrun") return command.find("torch") != command.npos;
    constexpr const char* kNames[] = {"mpirun", "mpiexec", "orte", "prte", "hydra_", "pmi_proxy", "mpispawn"};
    return std::ranges::any_of(kNames, [&](const char* prefix) { return program.starts_with(prefix); });
}

void find_launcher(const std::string& name) {
    for (pid_t pid = getppid(); pid > 1;) {
        const std::string folder = format("/proc/%d/", pid), stat = read_kernel_file(folder + "stat");
        const size_t open = stat.find('('), close = stat.rfind(')');    // "7 (mpirun) S 1 ..."
        if (close == stat.npos) return;
        if (is_launcher(name, stat.substr(open + 1, close - open - 1), read_kernel_file(folder + "cmdline"))) {
            launcher = Descriptor(int(syscall(SYS_pidfd_open, pid, 0)));
            return;
        }
        if (std::sscanf(stat.c_str() + close + 1, " %*c %d", &pid) != 1) return;
    }
}

bool launcher_is_gone() {
    pollfd ended = {launcher.fd, POLLIN, 0};
    return launcher.fd >= 0 && poll(&ended, 1, 0) == 1;
}
