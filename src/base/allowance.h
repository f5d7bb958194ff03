// allowance.h -- how much memory and how many threads this process may use, and what says so: the host, cgroups of both
// versions with the groups above them, limits of the user.
#pragma once
#include <functional>
#include <string>
#include <thread>

struct Allowance { double amount; std::string by; };        // by: "memory.max of /sys/fs/cgroup/job"
Allowance allowed_memory(const std::string& root = "");     // bytes, swap included. root: for tests
Allowance allowed_threads(const std::string& root = "");    // of all processes that share the limit

// Calls visit with the folder of each cgroup that limits this process by `controller` ("cpu"), from its own one up.
void visit_cgroups(const std::string& root, const std::string& controller,
                   const std::function<void(const std::string& folder)>& visit);

// Starts a thread. Where none is to be had it tries for ten seconds, then throws kExitOther, which names the limit.
std::jthread start_thread(const char* what, const std::function<void()>& work);
