// supervisor.h -- what a rank learns from the supervisor that started it (`--np N`: tools/launch.cpp), and what it
// tells the supervisor. A rank reads LOCKSTEP_TRY, LOCKSTEP_BEGAN and LOCKSTEP_OUT_DIR, and writes to the memory file
// LOCKSTEP_SUPERVISOR_FD. If these environment variables are not set, it has no supervisor.
#pragma once
#include <string>

// On rank 0: tells the supervisor, if there is one, in which folder this run saves, and the run's id once config.json
// contains it ("" before).
void report_out_dir(const std::string& out_dir, const std::string& id = "");
double job_seconds();       // seconds since this process or its supervisor was started
int job_restarts();         // how often the supervisor has restarted the job

// In a restarted rank, if the run's folder is known: sets *out_dir to it and *resume to "auto", and returns true; the
// caller must then ignore --force.
bool follow_supervisor(std::string* out_dir, std::string* resume);
