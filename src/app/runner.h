// runner.h -- runs the work of a step, launch by launch or on a GPU as a CUDA graph, waits for its results under the
// watchdog, and writes the timeline of --trace.
#pragma once
#include <cstdio>
#include <string>
#include "src/app/report.h"
#include "src/ddp/ddp.h"

namespace BACKEND {

struct Runner {
    Comm* comm;
    Ddp* ddp;
    bool use_graph;                     // a GPU replays its steps
    Graph graphs[2];                    // of a step; steps take turns with two sets of buffers
    int64_t runs;
    FILE* trace;                        // --trace; null: none
    double began;                       // the step under way, by now_seconds()
    Event begin, results;               // of the step under way: it begins; its losses and norm are on the host
};

// trace: path of the timeline, with ".rankN" behind it for rank N > 0; "": none. A traced step is launched kernel by
// kernel. Error 74.
void runner_create(Runner* runner, Comm* comm, Ddp* ddp, bool use_graph, const std::string& trace);
void runner_destroy(Runner* runner);

// Enqueues work(argument), which puts work on the main stream and on ddp->stream and records runner->results. The first
// step runs launch by launch, since it makes room and connections; a graph is captured again when the kernels' work
// space has moved.
void runner_run(Runner* runner, int64_t step, void (*work)(void*), void* argument);
// Waits for the results, and tells the watchdog that this rank is blocked by its GPU, not stuck.
void runner_wait(Runner* runner, int64_t step);
StepTimes runner_times(Runner* runner, int64_t step);       // after runner_wait; adds the step to the timeline

}  // namespace BACKEND
