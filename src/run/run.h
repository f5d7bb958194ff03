// run.h -- a run: its folder and locks, the comparison of ranks, requests by signal, rank 0's
// reports, saves.
#pragma once
#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>
#include "src/base/json.h"
#include "src/comm/comm.h"
#include "src/data/data.h"
#include "src/options/options.h"

struct CheckpointFiles;                 // src/checkpoint/checkpoint.h
struct FolderLock;                      // src/base/file.h

// ---- the folder: run.cpp

struct Run {
    std::string out_dir;
    std::string checkpoint;             // the folder to resume from; empty: a fresh start
    bool created = false;               // this process made the folder
    // Rank 0's locks of the folder and of ckpt/ in it, which may be a link to another disk.
    std::shared_ptr<FolderLock> lock = nullptr, ckpt_lock = nullptr;
    bool resumed() const { return !checkpoint.empty(); }
    std::string folder() const;         // for rank 0 to open files with: right after a move, too
};
// Rank 0 finds the run that --resume means and locks it. All ranks merge its saved options into
// theirs. Collective.
Run find_run(Options* options, Comm* comm);
// Rank 0 makes the run's folder and locks it. Call it after resolve_options. model: the folder with
// the weights of --init, which may itself name another folder, such as a run's. Throws kExitUsage,
// kExitWrite. Collective.
void claim_run(Run* run, Options* options, const std::string& model, Comm* comm);
// Removes the folder if this start made it and left it empty.
void unclaim_run(const Run& run);
// Makes ckpt/ in the run's folder and locks it. kExitWrite: another run has locked it, or its disk
// is missing.
void claim_checkpoints(const Run& run);
// Points the link runs/last to a folder in runs/; ignores failures.
void name_last(const std::string& folder);

// Returns the real path of the run folder that `path` means: `path` itself, or the run whose
// checkpoint it is. Returns "" if neither.
std::string run_of(const std::string& path);

// Checks that all ranks have the same named values. kExitDisagree names the first difference and
// its rank. Collective.
void check_agreement(Comm* comm, const Fields& fields);
// Returns the program, the options and the kind of device.
Fields option_fields(const Options& options, const std::string& device_kind);
// Returns names and shapes of the trained tensors, and hashes of the data.
Fields data_fields(const Arena& arena, const Data& data);
// kExitUsage if the ranks do not divide the replicas.
void check_ranks(const Options& options, int ranks);

// Requests by signal; bit n is signal n. INT, TERM, USR1, XCPU (and HUP, unless ignored) mean
// "save and stop". USR2 means "save and go on". The trainer or-s the requests of all ranks once per
// step, so that all act at the same step. Another one to stop but XCPU, at least 1 s after the
// first, ends the process at once. say: print on stderr what a request does.
void catch_signals(bool say);
constexpr uint32_t kSaveRequest = 1u << SIGUSR2;
// Returns all requests, and clears the one to save.
uint32_t pending_requests();
uint32_t stop_requested();                              // the pending requests to stop
inline uint32_t stop_requests(uint32_t requests) { return requests & ~kSaveRequest; }
// Returns "SIGTERM" or "SIGINT and SIGTERM"; "": none asks to stop.
std::string stop_reason(uint32_t requests);

// ---- rank 0's log, the console and OUT/metrics.jsonl: log.cpp
//
// Users and programs read both. metrics.jsonl only grows, and each line is written at once. A
// "resume" event at step n makes these lines above it invalid: all events of steps after n, and the
// "train" and "warn" events of step n. A failed write does not end a run: lines wait in memory (up
// to 4 MiB), and console output that nobody reads is lost.

// Returns the seconds since 1970, as the events' "time" has them.
double unix_seconds();

struct Log {
    // Opens OUT/metrics.jsonl, which it empties unless `resumed`. On a resume it cuts off an
    // incomplete last line, and appends. Throws kExitWrite. out_dir "": the log writes on the
    // console only.
    Log(const std::string& out_dir, bool resumed);
    ~Log();
    Log(const Log&) = delete;
    // Prints a line on the console.
    void text(const char* format, ...) __attribute__((format(printf, 2, 3)));
    void piece(const std::string& text);        // prints a part of a line
    // Adds "time" to the line and writes it; its first key is "event".
    void event(const JsonLine& line);
    // Calls fdatasync on metrics.jsonl. Any thread may call it.
    void sync();

  private:
    void add(const std::string& line);
    int fd = -1;                                // metrics.jsonl; -1: none
    std::string path, pending;                  // pending: lines that could not be written yet
    int file_error = 0, console_error = 0;      // errno of the last write
};

// ---- what rank 0 writes into its log: report.cpp. On other ranks these functions do nothing.

// A run's progress, which a checkpoint's state.json contains.
struct RunProgress {
    int64_t step = 0;                   // steps done
    int bad_steps = 0;                  // consecutive steps without a finite gradient, up to now
    double best_val = 1e300;            // lowest validation loss, nats per token
    int64_t best_step = -1;             // steps done when best_val was found; -1: no score yet
    bool unscored = false;              // the log has no score of a resumed step
    std::vector<double> sums = {};      // what the optimizer's prepare() keeps from step to step
};

// A rank's seconds, and its GPU's sensors. exposed: the part of comm without compute beside it.
struct StepTimes {
    double compute, comm, exposed;
    Sensors sensors = {};
};

