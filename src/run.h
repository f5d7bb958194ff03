// run.h -- what belongs to a run rather than to a model: its folder, its lock, requests to stop, the checks that ranks agree.
#pragma once
#include <string>
#include <utility>
#include <vector>
#include "comm.h"
#include "options.h"

struct Run {
    std::string out_dir;
    std::string checkpoint;             // the folder to resume from; empty: a fresh start
    bool resumed() const { return !checkpoint.empty(); }
    bool overwrite = false;             // --force, and something is there
    bool created = false;               // the folder is new
    bool locked = false;                // by rank 0, this process
};
// Rank 0 finds what --resume means; all ranks learn it and merge the saved options of that run into theirs. Writes
// nothing but the lock.
// Errors: 2 an identity option that differs; 65 no checkpoint is whole; 66 nothing to resume; 74 another run holds it.
Run find_run(Options* options, Comm* comm);
// Rank 0 makes and locks the folder of a run whose options are resolved; a new run gets its name here.
// Errors: 2 a folder that is not empty; 74 it cannot be written, or another run holds it.
void claim_run(Run* run, Options* options, Comm* comm);
// A start that is refused leaves no folder behind that it made.
void unclaim_run(const Run& run);
// --force: removes the old run in the folder. Apart from claim_run, so that a start that fails in between has removed nothing.
void empty_run(const Run& run);

// The run folder that `path` means: itself, or the run of a checkpoint folder inside it; "" if it is none.
std::string run_of(const std::string& path);

// Every rank brings the same named values, or the run ends with code 80, naming the first that differs, on which rank.
using Fields = std::vector<std::pair<std::string, std::string>>;
void check_agreement(Comm* comm, const Fields& fields);
Fields option_fields(const Options& options);           // what decides the bits of a run, and the program itself

// Requests by signal. INT, TERM, USR1 (and HUP, unless ignored): save and stop. USR2: save and go on. The handler sets a flag; the
// trainer or-s the flags of all ranks once per step, and once a second of an evaluation, so that all act at the same step. A second request to stop, a second or more
// after the first, ends the process at once with code 1. say: the handler says so on stderr, for steps may be long.
void catch_signals(bool say);
uint32_t pending_requests();            // bit n: signal n came; that of a save is cleared by reading
bool wants_save(uint32_t requests);
std::string stop_reason(uint32_t requests);             // "SIGTERM", "SIGINT and SIGTERM"; "": none asks to stop
uint32_t stop_requested();              // the same without that of a save
