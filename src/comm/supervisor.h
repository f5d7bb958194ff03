// supervisor.h -- what a rank hears from the supervisor that started it (`--np N`: tools/launch.cpp) and tells it. The
// variables LOCKSTEP_TRY, LOCKSTEP_BEGAN, LOCKSTEP_OUT_DIR and LOCKSTEP_SUPERVISOR_FD say so; without them a rank has
// none.
#pragma once
#include <string>

// Rank 0 tells its supervisor, if it has one, where this run saves, and its id once config.json has it; before: "".
void report_out_dir(const std::string& out_dir, const std::string& id = "");
double job_seconds();       // since this process, or its supervisor, was started
int job_restarts();         // how often it has restarted all ranks
std::string newest_checkpoint(const std::string& out_dir);      // its name, as ckpt/latest has it; "": nothing is saved

// In a rank that was started again: sets its --out-dir and --resume auto and returns true; the caller drops --force. If
// nothing was saved there, a --resume PATH stays as it is.
bool follow_supervisor(std::string* out_dir, std::string* resume);
