// supervisor.h -- what a rank learns from the supervisor that started it (`--np N`: tools/launch.cpp), and what it
// gives the supervisor. A rank reads LOCKSTEP_TRY, LOCKSTEP_BEGAN and LOCKSTEP_OUT_DIR, and writes to the socket
// LOCKSTEP_SUPERVISOR_FD. If these environment variables are not set, it has no supervisor.
#pragma once
#include <string>

// On rank 0: gives the descriptor of the run's folder to the supervisor, if there is one.
void give_folder(int folder);
// In the supervisor: returns a descriptor that a rank gave through the other end of `socket`; -1: there is none.
int take_folder(int socket);
double job_seconds();       // seconds since this process or its supervisor was started
int job_restarts();         // how often the supervisor has restarted the job

// In a restarted rank to which the supervisor has given the run's folder: sets *out_dir to it and *resume to "auto",
// and returns true; the caller must then ignore --force.
bool follow_supervisor(std::string* out_dir, std::string* resume);
