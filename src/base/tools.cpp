// tools.cpp -- see tools.h.
#include "src/base/tools.h"
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include "src/base/common.h"
#include "src/base/file.h"
#include "src/base/lock.h"

static bool is_program(const std::string& path) { return access(path.c_str(), X_OK) == 0 && !is_directory(path); }

std::string tool_path(const std::string& name) {
    const std::string own = parent_folder(program_path()) + "/", built = own + "build/" + name;
    return is_program(built) ? built : own + name;
}

std::string require_tool(const std::string& option, const std::string& name) {
    const std::string path = tool_path(name);
    if (!is_program(path))
        die(kExitNoInput, "--%s: %s: it is not beside the program; build it with: ninja build/%s", option.c_str(),
            shown_path(path).c_str(), name.c_str());
    return path;
}

// What execv takes: the program, its arguments, null.
static std::vector<char*> pointers(const std::string& path, const std::vector<std::string>& arguments) {
    std::vector<char*> argv = {const_cast<char*>(path.c_str())};
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    return argv;
}

static pid_t start_tool(const std::string& option, const std::string& path, const std::vector<std::string>& arguments) {
    pid_t pid;
    const int error = posix_spawn(&pid, path.c_str(), nullptr, nullptr, pointers(path, arguments).data(), environ);
    if (error) die(kExitOther, "--%s: cannot start %s: %s", option.c_str(), shown_path(path).c_str(), strerror(error));
    return pid;
}

void run_tool(const std::string& option, const std::string& path, const std::vector<std::string>& arguments) {
    std::fflush(nullptr);                                       // what was printed comes first
    signal(SIGCHLD, SIG_DFL);               // if our parent left it ignored, waitpid finds nobody
    const pid_t pid = start_tool(option, path, arguments);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : int(kExitOther);
    if (code) throw Error{code, format("--%s: %s ended with code %d", option.c_str(), shown_path(path).c_str(), code)};
}

void hand_over(const std::string& option, const std::string& path, const std::vector<std::string>& arguments) {
    std::fflush(nullptr);
    execv(path.c_str(), pointers(path, arguments).data());
    die(kExitOther, "--%s: cannot start %s: %s", option.c_str(), shown_path(path).c_str(), std::strerror(errno));
}