// What a rank tells the others once per step.
struct RankReport {
    uint32_t requests;                  // by signal: bit n is signal n
    StepTimes times;
    bool saved;                         // rank 0 only: the save under way has ended
};

struct StepStats {
    int64_t step;                       // the number of the step, from 0
    double lr, norm;                    // norm: of the mean gradient, before clipping
    double loss = 0;                    // nats per token, before the update
    double seconds = 0;                 // of this rank
    bool skipped = false;               // the gradient was not finite
    uint32_t requests = 0;              // of all ranks
    StepTimes times = {};
    std::vector<RankReport> ranks = {};
    // Names and means of ModelInfo::measures.
    std::vector<std::pair<const char*, double>> measures = {};
    JsonLine measured = {};             // of --measure
};

// Combines the ranks' reports in *stats: all requests, the largest norm, and `skipped` if it is not
// finite.
void join_reports(StepStats* stats, const std::vector<RankReport>& ranks);

// Returns the lines that a run's header and --dry-run share: model, what it trains, data, batch,
// learning rate.
std::string describe_run(const Options& options, const Data& data, int ranks);
// Returns a warning if the run makes more than 40 passes over a source of its training data; else "".
std::string many_epochs(const Options& options, const Data& data);
// Prints and logs a run. The first members are what it needs to know about the run.
struct Reporter {
    const Options* options = nullptr;
    const Comm* comm = nullptr;
    const Run* run = nullptr;
    const Data* data = nullptr;
    const ModelInfo* info = nullptr;
    std::string device = {}, transport = {};    // "cpu avx2, 2 threads", "shared memory"
    double peak_flops = 0;              // of all ranks' devices, per second; NaN: unknown
    std::unique_ptr<Log> log = nullptr; // on rank 0, after report_begin; else null
    std::string config = {};            // the text of OUT/config.json
    // now_seconds() at report_begin, and at the last console line about a step.
    double began = 0, printed = 0;
    // Seconds of steps and of evaluations, for the time that is left.
    double spent = 0;
    // Mean and variance of about the last 16 losses, and the mean above which the loss rises.
    double mean_loss = 0, loss_variance = 0, loss_limit = 1e300;
    int64_t steps_here = 0;             // steps that this process has run
};

// kExitWrite: the run's folder was deleted, or another run has locked it.
void report_place(const Reporter* r);
void report_saved(Reporter* r, int64_t step, const std::string& folder, double stall_seconds,
                  double write_seconds);
// Opens the log, prints the header and writes config.json. With --force it removes an old run's
// files before, and on a resume it calls go_on_from.
void report_begin(Reporter* r, const RunProgress& at);
void report_step(Reporter* r, const StepStats& stats);
void report_warning(Reporter* r, int64_t step, const std::string& message);     // "": no warning
// losses: of all, and behind it, if there are several, of each source of the validation data.
void report_score(Reporter* r, int64_t step, const std::vector<double>& losses, double bpb,
                  bool best, double seconds);
using Print = std::function<void(const std::string&)>;
// Prints and logs a sample, unless a stop is requested. generate() passes on the text piece by
// piece, and returns it.
void report_sample(Reporter* r, int64_t step,
                   const std::function<std::string(const Print&)>& generate);
// Prints the last lines and writes the "done" event. Their times count from the start of a
// supervised job.
void report_end(Reporter* r, int64_t step, int code, const std::string& why);
// Calls report_end with the error of the catch block that it is called in.
void report_failure(Reporter* r, int64_t step);
// For a run that has no step to do: says so. Sets `best` of a finished run, or removes the new
// folder. Returns the exit code.
int report_nothing_to_do(const Options& options, const Run& run, const RunProgress& at);

// ---- when a run saves, what state.json contains, what follows a failed save: checkpoints.cpp

struct Checkpoints;
// files: what a save writes, but for state.json. copy: each save copies the arrays first, because
// training changes them during the save. kExitWrite if a new run's disk has too little space.
Checkpoints* checkpoints_create(Comm* comm, Reporter* report, const CheckpointFiles& files,
                                bool copy, const std::string& device_kind);
// Waits for the save under way; does nothing for null.
void checkpoints_destroy(Checkpoints* c);
// Returns on rank 0 whether a save has ended whose result was not taken yet.
bool checkpoints_saved(const Checkpoints* c);

// Returns whether to save after this step: a request asks for it, or with --save-every N the step
// is a multiple of N or of --keep-every, or the last one. Before that it reports a save that has
// ended. Collective.
bool checkpoints_due(Checkpoints* c, const RunProgress& at, const StepStats& stats, bool stop);
// The step, whose save is under way or done, is the best so far: `best` names it when it is saved.
void checkpoints_best(Checkpoints* c, int64_t step);
// Waits for the save under way. A failed save is a warning, but the third in a row throws
// kExitWrite. last: repeats a failed save for --save-patience seconds, and then throws kExitWrite.
// Collective.
void checkpoints_finish(Checkpoints* c, int64_t step, bool last);
// Starts a save of the arrays as they are now; none may be under way. Collective.
void checkpoints_start(Checkpoints* c, const RunProgress& at);

// Rank 0 reads the checkpoint's state.json, and from the log the score that the step got after its
// save; all ranks get the progress. kExitUsage if the data have changed, kExitBadContent for bad
// content. Adds differences that may change bits to options->changed. Collective.
RunProgress read_progress(const Run& run, Comm* comm, Options* options, const Data& data,
                          const std::string& device_kind);
