// allowance.h -- how much memory this process may use, and which limit decides that: the host's, or that of a cgroup
// (version 1 or 2) or of one of its parent groups. Threads.
#pragma once
#include <functional>
#include <string>
#include <thread>

struct Allowance { double amount; std::string by; };        // by: the limit, "memory.max of /sys/fs/cgroup/job"
Allowance allowed_memory(const std::string& root = "");     // bytes, swap included. root: a folder for /, in tests

// Calls visit(folder) for each cgroup that limits this process with `controller` ("cpu"): for its own group first, then
// for each parent group.
void visit_cgroups(const std::string& root, const std::string& controller,
                   const std::function<void(const std::string& folder)>& visit);

// Starts a thread that calls work(). what: names it in the error, kExitOther, if none can be started.
std::jthread start_thread(const char* what, const std::function<void()>& work);
