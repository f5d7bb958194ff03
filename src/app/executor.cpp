// executor.cpp -- runs a step's work, directly or as a CUDA graph, and writes its timeline (app.h).
#include <unistd.h>
#include "src/app/app.h"
#include "src/base/json.h"

namespace BACKEND {

void executor_create(Executor* e, Comm* comm, Ddp* ddp, bool use_graph, const std::string& trace) {
    // An injected fault (fault_point in src/base/common.h) is code on the host, which a graph would not run.
    *e = {.comm = comm, .ddp = ddp, .use_graph = use_graph && trace.empty() && !faults_are_on(),
          .begin = event_create(), .results = event_create()};
    if (trace.empty()) return;
    const std::string path = comm->rank == 0 ? trace : format("%s.rank%d", trace.c_str(), comm->rank);
    e->trace = std::fopen(path.c_str(), "w");
    if (!e->trace) die(kExitWrite, "--trace: %s: %m; give a file in a folder that exists", path.c_str());
    std::fprintf(e->trace, R"([%s{"name":"process_name","ph":"M","pid":%d,"args":{"name":"rank %d"}})", "\n",
                 comm->rank, comm->rank);
}

void executor_destroy(Executor* e) {
    if constexpr (kOnGpu)
        for (const Graph graph : e->graphs) graph_destroy(graph);
    event_destroy(e->begin);
    event_destroy(e->results);
    if (e->trace) {
        std::fputs("\n]\n", e->trace);
        std::fclose(e->trace);
    }
}

// Launches the step as a graph. Captures it first if there is none yet or if the work space has moved. Returns false,
// after a warning, if the step cannot be captured.
[[maybe_unused]] static bool replay(Executor* e, Graph* graph, const std::function<void()>& enqueue) {
    if (*graph && graph_launch(*graph)) return true;
    std::string why;
    for (const bool dependent : {true, false}) {    // not every GPU supports programmatic dependent launch in a graph
        graph_destroy(*graph);
        ddp_rewind(e->ddp);
        *graph = graph_capture(enqueue, e->ddp->stream, dependent, &why);
        if (*graph && graph_launch(*graph)) return true;
    }
    warn("the step is no CUDA graph, its kernels are launched one by one: %s", why.c_str());
    return false;
}

void execute_step(Executor* e, int64_t step, const std::function<void()>& enqueue) {
    fault_point("fwd", e->comm->rank, step);
    comm_progress(e->comm, step, "forward and backward");
    e->began = now_seconds();
    event_record(e->begin, nullptr);
    if constexpr (kOnGpu) {
        const bool audited = !e->ddp->kept.empty();         // an audited step also copies gradients; its graph does not
        if (e->use_graph && !audited && e->runs > 0) e->use_graph = replay(e, &e->graphs[step % 2], enqueue);
        // The first step only increments runs. Next is the all-gather on ddp->stream, which has to wait for the graph.
        if (e->use_graph && !audited && e->runs++ > 0) return stream_wait(e->ddp->stream, nullptr);
    }
    ddp_rewind(e->ddp);
    enqueue();
}

static void wait_on_gpu(Executor* e, Event event, int64_t step, const char* phase) {
    comm_waiting(e->comm, true);
    for (int tries = 0; !event_done(event); tries++) {
        if (tries > 200) usleep(100);
        if (tries % 1000 == 0) transport_check(&e->ddp->transport);
    }
    comm_waiting(e->comm, false);
    comm_progress(e->comm, step, phase);
}

// A step may take longer than --timeout, but a micro-batch should not: each micro-batch that ends counts as progress.
void executor_wait(Executor* e, int64_t step) {
    if (kOnGpu && e->comm->size > 1) {
        for (const Event done : e->ddp->batch_done) wait_on_gpu(e, done, step, "forward and backward");
        wait_on_gpu(e, e->results, step, "reduction");
    }
    event_sync(e->results);
    comm_progress(e->comm, step, "update");
}

// Writes a span (ph "X", times in microseconds) for chrome://tracing or ui.perfetto.dev ("Trace Event Format", Google,
// 2016). left: how many multiprocessors of the GPU matrix products leave free, or how many NCCL may use.
static void span(const Executor* e, const char* track, const std::string& name, double begin, double seconds,
                 int left) {
    JsonLine line;
    line.add("name", name).add("ph", "X").add("pid", e->comm->rank).add("tid", track)
        .add("ts", (e->began + begin) * 1e6).add("dur", seconds * 1e6)
        .raw("args", JsonLine().add("multiprocessors_for_communication", left).text());
    std::fprintf(e->trace, ",\n%s", line.text().c_str());
}

static void write_trace(const Executor* e, int64_t step) {
    const Ddp::Events& events = e->ddp->marks[0];
    double at = 0;
    for (size_t i = 0; i < e->ddp->batch_done.size(); i++) {
        const double end = event_seconds(e->begin, e->ddp->batch_done[i]);
        span(e, "compute", format("micro-batch %zu", i), at, end - at, ddp_spare_multiprocessors(e->ddp, int(i)));
        at = end;
    }
    for (size_t b = 0; b < events.begin.size() && e->ddp->meets; b++)
        span(e, "communication", format("bucket %zu", b), event_seconds(e->begin, events.begin[b]),
             event_seconds(events.begin[b], events.end[b]), e->ddp->transport.multiprocessors);
    span(e, "host", format("step %lld", (long long)step), 0, now_seconds() - e->began, 0);
    if (std::fflush(e->trace) != 0) die(kExitWrite, "--trace: %m; make room, or leave --trace out");
}

StepTimes executor_times(Executor* e, int64_t step) {
    if (e->trace) write_trace(e, step);
    const DdpTimes times = ddp_times(e->ddp);
    return {event_seconds(e->begin, e->ddp->marks[0].computed), times.comm, times.exposed};
}

}  // namespace BACKEND
