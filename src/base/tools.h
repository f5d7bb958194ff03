// tools.h -- finds and starts tools: the other programs that were built with this one, as git does with its commands.
#pragma once
#include <functional>
#include <string>
#include <sys/types.h>
#include <vector>

using Arguments = std::vector<std::string>;

// Returns the tool's path: beside this program, or in build/ there. The tool may be missing.
std::string tool_path(const std::string& name);
// Returns tool_path(name). kExitNoInput: the tool is missing. what: what needs the tool, an option ("--np") or command.
std::string require_tool(const std::string& what, const std::string& name);
// Replaces this process by the tool (execv): the pid does not change, and the tool's exit code becomes this process's.
// name: the tool's argv[0], which ps shows; by default its path. kExitOther: the tool cannot be started.
[[noreturn]] void hand_over(const std::string& what, const std::string& path, const Arguments& arguments,
                            const std::string& name = "");

// Runs a tool that reads a request from its standard input, to the end, and writes lines to its standard output. An
// empty line reports progress, and this calls progress(). Any other line is the answer; returns the last one, or "" if
// there is none. If the tool's exit code is not 0, the last answer is its error, which this throws with that code.
// kExitOther: it cannot start, or a signal has killed it. Signals are blocked in the tool. If this process dies, or if
// progress() throws, which ends this call, the tool ends at its next progress line: see answer_request in tools/tool.h.
std::string ask_tool(const std::string& what, const std::string& path, const Arguments& arguments,
                     const std::string& request, const std::function<void()>& progress);
