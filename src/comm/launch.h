// launch.h -- `--np N`: starts N ranks of this program on this machine and supervises them.
//
// Each rank gets torchrun's variables, LOCKSTEP_JOB, LOCKSTEP_TRY and, when it is started again, the run's folder and
// id in LOCKSTEP_OUT_DIR and LOCKSTEP_RUN. Ranks die with the supervisor. It passes signals on, and kills the others
// 3 s after a rank failed. kExitPeer or death by a signal starts all ranks again, at most max_restarts times and
// until two attempts in a row have saved no checkpoint. elastic: after two failures with as many ranks half as many
// start.
#pragma once
#include <string>
#include <vector>

// argv: the ranks' arguments, without the program's name. Returns the exit code of the job.
int launch_ranks(int np, int max_restarts, bool elastic, const std::vector<std::string>& argv);

// Rank 0 tells its supervisor, if it has one, where this run saves, and its id once config.json has it; before: "".
void report_out_dir(const std::string& out_dir, const std::string& id = "");
double job_seconds();       // since this process, or its supervisor, was started
int job_restarts();         // how often it has restarted all ranks

// In a rank that was started again: sets its --out-dir and --resume auto and returns true; the caller drops --force. If
// nothing was saved there, a --resume PATH stays as it is.
bool follow_supervisor(std::string* out_dir, std::string* resume);
