// run.h -- a run: its folder and lock, the ranks' agreement, requests by signal, what rank 0 reports, when it saves.
#pragma once
#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>
#include "src/comm/comm.h"
#include "src/data/data.h"
#include "src/options/options.h"

struct CheckpointFiles;                 // src/checkpoint/checkpoint.h
struct FolderLock;                      // src/base/lock.h

// ---- the folder: run.cpp

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
    const std::string& folder() const;
    const std::string& shown() const;
};
// Rank 0 finds what --resume means; all ranks merge that run's saved options into theirs. Writes nothing but the lock.
Run find_run(Options* options, Comm* comm);
// Rank 0 makes and locks the run's folder; after resolve_options. model: the folder that holds the weights of --init;
// --init may name another one, such as its run's. Throws kExitUsage, kExitWrite. Collective.
void claim_run(Run* run, Options* options, const std::string& model, Comm* comm);
void unclaim_run(const Run& run);       // removes the folder if this start made it and left it empty

// Merges the saved options of the run that `path` is, or is a checkpoint of; returns false if there are none.
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

// ---- what rank 0 writes on the console and in metrics.jsonl; the other ranks' reports do nothing: report.cpp

// A run's progress, as a checkpoint's state.json has it; step: steps done.
struct RunProgress {
    int64_t step = 0;
    int bad_steps = 0;                  // in a row, without a finite gradient
    double best_val = 1e300;            // nats per token
    int64_t best_step = -1;             // steps done when it was found; -1: never
    std::vector<double> sums = {};      // what the optimizer's prepare() keeps from step to step
};

struct StepTimes { double compute, comm, exposed; };        // seconds of this rank; exposed: not hidden by computation

// What a rank tells the others once per step.
struct RankReport {
    uint32_t requests;                  // by signal: bit n is signal n
    double compute;                     // seconds
    bool saved;                         // rank 0: the save under way has ended
    double norm;                        // of the gradient, or the largest of its replicas'
};

struct StepStats {
    int64_t step;                       // the number of the step, from 0
    double lr, norm;                    // norm: of the mean gradient, or the largest of replicas', before clipping
    double loss = 0;                    // nats per token, before the update
    double seconds = 0;                 // of this rank
    bool skipped = false;               // the gradient was not finite
    uint32_t requests = 0;              // of all ranks
    StepTimes times = {};
    std::vector<RankReport> ranks = {};
    std::vector<std::pair<const char*, double>> measures = {};      // the model's own numbers, by name
};

// Adds what the ranks report to the stats: requests; the largest norm, and whether it is finite.
void join_reports(StepStats* stats, const std::vector<RankReport>& ranks);

// What a report names beside the steps.
struct RunFacts {
    const Options* options;
    const Comm* comm;
    const Run* run;
    const Data* data;
    const ModelInfo* info;
    std::string device, transport;      // "cpu avx2, 2 threads", "shared memory"
    double peak_flops;                  // per second, of all ranks; NaN: not known
};
struct Reporter;                        // report.h
std::shared_ptr<Reporter> reporter_create(const RunFacts& facts);

// Calls empty_run, opens the log, prints the header and writes config.json.
void report_begin(Reporter* r, const RunProgress& at);
void report_step(Reporter* r, const StepStats& stats);
void report_warning(Reporter* r, int64_t step, const std::string& message);
void report_score(Reporter* r, int64_t step, double loss, double bpb, bool best);
void report_task(Reporter* r, int64_t step, const TaskScore& score);
using Print = std::function<void(const std::string&)>;
// Prints what generate() passes on as it comes, unless a stop is requested; generate() returns all of it.
void report_sample(Reporter* r, int64_t step, const std::function<std::string(const Print&)>& generate);
// Prints the last lines, writes the "done" event. Their time covers all attempts of a supervised job.
void report_end(Reporter* r, int64_t step, int code, const std::string& why);
void report_failure(Reporter* r, int64_t step);         // in a catch: report_end with its code and text; r may be null
// After a set_up that starts no step: says so, unless it was --dry-run; sets `latest` and `best` of a finished run, or
// removes the new folder. Returns the exit code.
int report_nothing_to_do(const Options& options, const Run& run, const RunProgress& at);

// ---- when it saves, what state.json contains, what follows a failed save: checkpoints.cpp

struct Checkpoints;
// files: all but state.json. copy: a save copies the arrays, because training changes them while it is written.
// kExitWrite if the disk has no room.
Checkpoints* checkpoints_create(Comm* comm, Reporter* report, const CheckpointFiles& files, bool copy,
                                const std::string& device_kind);
void checkpoints_destroy(Checkpoints* c);       // waits for the save under way; does nothing for null
bool checkpoints_saved(const Checkpoints* c);   // rank 0: whether a save has ended whose result was not taken yet

// Takes the result of a save that has ended. Returns whether to save after this step: --save-every says so, or it is
// the last or the best so far, or a request asks for it. Collective.
bool checkpoints_due(Checkpoints* c, const RunProgress& at, const StepStats& stats, bool stop);
// Waits for the save under way. last: repeats a failed save for --save-patience seconds, then throws kExitWrite.
// Collective.
void checkpoints_finish(Checkpoints* c, int64_t step, bool last);
// Starts a save of the arrays as they are now; none may be under way. Collective.
void checkpoints_start(Checkpoints* c, const RunProgress& at);

// Rank 0 reads the state.json to resume from. kExitUsage if the data have changed, kExitBadContent for bad content.
// Adds differences that may change bits to options->changed. Collective.
RunProgress read_progress(const std::string& checkpoint, Comm* comm, Options* options, const Data& data,
                       const std::string& device_kind);
