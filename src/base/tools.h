// tools.h -- finds and starts the other programs (tools) that were built with this one, as git does with its commands.
#pragma once
#include <functional>
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

// Runs a tool that answers a request, which it reads from its standard input to the end. Each line of its standard
// output is the answer or, if it is empty, progress, at which this calls progress(). Returns the last answer; "": there
// is none. If the tool ends with another code than 0, that line is its error, which this throws with the same code.
// kExitOther: it cannot start, or a signal has killed it. The tool blocks signals. It ends at its next progress if this
// process dies or progress() throws, which passes on. The tool's side is answer_request in tools/tool.h.
std::string ask_tool(const std::string& what, const std::string& path, const Arguments& arguments,
                     const std::string& request, const std::function<void()>& progress);

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
