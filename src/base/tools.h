// tools.h -- finds and starts the other programs (tools) that were built with this one, as git does with its commands.
#pragma once
#include <string>
#include <sys/types.h>
#include <vector>
#include "src/base/file.h"

using Arguments = std::vector<std::string>;

// Returns where the tool is: beside this program, or in its build/. It may be missing.
std::string tool_path(const std::string& name);
// Returns the same for `what` needs the tool, an option ("--np") or a command. Throws kExitNoInput if it is missing.
std::string require_tool(const std::string& what, const std::string& name);
// Replaces this process by the tool (execv): the pid stays, and the tool's exit code is this process's. name: its
// argv[0], as ps shows it; by default its path. Throws kExitOther if the tool cannot be started.
[[noreturn]] void hand_over(const std::string& what, const std::string& path, const Arguments& arguments,
                            const std::string& name = "");
// Runs the tool and waits for its end. Throws its exit code if that is not 0, or kExitOther if it cannot start.
void run_tool(const std::string& what, const std::string& path, const Arguments& arguments);

// A tool that runs beside this process and reads the files that this process writes. Its standard input is a pipe that
// closes when this object is destroyed or this process ends in any way; then the tool finishes. It blocks signals.
class Follower {
  public:
    Follower(const std::string& what, const std::string& path, const Arguments& arguments);      // kExitOther
    ~Follower();                            // waits for the tool's end; kills one that hangs
    Follower(const Follower&) = delete;
    void check();                           // warns if the tool has failed
  private:
    std::string name;
    Descriptor input;
    pid_t pid;                              // 0: it has ended
};
