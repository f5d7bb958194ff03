// allowance.h -- how much memory and how many threads this process may use, and which limit decides that: the host's,
// that of a cgroup (version 1 or 2) or of one of its parent groups, or the user's.
#pragma once
#include <functional>
#include <string>
#include <thread>

struct Allowance { double amount; std::string by; };        // by: the limit, "memory.max of /sys/fs/cgroup/job"
Allowance allowed_memory(const std::string& root = "");     // bytes, swap included. root: a folder for /, in tests
Allowance allowed_threads(const std::string& root = "");    // threads of all processes under the limit together

// Calls visit(folder) for each cgroup that limits this process with `controller` ("cpu"): for its own group first, then
// for each parent group.
void visit_cgroups(const std::string& root, const std::string& controller,
                   const std::function<void(const std::string& folder)>& visit);

// Starts a thread that calls work(). If none can be started, tries again for ten seconds, then throws kExitOther. The
// error names the thread (`what`) and the limit.
std::jthread start_thread(const char* what, const std::function<void()>& work);
