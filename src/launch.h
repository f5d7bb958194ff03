// launch.h -- `--np N`: start N ranks of this program on this machine and stand over them.
//
// Each rank gets the torchrun variables, LOCKSTEP_JOB, LOCKSTEP_TRY and, when it is started again, the run's folder in LOCKSTEP_OUT_DIR; it
// dies with the supervisor (PR_SET_PDEATHSIG). INT, TERM, HUP, USR1 and USR2 are passed on. When one rank fails, the others have 3 s. Exit
// code 69, as which a death by a signal counts, starts all ranks again, at most max_restarts times, until two attempts in a row have saved
// no checkpoint; any other code ends the job with the first failing rank's code. `elastic`: the second attempt in a row that fails is
// followed by one with half as many ranks. What failed ranks said last is kept in OUT/failed.
#pragma once
#include <string>
#include <vector>
#include "options.h"

// argv: the arguments the ranks are started with, without the program's name. Returns the exit code of the job.
int launch_ranks(int np, int max_restarts, bool elastic, const std::vector<std::string>& argv);

// Rank 0 tells its supervisor, if it has one, where this run saves: a restart needs to know.
void report_out_dir(const std::string& out_dir);

// Since this process, or its supervisor, was started.
double job_seconds();
int job_restarts();                     // of that supervisor

// In a rank that was started again: the run goes on in its folder, --resume auto, no --force. Without a checkpoint there a --resume PATH
// stays as it was given.
void follow_supervisor(Options* options);
