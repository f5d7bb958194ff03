// report.h -- what rank 0 writes about a run on the console and in metrics.jsonl: header, steps, scores, samples, the
// end. On other ranks a Reporter has no log, and every function does nothing.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>
#include "src/base/tools.h"
#include "src/run/log.h"
#include "src/run/run.h"

// A run's progress, as a checkpoint's state.json has it; step: steps done.
struct Progress {
    int64_t step = 0;
    int bad_steps = 0;                  // in a row, without a finite gradient
    double best_val = 1e300;            // nats per token
    int64_t best_step = -1;             // steps done when it was found; -1: never
};

struct StepTimes { double compute, comm, exposed; };        // seconds of this rank; exposed: not hidden by computation

// What a rank tells the others once per step.
struct RankReport {
    uint32_t requests;                  // by signal: bit n is signal n
    double compute;                     // seconds
    bool saved;                         // rank 0: the save under way has ended
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
};

struct Reporter {
    const Options* options;
    const Comm* comm;
    const Run* run;
    const Data* data;
    const ModelInfo* info;
    std::string device, transport;      // "cpu avx2, 2 threads", "shared memory"
    double peak_flops;                  // per second, of all ranks; NaN: not known
    std::unique_ptr<Log> log = nullptr;     // rank 0 of a run that trains
    std::unique_ptr<Follower> tensorboard = nullptr;        // of --tensorboard
    std::string config = {};            // the text of OUT/config.json
    double began = 0, printed = 0;      // by now_seconds(): this process's first step, the last line about a step
    int64_t steps_here = 0;             // steps that this process has run
    LossPoints first_losses = {};
    bool spiked = false;                // a loss_spike was reported: there is one report per run
};

// Describes a lasting rise of the loss; "" if there is none. The loss has risen when the median of three steps is 0.5
// nats above the lowest such median before it, and one of these holds: the median is also 0.5 nats above `guess`, the
// loss of guessing; or the rise is more than a quarter of the fall since the first step, and more than three times the
// 90th percentile of the changes from step to step.
std::string loss_spike(LossPoints losses, double guess);

// Calls empty_run, opens the log, prints the header and writes config.json.
void report_begin(Reporter* r, const Progress& at);
// Finds the run's folder again if it was moved, and says so. kExitWrite: it was deleted, or another run has it.
void report_place(Reporter* r, int64_t step);
void report_step(Reporter* r, const StepStats& stats);
void report_warning(Reporter* r, int64_t step, const std::string& message);
void report_score(Reporter* r, int64_t step, double loss, double bpb, bool best);
// score: as JSON; text: as a line.
void report_task(Reporter* r, int64_t step, const JsonLine& score, const std::string& text);
// Prints what generate() passes on as it comes, unless a stop is requested; generate() returns all of it.
using Print = std::function<void(const std::string&)>;
void report_sample(Reporter* r, int64_t step, const std::function<std::string(const Print&)>& generate);
void report_saved(Reporter* r, int64_t step, const std::string& folder, double stall_seconds, double write_seconds);
// Prints the last lines, writes the "done" event. Their time covers all attempts of a supervised job.
void report_end(Reporter* r, int64_t step, int code, const std::string& why);
void report_failure(Reporter* r, int64_t step);         // in a catch: report_end with the exception's code and text
// Says that no step is left to do, and returns the exit code.
int report_nothing_to_do(const Options& options, const Run& run, const Progress& at);
