// tools.h -- the programs that were built with this one, and how it hands over to them, as git does.
#pragma once
#include <string>
#include <sys/types.h>
#include <vector>
#include "src/base/file.h"

using Arguments = std::vector<std::string>;

// Returns where the tool is: beside this program, or in its build/. It may be missing.
std::string tool_path(const std::string& name);
// The same for an option of the command line that needs it. Throws kExitNoInput if it is missing.
std::string require_tool(const std::string& option, const std::string& name);
// Becomes the tool: it keeps this process's id, and its exit code is this program's. Throws kExitOther.
[[noreturn]] void hand_over(const std::string& option, const std::string& path, const Arguments& arguments);
// Runs the tool to its end. Throws its exit code if that is not 0, or kExitOther.
void run_tool(const std::string& option, const std::string& path, const Arguments& arguments);

// A tool that runs beside this process and reads the files that it writes. Its standard input ends when
// this object or the process does, in whichever way; then it finishes. Signals do not reach it.
class Follower {
  public:
    Follower(const std::string& option, const std::string& path, const Arguments& arguments);      // kExitOther
    ~Follower();                            // waits for its end; one that hangs is killed
    Follower(const Follower&) = delete;
    void check();                           // warns if it has failed
  private:
    std::string name;
    Descriptor input;
    pid_t pid;                              // 0: has ended
};
