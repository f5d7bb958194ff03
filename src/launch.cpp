// launch.cpp -- see launch.h. The supervisor does nothing but wait for signals: its ranks' ends, a user's requests, the clock.
#include "launch.h"
#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "common.h"
#include "file.h"

namespace {

constexpr double kGraceSeconds = 3;         // for the other ranks when one has failed

struct Rank { pid_t pid; int code; bool consequence; };     // pid 0: has ended; consequence: of another rank's end

// In the child, between fork and exec.
[[noreturn]] void become_rank(int rank, int np, int attempt, const std::string& job, int report_fd, const std::string& program,
                              const std::vector<std::string>& argv, pid_t supervisor, const sigset_t& mask) {
    setpgid(0, 0);                                          // a Ctrl-C reaches ranks once, through the supervisor
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != supervisor) _exit(kExitPeer);
    const std::pair<const char*, int> numbers[] = {
        {"RANK", rank}, {"WORLD_SIZE", np}, {"LOCAL_RANK", rank}, {"LOCAL_WORLD_SIZE", np}, {"LOCKSTEP_TRY", attempt}};
    for (const auto& [name, value] : numbers) setenv(name, std::to_string(value).c_str(), 1);
    setenv("LOCKSTEP_JOB", job.c_str(), 1);
    unsetenv("LOCKSTEP_SUPERVISOR_FD");
    if (rank == 0 && fcntl(report_fd, F_SETFD, 0) == 0) setenv("LOCKSTEP_SUPERVISOR_FD", std::to_string(report_fd).c_str(), 1);
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);  // a background group that reads the terminal would be stopped
    if (null >= 0) dup2(null, 0);
    sigprocmask(SIG_SETMASK, &mask, nullptr);
    std::vector<char*> args = {const_cast<char*>(program.c_str())};
    for (const std::string& a : argv) args.push_back(const_cast<char*>(a.c_str()));
    args.push_back(nullptr);
    execv(program.c_str(), args.data());
    print_error({kExitOther, format("--np: cannot start %s: %s", program.c_str(), std::strerror(errno))});
    _exit(kExitOther);
}

// The running program's own file: ranks started as /proc/self/exe would be called "exe" in ps.
std::string program_path() {
    char path[PATH_MAX] = "";
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0) die(kExitOther, "--np: /proc/self/exe: %s", std::strerror(errno));
    return std::string(path, size_t(n));
}

void signal_all(const std::vector<Rank>& ranks, int signal) {
    for (const Rank& r : ranks)
        if (r.pid) kill(r.pid, signal);
}

// Collects what has ended. cause: the rank whose failure came first; but 69 says that another failed before, so it gives way to a
// better reason, which may be seen later. `killing`: we are ending the others ourselves, which is nobody's failure.
void reap(std::vector<Rank>* ranks, int* cause, bool killing) {
    for (size_t r = 0; r < ranks->size(); r++) {
        Rank& rank = (*ranks)[r];
        int status = 0;
        if (!rank.pid || waitpid(rank.pid, &status, WNOHANG) != rank.pid) continue;
        const bool signalled = WIFSIGNALED(status);
        rank.code = signalled ? kExitPeer : WEXITSTATUS(status);
        rank.consequence = !signalled && rank.code == kExitPeer;
        if (signalled && !killing)
            warn("rank %zu (pid %d) was killed by signal %d (%s)", r, int(rank.pid), WTERMSIG(status),
                strsignal(WTERMSIG(status)));
        rank.pid = 0;
        if (rank.code == 0 || killing) continue;
        if (*cause < 0 || ((*ranks)[size_t(*cause)].consequence && !rank.consequence)) *cause = int(r);
    }
}

// Waits until all have ended. Returns the code of the first that failed, 0 if none did.
bool stop_asked = false;         // a request to stop was passed on: a rank that it killed before it could save is not to be restarted

int supervise(std::vector<Rank>* ranks, const sigset_t& signals) {
    int cause = -1;
    double kill_at = 0;                                     // 0: nothing has gone wrong
    for (;;) {
        reap(ranks, &cause, kill_at && now_seconds() > kill_at);
        const bool alive = std::any_of(ranks->begin(), ranks->end(), [](const Rank& r) { return r.pid != 0; });
        if (!alive) return cause < 0 ? 0 : (*ranks)[size_t(cause)].code;
        // Those who stopped on request (75) have met after the commit: the others are on their way.
        if (!kill_at && cause >= 0 && (*ranks)[size_t(cause)].code != kExitStopped) kill_at = now_seconds() + kGraceSeconds;
        if (kill_at && now_seconds() > kill_at) signal_all(*ranks, SIGKILL);        // SIGKILL ends stopped ones too
        const timespec patience = {0, 200 * 1000 * 1000};
        const int signal = sigtimedwait(&signals, nullptr, &patience);
        if (signal > 0 && signal != SIGCHLD) signal_all(*ranks, signal);
        stop_asked |= signal > 0 && signal != SIGCHLD && signal != SIGUSR2;
    }
}

