// run.h -- what belongs to a run rather than to a model: its folder and lock, the ranks' agreement, requests by signal.
#pragma once
#include <csignal>
#include <memory>
#include <string>
#include <utility>
#include <vector>
#include "src/base/lock.h"
#include "src/comm/comm.h"
#include "src/data/data.h"
#include "src/options/options.h"

struct Run {
    std::string out_dir;
    std::string checkpoint;             // the folder to resume from; empty: a fresh start
    std::string id = "";                // on rank 0; every checkpoint carries it
    bool overwrite = false;             // --force, and the folder is not empty
    bool created = false;               // this start made the folder
    // Rank 0's locks of the folder and, from the first save on, of ckpt/ in it, which may be a link to another disk.
    std::shared_ptr<FolderLock> lock = nullptr, ckpt_lock = nullptr;
    bool resumed() const { return !checkpoint.empty(); }
    // Where rank 0 opens files of the run, and where the user finds them. They differ after the folder was moved.
    const std::string& folder() const { return lock ? lock->held : out_dir; }
    const std::string& shown() const { return lock ? lock->path : out_dir; }
};
// Rank 0 finds what --resume means; all ranks merge that run's saved options into theirs. Writes nothing but the lock.
Run find_run(Options* options, Comm* comm);
// Rank 0 makes and locks the run's folder; after resolve_options. model: the folder that holds the weights of --init;
// --init may name another one, such as its run's. Throws kExitUsage, kExitWrite. Collective.
void claim_run(Run* run, Options* options, const std::string& model, Comm* comm);
void unclaim_run(const Run& run);       // removes the folder if this start made it and left it empty
// Makes and locks ckpt/ in the run's folder, for this process. kExitWrite: another run uses it, or its disk is missing.
void claim_checkpoints(const Run& run);
void empty_run(const Run& run);         // --force: removes the old run, once nothing more can be refused
std::vector<std::string> event_files(const std::string& folder);    // for TensorBoard; their paths, sorted
void name_last(const std::string& folder);      // links runs/last to a folder in runs/; failures are ignored

// Returns the run folder that `path` means: itself, or the run that it is a checkpoint of; "" if it is neither.
std::string run_of(const std::string& path);
// Merges the saved options of run_of(path); returns false if there are none.
bool merge_options_of(const std::string& path, Options* options);

// All ranks must have the same named values: kExitDisagree names the first that differs, and its rank. Collective.
using Fields = std::vector<std::pair<std::string, std::string>>;
void check_agreement(Comm* comm, const Fields& fields);
Fields option_fields(const Options& options, const std::string& device_kind);   // program, options, kind of device
Fields data_fields(const Arena& arena, const Data& data);       // names and shapes of all tensors, hashes of the data
void check_ranks(const Options& options, int ranks);            // kExitUsage if the ranks do not divide the replicas

// Requests by signal, a bit each. INT, TERM, USR1 (and HUP, unless ignored): save and stop. USR2: save and go on. The
// trainer or-s the requests of all ranks once per step, so that all act at the same step. Another one to stop, at
// least 1 s after the first, ends the process at once. say: print on stderr what a request does.
void catch_signals(bool say);
constexpr uint32_t kSaveRequest = 1u << SIGUSR2;
uint32_t pending_requests();                            // returns all, and clears that of a save
uint32_t stop_requested();                              // the pending requests to stop
inline uint32_t stop_requests(uint32_t requests) { return requests & ~kSaveRequest; }
std::string stop_reason(uint32_t requests);             // "SIGTERM", "SIGINT and SIGTERM"; "": none asks to stop
