// runner.h -- runs a step's work, launch by launch or as a CUDA graph, waits for its results, writes the timeline.
#pragma once
#include <cstdio>
#include <functional>
#include <string>
#include "src/ddp/ddp.h"
#include "src/run/report.h"

namespace BACKEND {

struct Runner {
    Comm* comm = nullptr;
    Ddp* ddp = nullptr;
    bool use_graph = false;             // steps are replayed as graphs
    Event begin = nullptr, results = nullptr;   // this step starts; its results are on the host
    Graph graphs[2] = {};               // of even and odd steps, which have different StepStates
    int64_t runs = 0;                   // steps run with use_graph
    FILE* trace = nullptr;              // --trace; null: none
    double began = 0;                   // this step's start, by now_seconds()
};

// trace: path of the timeline, with ".rankN" behind it for rank N > 0; "": none. A traced step is launched kernel by
// kernel. Throws kExitWrite.
void runner_create(Runner* runner, Comm* comm, Ddp* ddp, bool use_graph, const std::string& trace);
void runner_destroy(Runner* runner);

// Calls enqueue, which puts work on the main stream and on ddp->stream and records runner->results. The first step runs
// launch by launch, because it allocates work space and opens connections. A graph is captured again when the kernels'
// work space has moved.
void runner_run(Runner* runner, int64_t step, const std::function<void()>& enqueue);
// Waits for the results, and tells the watchdog that this rank is blocked by its GPU, not stuck.
void runner_wait(Runner* runner, int64_t step);
StepTimes runner_times(Runner* runner, int64_t step);       // after runner_wait; adds the step to the timeline

}  // namespace BACKEND
