// launch.cpp -- see launch.h. The supervisor does nothing but wait for signals: its ranks' ends, a user's requests, the clock.
#include "launch.h"
#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include "common.h"
#include "file.h"

namespace {

constexpr double kGraceSeconds = 3;         // for the other ranks when one has failed

struct Rank {
    pid_t pid = 0;              // 0: has ended
    int errors = -1;            // the reading end of its stderr
    int code = 0;
    int blame = 0;              // 3: a failure of its own; 2: ended with 0 or 75, or had to be killed; 1: 69, another failed before
    std::string end = {}, said = {};    // "rank 1 (pid 7) was killed by signal 9 (Killed)"; the last of what it wrote on stderr
};

// Passes on what the ranks write on stderr, as it comes, and keeps the end of it, until all have closed theirs.
void listen_to(std::vector<Rank>* ranks) {
    constexpr size_t kKept = 64 << 10;
    for (size_t open = ranks->size(); open > 0;) {
        std::vector<pollfd> polls;
        for (const Rank& r : *ranks) polls.push_back({r.errors, POLLIN, 0});
        poll(polls.data(), polls.size(), -1);
        for (size_t r = 0; r < polls.size(); r++) {
            char text[4096];
            if (!polls[r].revents) continue;
            const ssize_t n = read(polls[r].fd, text, sizeof text);
            if (n <= 0) { close((*ranks)[r].errors); (*ranks)[r].errors = -1; open--; continue; }
            if (write(2, text, size_t(n)) != n) {}          // a terminal that is gone is no reason to stop
            std::string& said = (*ranks)[r].said;
            said.append(text, size_t(n));
            if (said.size() > 2 * kKept) said.erase(0, said.size() - kKept);
        }
    }
}

// In the child, between fork and exec.
[[noreturn]] void become_rank(int rank, int np, int attempt, const std::string& job, int report_fd, int errors, const std::string& program,
                              const std::vector<std::string>& argv, pid_t supervisor, const sigset_t& mask) {
    dup2(errors, 2);
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

void signal_all(const std::vector<Rank>& ranks, int signal) {
    for (const Rank& r : ranks)
        if (r.pid) kill(r.pid, signal);
}

// Collects what has ended. cause: the first of those with the most blame, which may be seen late: who only hangs ends when we kill it.
void reap(std::vector<Rank>* ranks, int* cause, bool killing) {
    for (size_t r = 0; r < ranks->size(); r++) {
        Rank& rank = (*ranks)[r];
        int status = 0;
        if (!rank.pid || waitpid(rank.pid, &status, WNOHANG) != rank.pid) continue;
        const bool signalled = WIFSIGNALED(status);
        rank.code = signalled ? kExitPeer : WEXITSTATUS(status);
        rank.blame = signalled ? (killing ? 2 : 3) : rank.code == kExitPeer ? 1 : rank.code == 0 || rank.code == kExitStopped ? 2 : 3;
        rank.end = format("rank %zu (pid %d) ", r, int(rank.pid)) + (!signalled ? format("ended with code %d", rank.code) : killing ? "hung and was killed"
            : format("was killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status))));
        if (signalled && !killing) warn("%s", rank.end.c_str());
        rank.pid = 0;
        if (*cause < 0 || (*ranks)[size_t(*cause)].blame < rank.blame) *cause = int(r);
    }
}

bool stop_asked = false;         // a request to stop was passed on: a rank that it killed before it could save is not to be restarted

// Waits until all have ended. Returns the first rank that failed, -1 if none did.
int supervise(std::vector<Rank>* ranks, const sigset_t& signals) {
    int cause = -1;
    double kill_at = 0;                                     // 0: nothing has gone wrong
    for (;;) {
        reap(ranks, &cause, kill_at && now_seconds() > kill_at);
        const bool alive = std::any_of(ranks->begin(), ranks->end(), [](const Rank& r) { return r.pid != 0; });
        // Those who are done (0) or stopped on request (75) have met after the commit: the others are on their way.
        const bool failed = std::any_of(ranks->begin(), ranks->end(), [](const Rank& r) { return r.blame % 2; });
        if (!alive && failed) {
            Rank& first = (*ranks)[size_t(cause)];
            if (first.code == 0 || first.code == kExitStopped) first.code = kExitPeer, first.end += " before the others";
        }
        if (!alive) return cause >= 0 && (failed || (*ranks)[size_t(cause)].code) ? cause : -1;
        if (!kill_at && failed) kill_at = now_seconds() + kGraceSeconds;
        if (kill_at && now_seconds() > kill_at) signal_all(*ranks, SIGKILL);        // SIGKILL ends stopped ones too
        const timespec patience = {0, 200 * 1000 * 1000};
        const int signal = sigtimedwait(&signals, nullptr, &patience);
        if (signal > 0 && signal != SIGCHLD) signal_all(*ranks, signal);
        stop_asked |= signal > 0 && signal != SIGCHLD && signal != SIGUSR2;
    }
}

// OUT/failed/try_0.rank_1.log: how the rank ended and what it said last.
void keep_logs(const std::vector<Rank>& ranks, int attempt, const std::string& out_dir) try {
    const std::string folder = path_join(out_dir, "failed");
    make_directories(folder);
    for (size_t r = 0; r < ranks.size(); r++)
        if (ranks[r].code) write_file_atomic(path_join(folder, format("try_%d.rank_%zu.log", attempt, r)), ranks[r].end + "\n" + ranks[r].said);
} catch (const Error& e) { warn("%s", e.message.c_str()); }

struct Attempt { int code = 0; std::string cause; };        // of the rank that failed first; 0 and "": none did

Attempt run_attempt(int np, int attempt, const std::string& program, const std::vector<std::string>& argv, std::string* out_dir) {
    sigset_t signals, before;
    sigemptyset(&signals);
    for (const int s : {SIGCHLD, SIGINT, SIGTERM, SIGUSR1, SIGUSR2}) sigaddset(&signals, s);
    struct sigaction hangup;                                // one that nohup ignores would still be waited for, and taken for a request
    if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) sigaddset(&signals, SIGHUP);
    int report[2];
    if (pipe2(report, O_CLOEXEC) != 0) die(kExitOther, "--np: pipe: %s", std::strerror(errno));
    fcntl(report[0], F_SETFL, O_NONBLOCK);
    const std::string job = format("np-%d-%d-%llx", int(getpid()), attempt, (unsigned long long)(now_seconds() * 1e9));
    sigprocmask(SIG_BLOCK, &signals, &before);
    const pid_t self = getpid();
    std::vector<Rank> ranks;
    for (int r = 0; r < np; r++) {
        int errors[2];
        if (pipe2(errors, O_CLOEXEC) != 0) errors[0] = errors[1] = -1;
        const pid_t pid = errors[0] < 0 ? -1 : fork();
        if (pid == 0) become_rank(r, np, attempt, job, report[1], errors[1], program, argv, self, before);
        const int error = errno;
        close(errors[1]);
        if (pid < 0) {
            close(errors[0]);
            for (const Rank& rank : ranks) close(rank.errors);
            signal_all(ranks, SIGKILL);
            supervise(&ranks, signals);
            sigprocmask(SIG_SETMASK, &before, nullptr);
            die(kExitOther, "--np %d: cannot start rank %d: %s", np, r, std::strerror(error));
        }
        setpgid(pid, pid);                                  // here too, so that it is done whoever comes first
        ranks.push_back({.pid = pid, .errors = errors[0]});
    }
    close(report[1]);
    std::thread listener(listen_to, &ranks);                // with all signals blocked: they are this thread's
    const int cause = supervise(&ranks, signals);
    listener.join();
    sigprocmask(SIG_SETMASK, &before, nullptr);
    char text[PATH_MAX + 1];
    const ssize_t n = read(report[0], text, sizeof text);
    if (n > 0) *out_dir = std::string(text, size_t(n));
    close(report[0]);
    if (cause < 0) return {};
    const int code = ranks[size_t(cause)].code;
    if ((code == kExitPeer || code == kExitDisagree || code == kExitOther) && !out_dir->empty() && !stop_asked) keep_logs(ranks, attempt, *out_dir);
    return {code, ranks[size_t(cause)].end};
}

std::string newest_checkpoint(const std::string& out_dir) {
    const std::string latest = path_join(path_join(out_dir, "ckpt"), "latest");
    if (out_dir.empty() || !file_exists(latest)) return "";
    const std::string name = read_file(latest);
    return name.substr(0, name.find('\n'));
}

}  // namespace

void follow_supervisor(Options* options) {
    const char* const out_dir = std::getenv("LOCKSTEP_OUT_DIR");
    if (!out_dir) return;
    options->out_dir = out_dir;
    options->force = false;                                 // it would overwrite what is to be resumed
    if (options->resume.empty() || !newest_checkpoint(out_dir).empty()) options->resume = "auto";
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

static const double process_began = now_seconds();

double job_seconds() {
    const char* const began = std::getenv("LOCKSTEP_BEGAN");        // by the same clock, which all processes share
    return now_seconds() - (began ? std::atof(began) : process_began);
}

int job_restarts() { return std::getenv("LOCKSTEP_TRY") ? std::atoi(std::getenv("LOCKSTEP_TRY")) : 0; }

int launch_ranks(int np, int max_restarts, bool elastic, const std::vector<std::string>& argv) {
    signal(SIGCHLD, SIG_DFL);                               // whoever started us may have it ignored: then waitpid finds nobody
    const std::string program = program_path();             // ranks started as /proc/self/exe would be called "exe" in ps
    setenv("LOCKSTEP_BEGAN", format("%.3f", process_began).c_str(), 1);
    unsetenv("LOCKSTEP_OUT_DIR");
    std::string out_dir;
    std::string before;                                     // the newest checkpoint when the attempt began
    std::string first;                                      // failure: what came later may be its consequence
    int fruitless = 0, failed = 0;                          // attempts in a row that saved nothing; that failed with this many ranks
    for (int attempt = 0;; attempt++) {
        const Attempt a = run_attempt(np, attempt, program, argv, &out_dir);
        if (a.code != kExitPeer || stop_asked) return a.code;
        if (first.empty()) first = format("%s, one of %d", a.cause.c_str(), np);
        const std::string now = newest_checkpoint(out_dir), logs = out_dir.empty() ? "" : "; logs: " + path_join(out_dir, "failed");
        fruitless = now != before ? 0 : fruitless + 1;
        before = now;
        const bool fewer = elastic && ++failed >= 2 && np > 1;
        if (attempt >= max_restarts || (fruitless >= 2 && !fewer)) {
            if (attempt > 0) warn("--np: %s; the first failure: %s%s", fruitless >= 2 ? "two attempts in a row saved no checkpoint; giving up" : "no restart left", first.c_str(), logs.c_str());
            return a.code;
        }
        if (fewer) np /= 2, failed = fruitless = 0;         // lanes are a power of two, so this divides them too; the bits stay the same
        if (!out_dir.empty()) setenv("LOCKSTEP_OUT_DIR", out_dir.c_str(), 1);
        warn("--np: starting %s %d ranks again (%d of %d), %s", fewer ? "only" : "all", np, attempt + 1, max_restarts,
             now.empty() ? "from the beginning: nothing was saved" : format("from %s", now.c_str()).c_str());
    }
}
