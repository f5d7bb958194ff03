// report.h -- the state of a run's reports.
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
