// launch.cpp -- `train_gpt --np N` becomes this program: it starts N ranks on this machine and supervises them.
//
// Each rank gets torchrun's variables, LOCKSTEP_JOB, LOCKSTEP_TRY and, when it is started again, the descriptor of the
// run's folder as the path LOCKSTEP_OUT_DIR. Ranks die with the supervisor. It passes signals on, and kills the others
// 3 s after a rank failed. kExitPeer or death by a signal starts all ranks again, at most --max-restarts times and
// until two attempts in a row have saved no checkpoint. --elastic: after two failures with as many ranks half as many
// start.
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "src/base/file.h"
#include "src/comm/rendezvous.h"
#include "tools/tool.h"

namespace {

constexpr double kGraceSeconds = 3;         // for the other ranks when one has failed
constexpr double kLeaveSeconds = 30;        // for them to end when one has ended well
constexpr double kKilledSeconds = 60;       // for one that was killed: a system call may hold it

struct Job {
    int np, attempt = 0;
    std::vector<char*> argv;                // the program, its arguments, null
    std::vector<pid_t> pids = {};           // by rank; 0: has ended
    double stop_asked = INFINITY;           // when, by a signal other than SIGUSR2: no rank is started again
    sigset_t signals = {};                  // blocked, and taken by supervise, which passes all but SIGCHLD on
};

void set_variable(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }

// Turns the child of a fork into a rank.
[[noreturn]] void become_rank(const Job& job, int rank, pid_t parent) {
    setpgid(0, 0);                                          // a Ctrl-C reaches ranks once, through the supervisor
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(kExitPeer);
    for (const char* variable : {"RANK", "LOCAL_RANK"}) set_variable(variable, std::to_string(rank));
    dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), 0);       // reading the terminal would stop a background group
    const sigset_t none = {};
    sigprocmask(SIG_SETMASK, &none, nullptr);
    execv(job.argv[0], job.argv.data());
    print_error({kExitOther, format("--np: cannot start %s: %s", job.argv[0], std::strerror(errno))});
    _exit(kExitOther);
}

void signal_all(const Job& job, int signal) {
    for (const pid_t pid : job.pids)
        if (pid) kill(pid, signal);
}

// Ctrl-Z stops the ranks with this process, and fg continues them: they are in groups of their own.
void pause_job(const Job& job) {
    sigset_t stop = {};
    sigaddset(&stop, SIGTSTP);
    signal_all(job, SIGSTOP);
    raise(SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &stop, nullptr);               // this process stops here
    sigprocmask(SIG_BLOCK, &stop, nullptr);
    signal_all(job, SIGCONT);
}

// Waits until all ranks have ended. Returns the code of the first that failed by itself (fault 3), else of one that
// lost another rank or hung (2), else of one that was asked to stop (1). Ranks end with 0 or 75 behind a last barrier:
// after that all is saved, and one that hangs does not change the code.
int supervise(Job* job) {
    int worst = 0, blame = 0;
    bool complete = false;                                  // a rank has ended well
    double kill_at = INFINITY;
    const timespec tick = {0, 200'000'000};
    for (int left = job->np; left > 0;) {
        const int signal = sigtimedwait(&job->signals, nullptr, &tick);
        const double now = now_seconds();
        if (signal == SIGTSTP) pause_job(*job);
        else if (signal > 0 && signal != SIGCHLD) {
            signal_all(*job, signal);
            const bool again = signal != SIGUSR2 && signal != SIGXCPU;      // the ranks count the same way
            if (again && now - job->stop_asked >= 1) kill_at = std::min(kill_at, now + kGraceSeconds);
            if (signal != SIGUSR2) job->stop_asked = std::min(job->stop_asked, now);
        }
        const bool hung = now > kill_at;
        if (hung) signal_all(*job, SIGKILL);                // it ends stopped ones too
        if (now > kill_at + kKilledSeconds) die(kExitOther, "--np: %d ranks do not end though they were killed", left);
        for (int r = 0; r < job->np; r++) {
            int status;
            if (!job->pids[r] || waitpid(job->pids[r], &status, WNOHANG) != job->pids[r]) continue;
            const bool crashed = WIFSIGNALED(status) && !hung;
            const int code = WIFSIGNALED(status) ? (hung && complete ? worst : kExitPeer) : WEXITSTATUS(status);
            const int fault = crashed ? 3 : code == kExitPeer ? 2 : code == kExitStopped ? 1 : code ? 3 : 0;
            if (crashed)
                warn("rank %d (pid %d) was killed by signal %d (%s)", r, int(job->pids[r]), WTERMSIG(status),
                    strsignal(WTERMSIG(status)));
            if (hung && complete && WIFSIGNALED(status))
                warn("rank %d (pid %d) hung when all was done, and was killed", r, int(job->pids[r]));
            complete |= fault < 2;
            kill_at = std::min(kill_at, now + (fault >= 2 ? kGraceSeconds : kLeaveSeconds));
            if (fault > blame) worst = code, blame = fault;
            job->pids[r] = 0;
            left--;
        }
    }
    return worst;
}

