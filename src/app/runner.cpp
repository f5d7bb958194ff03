// runner.cpp -- runs a step's work, and writes its timeline (app.h).
#include <unistd.h>
#include "src/app/app.h"
#include "src/base/json.h"

namespace BACKEND {

void runner_create(Runner* r, Comm* comm, Ddp* ddp, bool use_graph, const std::string& trace) {
    // An injected fault (src/base/common.h) is work of the host, which a graph would leave out.
    *r = {.comm = comm, .ddp = ddp, .use_graph = use_graph && trace.empty() && !faults_are_on(),
          .begin = event_create(), .results = event_create()};
    if (trace.empty()) return;
    const std::string path = comm->rank == 0 ? trace : format("%s.rank%d", trace.c_str(), comm->rank);
    r->trace = std::fopen(path.c_str(), "w");
    if (!r->trace) die(kExitWrite, "--trace: %s: %m; give a file in a folder that exists", path.c_str());
    std::fprintf(r->trace, R"([%s{"name":"process_name","ph":"M","pid":%d,"args":{"name":"rank %d"}})", "\n",
                 comm->rank, comm->rank);
}

void runner_destroy(Runner* r) {
    if constexpr (kOnGpu)
        for (const Graph graph : r->graphs) graph_destroy(graph);
    event_destroy(r->begin);
    event_destroy(r->results);
    if (r->trace) {
        std::fputs("\n]\n", r->trace);
        std::fclose(r->trace);
    }
}

// Launches the step as a graph, which is captured again if the work space has moved. Returns false if the step cannot
// be captured.
[[maybe_unused]] static bool replay(Runner* r, Graph* graph, const std::function<void()>& enqueue) {
    if (*graph && graph_launch(*graph)) return true;
    std::string why;
    for (const bool dependent : {true, false}) {    // not every GPU takes dependent launches in a graph
        graph_destroy(*graph);
        ddp_rewind(r->ddp);
        *graph = graph_capture(enqueue, r->ddp->stream, dependent, &why);
        if (*graph && graph_launch(*graph)) return true;
    }
    warn("the step is no CUDA graph, its kernels are launched one by one: %s", why.c_str());
    return false;
}

void runner_run(Runner* r, int64_t step, const std::function<void()>& enqueue) {
    fault_point("fwd", r->comm->rank, step);
    comm_progress(r->comm, step, "forward and backward");
    r->began = now_seconds();
    event_record(r->begin, nullptr);
    if constexpr (kOnGpu) {
        if (r->use_graph && r->runs > 0) r->use_graph = replay(r, &r->graphs[step % 2], enqueue);
        // The first step is only counted. The all-gather comes next on ddp->stream and has to wait for the graph.
        if (r->use_graph && r->runs++ > 0) return stream_wait(r->ddp->stream, nullptr);
    }
    ddp_rewind(r->ddp);
    enqueue();
}

static void wait_on_gpu(Runner* r, Event event, int64_t step, const char* phase) {
    comm_waiting(r->comm, true);
    for (int tries = 0; !event_done(event); tries++) {
        if (tries > 200) usleep(100);
        if (tries % 1000 == 0) transport_check(&r->ddp->transport);
    }
    comm_waiting(r->comm, false);
    comm_progress(r->comm, step, phase);
}

// A step may take longer than --timeout, a micro-batch should not: each one that ends counts as progress.
void runner_wait(Runner* r, int64_t step) {
    if (kOnGpu && r->comm->size > 1) {
        for (const Event done : r->ddp->batch_done) wait_on_gpu(r, done, step, "forward and backward");
        wait_on_gpu(r, r->results, step, "reduction");
    }
    event_sync(r->results);
    comm_progress(r->comm, step, "update");
}

// Adds a complete event in microseconds, for chrome://tracing or ui.perfetto.dev ("Trace Event Format", Google, 2016).
// left: a GPU's multiprocessors that products leave free, or that NCCL may take.
static void span(const Runner* r, const char* track, const std::string& name, double begin, double seconds, int left) {
    JsonLine line;
    line.add("name", name).add("ph", "X").add("pid", r->comm->rank).add("tid", track)
        .add("ts", (r->began + begin) * 1e6).add("dur", seconds * 1e6)
        .raw("args", JsonLine().add("multiprocessors_for_communication", left).text());
    std::fprintf(r->trace, ",\n%s", line.text().c_str());
}

static void write_trace(const Runner* r, int64_t step) {
    const Ddp::Events& events = r->ddp->marks[0];
    double at = 0;
    for (size_t i = 0; i < r->ddp->batch_done.size(); i++) {
        const double end = event_seconds(r->begin, r->ddp->batch_done[i]);
        span(r, "compute", format("micro-batch %zu", i), at, end - at, ddp_spare_multiprocessors(r->ddp, int(i)));
        at = end;
    }
    for (size_t b = 0; b < events.begin.size(); b++)
        span(r, "communication", format("bucket %zu", b), event_seconds(r->begin, events.begin[b]),
             event_seconds(events.begin[b], events.end[b]), r->ddp->transport.multiprocessors);
    span(r, "host", format("step %lld", (long long)step), 0, now_seconds() - r->began, 0);
    if (std::fflush(r->trace) != 0) die(kExitWrite, "--trace: %m; make room, or leave --trace out");
}

StepTimes runner_times(Runner* r, int64_t step) {
    if (r->trace) write_trace(r, step);
    const DdpTimes times = ddp_times(r->ddp);
    return {event_seconds(r->begin, r->ddp->marks[0].computed), times.comm, times.exposed};
}

}  // namespace BACKEND
