// tools.cpp -- see tools.h.
#include "src/base/tools.h"
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
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

// Returns the argv for execv: the program's name, its arguments, null.
static std::vector<char*> pointers(const std::string& name, const Arguments& arguments) {
    std::vector<char*> argv = {const_cast<char*>(name.c_str())};
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    return argv;
}

void hand_over(const std::string& what, const std::string& path, const Arguments& arguments, const std::string& name) {
    std::fflush(nullptr);
    execv(path.c_str(), pointers(name.empty() ? path : name, arguments).data());
    die(kExitOther, "%s: cannot start %s: %s", what.c_str(), shown_path(path).c_str(), std::strerror(errno));
}

// Reads lines until the other side closes the pipe; calls progress() at each empty one. Returns the last other one.
static std::string read_answer(int pipe, const std::function<void()>& progress) {
    std::string line, answer;
    char piece[4096];
    for (ssize_t n; (n = read(pipe, piece, sizeof piece)) > 0 || (n < 0 && errno == EINTR);)
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
    const auto fail = [&] { die(kExitOther, "%s: cannot be asked: %s", name.c_str(), std::strerror(errno)); };
    const Descriptor input(memfd_create("request", MFD_CLOEXEC));
    int ends[2];
    if (input.fd < 0 || pwrite(input.fd, request.data(), request.size(), 0) != ssize_t(request.size())) fail();
    if (pipe2(ends, O_CLOEXEC) != 0) fail();
    const Descriptor ours(ends[0]);
    Descriptor theirs(ends[1]);
    signal(SIGCHLD, SIG_DFL);               // if it were ignored, as by our parent, waitpid would fail
    const std::vector<char*> argv = pointers(path, arguments);
    const pid_t pid = fork();
    if (pid < 0) fail();
    if (pid == 0) {
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, nullptr);
        dup2(input.fd, STDIN_FILENO);
        dup2(theirs.fd, STDOUT_FILENO);
        execv(path.c_str(), argv.data());
        dprintf(STDOUT_FILENO, "%s: cannot start: %s\n", name.c_str(), std::strerror(errno));
        _exit(kExitOther);
    }
    theirs = Descriptor();
    Countdown left{base_name(path)};
    const std::string answer = read_answer(ours.fd, [&] { left.at(), progress(); });
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    if (WIFSIGNALED(status))
        die(kExitOther, "%s: was killed by signal %d (%s)", name.c_str(), WTERMSIG(status),
            strsignal(WTERMSIG(status)));
    const int code = WEXITSTATUS(status);
    if (code && answer.empty()) die(code, "%s: ended with code %d", name.c_str(), code);
    if (code) die(code, "%s", answer.c_str());
    return answer;
}
