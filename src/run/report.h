// report.h -- what the files of src/run share: the state of a run's reports, and what the reports and saves do with its
// folder.
#pragma once
#include <memory>
#include "src/base/tools.h"
#include "src/run/log.h"
#include "src/run/run.h"

struct Reporter : RunFacts {
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

// Finds the run's folder again if it was moved, and says so. kExitWrite: it was deleted, or another run has it.
void report_place(Reporter* r, int64_t step);
void report_saved(Reporter* r, int64_t step, const std::string& folder, double stall_seconds, double write_seconds);

// Makes and locks ckpt/ in the run's folder, for this process. kExitWrite: another run uses it, or its disk is missing.
void claim_checkpoints(const Run& run);
void empty_run(const Run& run);         // --force: removes the old run, once nothing more can be refused
std::vector<std::string> event_files(const std::string& folder);    // for TensorBoard; their paths, sorted
void name_last(const std::string& folder);      // links runs/last to a folder in runs/; failures are ignored
