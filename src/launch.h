// launch.h -- `--np N`: start N ranks of this program on this machine and stand over them.
//
// Each rank gets the torchrun variables and LOCKSTEP_JOB; it dies with the supervisor (PR_SET_PDEATHSIG). Signals that ask to save
// and stop are passed on. A rank killed by a signal, or exit code 69, restarts all ranks with --resume, at most max_restarts
// times and only while new checkpoints appear; any other code ends the job with the first failing rank's code.
#pragma once
#include <string>
#include <vector>

// argv: the arguments the ranks are started with, without --np. Returns the exit code of the job.
int launch_ranks(int np, int max_restarts, const std::vector<std::string>& argv);