int run_attempt(Job* job) {
    for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE"}) set_variable(name, std::to_string(job->np));
    set_variable("LOCKSTEP_TRY", std::to_string(job->attempt));
    set_variable("LOCKSTEP_JOB", format("np-%d-%d-%.9f", int(getpid()), job->attempt, now_seconds()));
    job->pids.clear();
    for (int r = 0; r < job->np; r++) {
        const pid_t self = getpid();
        const pid_t pid = fork();
        if (pid < 0)
            die(kExitOther, "--np %d: cannot start rank %d: %s; ulimit -u or a cgroup's pids.max allows no more, or "
                "memory is short", job->np, r, std::strerror(errno));
        if (pid == 0) become_rank(*job, r, self);
        job->pids.push_back(pid);
    }
    return supervise(job);
}

// Returns the descriptor that rank 0 has sent through the other end of `socket`; -1: there is none.
int take_folder(int socket) {
    Gift gift;
    int folder = -1;
    const bool given = recvmsg(socket, &gift.message, MSG_DONTWAIT) > 0;
    if (const cmsghdr* head = CMSG_FIRSTHDR(&gift.message); given && head)
        std::memcpy(&folder, CMSG_DATA(head), sizeof folder);
    return folder;
}

// Returns the exit code of the job.
int launch_ranks(int np, int max_restarts, bool elastic, const std::vector<char*>& argv) {
    Job job = {.np = np, .argv = argv};
    for (const int s : {SIGCHLD, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU}) sigaddset(&job.signals, s);
    struct sigaction old;                   // what nohup or a shell without job control ignores is no request
    for (const int s : {SIGHUP, SIGTSTP})
        if (sigaction(s, nullptr, &old) == 0 && old.sa_handler != SIG_IGN) sigaddset(&job.signals, s);
    sigprocmask(SIG_BLOCK, &job.signals, nullptr);
    signal(SIGCHLD, SIG_DFL);               // if our parent left it ignored, waitpid finds nobody
    int ends[2];                            // the ranks' end, and this process's
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) != 0) die(kExitOther, "--np: socketpair: %s", std::strerror(errno));
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    set_variable("LOCKSTEP_SUPERVISOR_FD", std::to_string(ends[0]));
    unsetenv("LOCKSTEP_OUT_DIR");
    std::string folder, saved;                      // the run's by descriptor, and the newest checkpoint in it so far
    int fruitless = 0, failed = 0;                  // attempts in a row that saved nothing; that failed with np ranks
    for (;; job.attempt++) {
        const int code = run_attempt(&job);
        if (code != kExitPeer || std::isfinite(job.stop_asked)) return code;
        const int given = folder.empty() ? take_folder(ends[1]) : -1;       // later ranks give the same folder
        if (given >= 0) folder = format("/proc/self/fd/%d", given);
        std::string newest = folder.empty() ? "" : read_kernel_file(path_join(folder, "ckpt/latest"));
        newest.resize(std::min(newest.size(), newest.find('\n')));
        fruitless = newest != saved ? 0 : fruitless + 1;
        saved = newest;
        const bool fewer = elastic && ++failed >= 2 && job.np > 1;
        const bool giving_up = fruitless >= 2 && !fewer;
        if (giving_up) warn("--np: two attempts in a row saved no checkpoint; giving up");
        if (giving_up || job.attempt >= max_restarts) return code;
        if (fewer) job.np /= 2, failed = fruitless = 0;     // it divides the replicas too, so the bits stay the same
        if (!folder.empty()) set_variable("LOCKSTEP_OUT_DIR", folder);
        warn("--np: starting %s %d ranks again (%d of %d), from %s", fewer ? "only" : "all", job.np, job.attempt + 1,
            max_restarts, saved.empty() ? "the beginning: nothing was saved" : saved.c_str());
    }
}

}  // namespace

int main(int argc, char** argv) {
    int own = 1;                            // the words before the program's
    while (own < argc && argv[own][0] == '-') own++;
    int ranks = 0, restarts = 3;
    bool elastic = false;
    const Tool tool = {"train_gpt",         // which users have called
        "usage: build/launch --np=N [--max-restarts=N] [--elastic] PROGRAM [ARGUMENT...]\n"
        "Starts N ranks of a program on this machine and supervises them, as train_gpt --np N does.\n",
        {{"--np", "N", "ranks", &ranks, "", {"from 1 to 1024", 1, 1024}},
         {"--max-restarts", "N", "after a rank was lost", &restarts},
         {"--elastic", "", "after two failures in a row half as many ranks", &elastic}}};
    return tool_main(tool, own, argv, [&](const Words& words) {
        if (own == argc || ranks == 0 || !words.empty())
            die(kExitUsage, "launch: want --np=N and a program; see build/launch --help");
        prctl(PR_SET_NAME, base_name(argv[own]).c_str());       // as ps, killall and top know it
        return launch_ranks(ranks, restarts, elastic, {argv + own, argv + argc + 1});
    });
}
