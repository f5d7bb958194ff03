// tools.h -- the programs that were built with this one, and how it hands over to them, as git does. option: of the
// command line, which wants the tool; errors begin with it. path: of the tool.
#pragma once
#include <string>
#include <vector>

std::string tool_path(const std::string& name);         // beside this program, or in its build/; it may be missing
std::string require_tool(const std::string& option, const std::string& name);      // the same; kExitNoInput if it is missing
// Becomes the tool: it keeps this process's id, and its exit code is this program's. Throws kExitOther.
[[noreturn]] void hand_over(const std::string& option, const std::string& path, const std::vector<std::string>& args);
// Runs the tool to its end. Throws its exit code if that is not 0, or kExitOther.
void run_tool(const std::string& option, const std::string& path, const std::vector<std::string>& args);
