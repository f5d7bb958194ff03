// supervisor.h -- what a rank learns from the supervisor that started it (`--np N`: tools/launch.cpp), and what it
// gives the supervisor. A rank reads the environment variables LOCKSTEP_TRY and LOCKSTEP_OUT_DIR, and writes to the
// socket LOCKSTEP_SUPERVISOR_FD. If they are not set, it has no supervisor.
#pragma once
#include <string>
#include <sys/socket.h>

// A message with one byte and room for one descriptor.
struct Gift {
    char byte = 0;
    iovec bytes = {&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message = {nullptr, 0, &bytes, 1, control, sizeof control, 0};
};

// On rank 0: gives the descriptor of the run's folder to the supervisor, if there is one.
void give_folder(int folder);

// In a restarted rank to which the supervisor has given the run's folder: sets *out_dir to it and *resume to "auto",
// and returns true; the caller must then ignore --force.
bool follow_supervisor(std::string* out_dir, std::string* resume);
