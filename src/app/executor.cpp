// executor.cpp -- runs a step's work, directly or as a CUDA graph (app.h).
#include <unistd.h>
#include "src/app/app.h"

namespace BACKEND {

void executor_create(Executor* e, Comm* comm, Ddp* ddp, bool use_graph) {
    *e = {.comm = comm,
          .ddp = ddp,
          .use_graph = use_graph,
          .begin = event_create(),
          .results_copied = event_create()};
}

void executor_destroy(Executor* e) {
    if constexpr (kOnGpu)
        for (const Graph graph : e->graphs) graph_destroy(graph);
    event_destroy(e->begin);
    event_destroy(e->results_copied);
}

// Launches the step as a graph. Captures it first if there is none yet or if the work space has
// moved. Returns false, after a warning, if the step cannot be captured.
[[maybe_unused]] static bool replay(Executor* e, Graph* graph,
                                    const std::function<void()>& enqueue) {
    if (*graph && graph_launch(*graph)) return true;
    std::string why;
    // Not every GPU supports programmatic dependent launch in a graph.
    for (const bool dependent : {true, false}) {
        graph_destroy(*graph);
        ddp_rewind(e->ddp);
        *graph = graph_capture(enqueue, e->ddp->stream, dependent, &why);
        if (*graph && graph_launch(*graph)) return true;
    }
    warn("the step is no CUDA graph, its kernels are launched one by one: %s", why.c_str());
    return false;
}

void execute_step(Executor* e, int64_t step, const std::function<void()>& enqueue) {
    comm_progress(e->comm, step, "forward and backward");
    fault_point("fwd", e->comm->rank, step);
    event_record(e->begin, kMain);
    if constexpr (kOnGpu) {
        // An audited step also copies gradients to the host.
        const bool audited = e->ddp->audited;
        if (e->use_graph && !audited && e->runs > 0)
            e->use_graph = replay(e, &e->graphs[step % 2], enqueue);
        // The first step only increments runs. Next is the all-gather on ddp->stream, which has to
        // wait for the graph.
        if (e->use_graph && !audited && e->runs++ > 0) return stream_wait(e->ddp->stream, kMain);
    }
    ddp_rewind(e->ddp);
    enqueue();
}

static void wait_on_gpu(Executor* e, Event event, int64_t step, const char* phase) {
    comm_waiting(e->comm, true);
    for (int tries = 0; !event_done(event); tries++) {
        if (tries > 200) usleep(100);
        if (tries % 1000 == 0) transport_check(e->ddp);
    }
    comm_waiting(e->comm, false);
    comm_progress(e->comm, step, phase);
}

// A step may take longer than --timeout, but a micro-batch should not: each micro-batch that ends
// counts as progress.
void executor_wait(Executor* e, int64_t step) {
    e->sensors = device_sensors();
    if (kOnGpu && e->comm->size > 1) {
        for (const Event done : e->ddp->batch_done)
            wait_on_gpu(e, done, step, "forward and backward");
        wait_on_gpu(e, e->results_copied, step, "reduction");
    }
    event_sync(e->results_copied);
    comm_progress(e->comm, step, "update");
}

std::vector<std::pair<const char*, double>> mean_measures(const ModelInfo& info,
                                                          const std::vector<PassResult>& results) {
    std::vector<std::pair<const char*, double>> means;
    for (const Measure& measure : info.measures) {
        double sum = 0;
        for (const PassResult& r : results) sum += r.measures[means.size()];
        means.push_back({measure.name, plain(sum / double(results.size()))});
    }
    return means;
}

StepTimes executor_times(Executor* e) {
    const DdpTimes times = ddp_times(e->ddp);
    return {event_seconds(e->begin, e->ddp->now.computed), times.comm, times.exposed,
            e->sensors};
}

}  // namespace BACKEND
