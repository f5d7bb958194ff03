// tools.cpp -- see tools.h.
#include "src/base/tools.h"
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include "src/base/common.h"
#include "src/base/file.h"
#include "src/base/lock.h"

static bool is_program(const std::string& path) { return access(path.c_str(), X_OK) == 0 && !is_directory(path); }

std::string tool_path(const std::string& name) {
    const std::string own = parent_folder(program_path()) + "/", built = own + "build/" + name;
    return is_program(own + name) && !is_program(built) ? own + name : built;
}

std::string require_tool(const std::string& what, const std::string& name) {
    const std::string path = tool_path(name);
    if (!is_program(path))
        die(kExitNoInput, "%s: %s: it is not beside the program; build it with: ninja build/%s", what.c_str(),
            shown_path(path).c_str(), name.c_str());
    return path;
}

[[noreturn]] static void cannot_start(const std::string& what, const std::string& path, int error) {
    die(kExitOther, "%s: cannot start %s: %s", what.c_str(), shown_path(path).c_str(), std::strerror(error));
}

// Returns the argv for execv: the program's name, its arguments, null.
static std::vector<char*> pointers(const std::string& name, const Arguments& arguments) {
    std::vector<char*> argv = {const_cast<char*>(name.c_str())};
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    return argv;
}

// Starts a tool, whose signals are blocked. input and output become its standard input and output. kExitOther: it
// cannot start.
static pid_t start_tool(const std::string& what, const std::string& path, const Arguments& arguments, int input,
                        int output) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
    sigset_t all;
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    posix_spawn_file_actions_adddup2(&files, input, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
    signal(SIGCHLD, SIG_DFL);               // if it were ignored, as by our parent, waitpid would fail
    pid_t pid;
    const std::vector<char*> argv = pointers(path, arguments);
    const int error = posix_spawn(&pid, path.c_str(), &files, &attributes, argv.data(), environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    if (error) cannot_start(what, path, error);
    return pid;
}

// Waits for a child's end and returns waitpid's status.
static int wait_for(pid_t pid) {
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    return status;
}

void hand_over(const std::string& what, const std::string& path, const Arguments& arguments, const std::string& name) {
    std::fflush(nullptr);
    execv(path.c_str(), pointers(name.empty() ? path : name, arguments).data());
    cannot_start(what, path, errno);
}

// Reads lines until the other side closes the pipe; calls progress() at each empty one. Returns the last other one.
static std::string read_answer(int pipe, const std::string& tool, const std::function<void()>& progress) {
    std::string line, answer;
    char piece[4096];
    Countdown left{tool};
    const auto next = [&] {
        pollfd input = {pipe, POLLIN, 0};
        do left.at();
        while (poll(&input, 1, 1000) == 0);
        return read(pipe, piece, sizeof piece);
    };
    for (ssize_t n; (n = next()) > 0 || (n < 0 && errno == EINTR);)
        for (ssize_t i = 0; i < n; i++) {
            if (piece[i] != '\n') line += piece[i];
            else if (line.empty()) progress();
            else answer = std::exchange(line, "");
        }
    return answer;
}

// The request is a file in memory. A pipe could fill up while the tool waits until its own output is read.
std::string ask_tool(const std::string& what, const std::string& path, const Arguments& arguments,
                     const std::string& request, const std::function<void()>& progress) {
    const std::string name = format("%s: %s", what.c_str(), shown_path(path).c_str());
    const Descriptor input(memfd_create("request", MFD_CLOEXEC));
    if (input.fd < 0) die(kExitOther, "%s: no memory for a request: %s", name.c_str(), std::strerror(errno));
    for (size_t done = 0; done < request.size();) {
        const ssize_t n = pwrite(input.fd, request.data() + done, request.size() - done, off_t(done));
        if (n <= 0) die(kExitOther, "%s: no memory for a request: %s", name.c_str(), std::strerror(errno));
        done += size_t(n);
    }
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) die(kExitOther, "%s: %s", name.c_str(), std::strerror(errno));
    const Descriptor ours(ends[0]);
    Descriptor theirs(ends[1]);
    const pid_t pid = start_tool(what, path, arguments, input.fd, theirs.fd);
    theirs = Descriptor();
    const std::string answer = read_answer(ours.fd, base_name(path), progress);
    const int status = wait_for(pid);
    if (WIFSIGNALED(status))
        die(kExitOther, "%s: was killed by signal %d (%s)", name.c_str(), WTERMSIG(status),
            strsignal(WTERMSIG(status)));
    const int code = WEXITSTATUS(status);
    if (code && answer.empty()) die(code, "%s: ended with code %d", name.c_str(), code);
    if (code) die(code, "%s", answer.c_str());
    return answer;
}