int run_attempt(int np, int attempt, const std::string& program, const std::vector<std::string>& argv, std::string* out_dir) {
    sigset_t signals, before;
    sigemptyset(&signals);
    for (const int s : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) sigaddset(&signals, s);
    int report[2];
    if (pipe2(report, O_CLOEXEC) != 0) die(kExitOther, "--np: pipe: %s", std::strerror(errno));
    fcntl(report[0], F_SETFL, O_NONBLOCK);
    const std::string job = format("np-%d-%d-%llx", int(getpid()), attempt, (unsigned long long)(now_seconds() * 1e9));
    sigprocmask(SIG_BLOCK, &signals, &before);
    const pid_t self = getpid();
    std::vector<Rank> ranks;
    for (int r = 0; r < np; r++) {
        const pid_t pid = fork();
        if (pid == 0) become_rank(r, np, attempt, job, report[1], program, argv, self, before);
        if (pid < 0) {
            const int error = errno;
            signal_all(ranks, SIGKILL);
            supervise(&ranks, signals);
            sigprocmask(SIG_SETMASK, &before, nullptr);
            die(kExitOther, "--np %d: cannot start rank %d: %s", np, r, std::strerror(error));
        }
        setpgid(pid, pid);                                  // here too, so that it is done whoever comes first
        ranks.push_back({pid, 0, false});
    }
    close(report[1]);
    const int code = supervise(&ranks, signals);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    char text[PATH_MAX + 1];
    const ssize_t n = read(report[0], text, sizeof text);
    if (n > 0) *out_dir = std::string(text, size_t(n));
    close(report[0]);
    return code;
}

std::string newest_checkpoint(const std::string& out_dir) {
    const std::string latest = path_join(path_join(out_dir, "ckpt"), "latest");
    if (out_dir.empty() || !file_exists(latest)) return "";
    const std::string name = read_file(latest);
    return name.substr(0, name.find('\n'));
}

// --key=value, --key value, --key; '_' reads as '-'.
bool is_option(const std::string& argument, const std::string& key) {
    std::string name = argument.substr(0, argument.find('='));
    std::replace(name.begin(), name.end(), '_', '-');
    return name == "--" + key;
}

bool has_option(const std::vector<std::string>& argv, const std::string& key) {
    return std::any_of(argv.begin(), argv.end(), [&](const std::string& a) { return is_option(a, key); });
}

// Without an option, and without its value where that is an argument of its own.
std::vector<std::string> without_option(const std::vector<std::string>& argv, const std::string& key, bool takes_value) {
    std::vector<std::string> rest;
    for (size_t i = 0; i < argv.size(); i++) {
        if (!is_option(argv[i], key)) rest.push_back(argv[i]);
        else if (takes_value && argv[i].find('=') == std::string::npos && i + 1 < argv.size() && argv[i + 1].compare(0, 2, "--") != 0)
            i++;
    }
    return rest;
}

}  // namespace

std::vector<std::string> restart_arguments(const std::vector<std::string>& argv, const std::string& out_dir, bool saved) {
    if (out_dir.empty()) return argv;                       // the run never began: begin it again
    std::vector<std::string> next = without_option(argv, "force", false);       // it would overwrite what is to be resumed
    if (saved) next = without_option(next, "resume", true);
    if (!has_option(next, "out-dir")) next.insert(next.end(), {"--out-dir", out_dir});
    if (!has_option(next, "resume")) next.insert(next.end(), {"--resume", "auto"});
    return next;
}

void report_out_dir(const std::string& out_dir) {
    const char* text = std::getenv("LOCKSTEP_SUPERVISOR_FD");
    if (!text) return;
    const int fd = std::atoi(text);
    unsetenv("LOCKSTEP_SUPERVISOR_FD");
    if (fd <= 2) return;
    if (write(fd, out_dir.data(), out_dir.size()) != ssize_t(out_dir.size()))
        warn("--np: cannot tell the supervisor where this run saves: %s", std::strerror(errno));
    close(fd);
}

int launch_ranks(int np, int max_restarts, const std::vector<std::string>& argv) {
    signal(SIGCHLD, SIG_DFL);                               // whoever started us may have it ignored: then waitpid finds nobody
    const std::string program = program_path();
    std::vector<std::string> next = without_option(argv, "np", true);
    std::string out_dir;
    std::string before;                                     // the newest checkpoint when the attempt began
    int fruitless = 0;                                      // attempts in a row that saved nothing
    for (int attempt = 0;; attempt++) {
        const int code = run_attempt(np, attempt, program, next, &out_dir);
        if (code != kExitPeer || stop_asked) return code;
        const std::string now = newest_checkpoint(out_dir);
        fruitless = now != before ? 0 : fruitless + 1;
        before = now;
        if (attempt >= max_restarts) return code;
        if (fruitless >= 2) {
            warn("--np: two attempts in a row saved no checkpoint; giving up");
            return code;
        }
        next = restart_arguments(next, out_dir, !now.empty());
        warn("--np: starting all %d ranks again (%d of %d), %s", np, attempt + 1, max_restarts,
             now.empty() ? "from the beginning: nothing was saved" : format("from %s", now.c_str()).c_str());
    }
}
