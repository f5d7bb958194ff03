// supervisor.h -- what a rank learns from the supervisor that started it (`--np N`: tools/launch.cpp), and what it
// tells the supervisor. They communicate by the environment variables LOCKSTEP_TRY, LOCKSTEP_BEGAN, LOCKSTEP_OUT_DIR
// and LOCKSTEP_SUPERVISOR_FD; without these a rank has no supervisor.
#pragma once
#include <string>

// On rank 0: tells the supervisor, if there is one, in which folder this run saves, and the run's id once config.json
// contains it ("" before).
void report_out_dir(const std::string& out_dir, const std::string& id = "");
double job_seconds();       // seconds since this process or its supervisor was started
int job_restarts();         // how often the supervisor has restarted all ranks
std::string newest_checkpoint(const std::string& out_dir);      // its name, as ckpt/latest has it; "": nothing is saved

// In a rank that was restarted: sets *out_dir to the run's folder and *resume to "auto", and returns true; the caller
// must then ignore --force. If nothing was saved in that folder, a --resume PATH stays as it is.
bool follow_supervisor(std::string* out_dir, std::string* resume);
