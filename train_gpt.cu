// train_gpt.cu -- the story: data, model, then a loop of {forward, backward, reduce, update}, and now and then evaluate, sample, save.
//
// Compiled once per backend (namespace BACKEND); main.cpp calls train of the one it chose. Every rank runs this same code;
// rank 0 also writes. Keep models/gpt.h (the tensors) and kernels/kernels.h (the operations) open beside it.
#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <ctime>
#include <memory>
#include <numeric>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>
#include "checkpoint.h"
#include "choose.h"
#include "common.h"
#include "cpus.h"
#include "data.h"
#include "ddp.h"
#include "dry_run.h"
#include "fault.h"
#include "gpt.h"
#include "inference.h"
#include "launch.h"
#include "log.h"
#include "run.h"
#include "saver.h"
#include "schedule.h"
#include "stories.h"
#include "trace.h"

namespace BACKEND {

int train(Options options, Comm* comm, Run run);

// ------------------------------------------------------------------------------------------------ model and weights

static GptConfig config_of(const Options& o, int vocab_size) {
    return {o.layers, o.heads, o.channels, o.seq_len, vocab_size, int(round_up(vocab_size, 16)), float(o.dropout)};
}

// --init DIR: shape and tokenizer come from the folder; options that were given and say otherwise are refused, but a shorter context may
// be asked for.
struct InitFrom { std::string folder, tokenizer; HfConfig config; };

static InitFrom init_of(const std::string& folder) {
    InitFrom init = {folder, path_join(folder, "tokenizer.json"), read_hf_config(folder)};
    if (!file_exists(init.tokenizer)) init.tokenizer.clear();
    return init;
}

// Of the run that goes on: as rank 0 reads it, for its folder may be on rank 0's host alone.
static InitFrom init_of_run(const std::string& folder, Comm* comm) {
    const InitFrom mine = comm->rank == 0 ? init_of(folder) : InitFrom();
    std::string text = mine.tokenizer.empty() ? "" : read_file(mine.tokenizer);
    struct { HfConfig config; size_t bytes; } head = {mine.config, text.size()};
    comm_broadcast(comm, &head, sizeof head, 0);
    text.resize(head.bytes);
    comm_broadcast(comm, text.data(), text.size(), 0);
    if (comm->rank == 0 || text.empty()) return {folder, mine.tokenizer, head.config};
    const int file = memfd_create("tokenizer.json", MFD_CLOEXEC);           // a tokenizer is loaded from a path
    if (file < 0 || write(file, text.data(), text.size()) != ssize_t(text.size())) die(kExitOther, "tokenizer.json: no memory for a copy of %zu bytes", text.size());
    return {folder, format("/proc/self/fd/%d", file), head.config};
}

static InitFrom read_init(Options* o) {
    if (o->init.empty()) return {};
    const InitFrom init = init_of(resolve_model_folder(o->init));
    const HfConfig& hf = init.config;
    const struct { const char* name; int* value; int file; } shape[] = {
        {"layers", &o->layers, hf.layers}, {"heads", &o->heads, hf.heads}, {"channels", &o->channels, hf.channels},
        {"seq-len", &o->seq_len, o->is_given("seq-len") ? std::min(o->seq_len, hf.seq_len) : hf.seq_len}, {"vocab-size", &o->vocab_size, hf.vocab_size}};
    for (const auto& s : shape) {
        if (o->is_given(s.name) && *s.value != s.file) die(kExitUsage, "--%s: got %d, want %d as in --init %s; leave it out", s.name, *s.value, s.file, o->init.c_str());
        *s.value = s.file;
    }
    return init;
}

// Rank 0 fills the fp32 weights (and moments, when a run goes on); the others get them by broadcast.
static void load_state(Ddp* ddp, const std::string& folder, bool moments) {
    read_safetensors(open_safetensors(path_join(folder, "model.safetensors")), *ddp->arena, "", ddp->master);
    if (!moments) return;
    const SafeTensors optim = open_safetensors(path_join(folder, "optim.safetensors"));
    read_safetensors(optim, *ddp->arena, ".exp_avg", ddp->m);
    read_safetensors(optim, *ddp->arena, ".exp_avg_sq", ddp->v);
}

// The weights of --init. Where its context is longer than ours, the first rows of its position table are taken: all other tensors are
// equal, and the table lies row by row.
static void load_init(Ddp* ddp, const InitFrom& init, GptConfig config) {
    if (init.config.seq_len == config.maxT) return load_state(ddp, init.folder, false);
    config.maxT = init.config.seq_len;
    const Arena longer = arena_layout(gpt_tensors(config)), &own = *ddp->arena;
    std::vector<float> values(longer.n);
    read_safetensors(open_safetensors(path_join(init.folder, "model.safetensors")), longer, "", values.data());
    std::fill_n(ddp->master, own.n, 0.0f);
    for (size_t k = 0; k < own.tensors.size(); k++)
        std::copy_n(&values[longer.offset[k]], own.tensors[k].rows * own.tensors[k].cols, ddp->master + own.offset[k]);
}

// -------------------------------------------------------------------------------------------------------------- the run

namespace {

// What a rank tells the others once per step.
struct StepReport {
    uint32_t requests;
    bool saved;                         // the save under way has ended
    size_t changed;                     // of ddp_changed
    double compute_seconds;
    GpuHealth gpu;
};

struct Trainer {
    Options options;
    Comm* comm;
    Run run;
    Data data;
    Arena arena;
    Ddp ddp;
    Gpt model;
    std::unique_ptr<BatchLoader> loader;
    std::unique_ptr<Log> log;           // rank 0
    std::unique_ptr<Trace> trace;       // --trace
    Saver* saver;
    struct Point { std::string name; Mark end; };
    std::vector<Point> points;          // of the step under way, for the trace: what the compute stream has done when it gets there
    // Of the step: device memory, and host memory that copies to and from it. Two states, since the update of one step may still read
    // its own when the next begins.
    StepState *state, *host_state;      // (2)
    double *results, *host_results;     // (leaves of this rank + 1)  their losses, and the norm
    int* batches;                       // (leaves, 2, B, T)  tokens and targets, on the host until the device has read them
    Mark marks[3];                      // the step begins, losses are there, the norm is there
    std::vector<Mark> leaf_marks;       // a leaf is done: a GPU's progress, while the host waits
    Graph graphs[2];                    // of a step, for each state
    bool graph;                         // a step may be one
    int G, leaf_begin, leaf_end;        // leaves of a step, and this rank's
    int64_t step = 0;                   // updates done
    int bad_steps = 0;                  // in a row, without a finite gradient
    std::vector<double> norms, losses;  // --skip-spikes: of the last kSpikeWindow steps where they were finite, oldest first
    bool loss_spike = false;            // the step under way has one: it is skipped
    int failed_saves = 0;               // in a row
    double save_stall = 0;              // seconds training stood still for the save under way
    double began;                       // when the first step of this process did, by now_seconds()
    double eval_seconds = 0;            // evaluations and samples
    std::vector<double> recent;         // seconds of the last steps
    double stalled = 0;                 // seconds of steps beyond three times the median of those before: a rank stopped, a machine asleep
    double step_seconds = 0;            // of the last step
    int64_t steps_here = 0;             // by this process
    int64_t save_again = -1;            // step after which a save is done that has failed, or that a bad step was in the way of
    double best_val = INFINITY;
    double flops_per_token;
};

struct StepResult { double loss, norm, lr; uint32_t requests; bool skipped, saved; const char* spike; };     // spike: what was one, or null

}  // namespace

// The largest norm or loss that is no spike; 0: any. A skipped one counts too, so that one that has changed for good is accepted after a while.
constexpr size_t kSpikeWindow = 128, kLeastBefore = 64, kRecent = 32;
static float spike_limit(const Trainer* t, const std::vector<double>& before) {
    if (t->options.skip_spikes <= 0 || before.size() < kLeastBefore) return 0;
    double mean = 0, square = 0;
    for (const double x : before) mean += x / double(before.size());
    for (const double x : before) square += (x - mean) * (x - mean) / double(before.size());
    return float(mean + t->options.skip_spikes * std::sqrt(square));
}
static void remember(std::vector<double>* before, double x) {
    if (std::isfinite(x)) before->push_back(x);
    if (before->size() > kSpikeWindow) before->erase(before->begin());
}

static void count_stall(Trainer* t, double seconds) {
    std::vector<double> sorted = t->recent;
    std::sort(sorted.begin(), sorted.end());
    if (sorted.size() >= kRecent) t->stalled += std::max(0.0, seconds - 3 * sorted[sorted.size() / 2]);
    remember(&t->recent, seconds);
}

static size_t leaf_tokens(const Trainer* t) { return size_t(t->options.batch_size) * size_t(t->options.seq_len); }
static StepState* state_of(const Trainer* t) { return t->state + t->step % 2; }

// Computes a leaf of this step again, into the buffer of lane 0; returns the hash of its gradients.
static uint64_t recompute_leaf(Trainer* t, int leaf) {
    float* grads = ddp_lane_buffer(&t->ddp, 0);
    const BatchLoader::Batch batch = t->loader->leaf(uint64_t(t->step), leaf);
    gpt_set_gradients(&t->model, grads);
    gpt_forward_backward(&t->model, t->results, batch.tokens.data(), batch.targets.data(), false, state_of(t), uint32_t(leaf), nullptr, nullptr, nullptr);
    return hash_floats(grads, t->arena.n, nullptr);
}

// LOCKSTEP_FAULT: where it asks for a wrong number, this puts it there.
static void fault(Trainer* t, const char* point, float* data, size_t n) {
    const Damage damage = fault_point(point, t->comm->rank, t->step, n);
    if (damage.kind == Damage::none) return;
    ddp_settle(&t->ddp);
    uint32_t bits;
    copy_to_host(&bits, data + damage.index, sizeof bits, nullptr);
    bits = damage.kind == Damage::nan ? 0x7fc00000u : damage.kind == Damage::big ? std::bit_cast<uint32_t>(1e6f) : bits ^ 1u << 20;
    copy_to_device(data + damage.index, &bits, sizeof bits, nullptr);
    stream_sync(nullptr);
}

// Silent corruption shows as two ranks that compute the same leaf differently; a third decides which of the two is odd.
static void compare_audit(Trainer* t, uint64_t own, uint64_t of_previous) {
    struct Hashes { uint64_t own, of_previous, weights; };
    const int W = t->comm->size, leaves = t->leaf_end - t->leaf_begin;
    const Hashes mine = {own, of_previous, ddp_hash_weights(&t->ddp)};
    std::vector<Hashes> all(static_cast<size_t>(W));
    comm_allgather(t->comm, all.data(), &mine, sizeof mine);
    for (int r = 1; r < W; r++)
        if (all[size_t(r)].weights != all[0].weights)
            die(kExitDisagree, "replicas disagree: step %lld: the weights of rank %d and of rank 0 differ; nothing of this step was saved", (long long)t->step, r);
    for (int r = 0; r < W; r++) {
        const int next = (r + 1) % W, third = (r + 2) % W;
        if (all[size_t(r)].own == all[size_t(next)].of_previous) continue;
        if (W == 1) die(kExitDisagree, "replicas disagree: step %lld: leaf %d computed twice gave two gradients; this machine's memory or processor is at fault", (long long)t->step, t->leaf_begin);
        if (W == 2) die(kExitDisagree, "replicas disagree: step %lld: ranks 0 and 1 computed leaf %d differently; one of the two machines is at fault", (long long)t->step, r * leaves);
        uint64_t vote = t->comm->rank == third ? recompute_leaf(t, r * leaves) : 0;
        comm_broadcast(t->comm, &vote, sizeof vote, third);
        const int odd = vote == all[size_t(r)].own ? next : vote == all[size_t(next)].of_previous ? r : -1;
        if (odd < 0) die(kExitDisagree, "replicas disagree: step %lld: ranks %d, %d and %d computed leaf %d in three ways; nothing of this step was saved", (long long)t->step, r, next, third, r * leaves);
        die(kExitDisagree, "replicas disagree: step %lld: rank %d computed leaf %d differently from two others; nothing of this step was saved", (long long)t->step, odd, r * leaves);
    }
}

static void trace_point(Trainer* t, const std::string& name) {
    t->points.push_back({name, mark_create()});
    mark_set(t->points.back().end, nullptr);
}

// begin: of the step, by the host's clock.
static void write_trace(Trainer* t, double begin) {
    const Mark zero = t->marks[0];
    double at = 0;
    for (const Trainer::Point& point : t->points) {
        const double end = mark_seconds(zero, point.end);
        t->trace->span("compute", point.name, begin + at, end - at);
        at = end;
        mark_destroy(point.end);
    }
    t->points.clear();
    const Ddp::Marks& m = t->ddp.marks[0];
    for (size_t b = 0; b < m.begin.size(); b++)
        t->trace->span("communication", format("bucket %zu", b), begin + mark_seconds(zero, m.begin[b]), mark_seconds(m.begin[b], m.end[b]));
    t->trace->span("host", format("step %lld", (long long)t->step), begin, now_seconds() - begin);
    t->trace->flush();
}

// The host waits for a GPU, which may wait for other ranks' GPUs. Who watches the ranks knows that it waits: a rank that is gone, or does
// not come, is named; if all wait and nothing moves, it is the network between the GPUs.
static void wait_for(Trainer* t, Mark mark, const char* phase) {
    if (kOnGpu && t->comm->size > 1) {
        comm_waits(t->comm, true, true);
        for (int tries = 0; !mark_passed(mark); tries++) {
            if (tries > 200) usleep(100);
            if (tries % 1000 == 0) exchange_check(t->ddp.exchange);
        }
        comm_waits(t->comm, false, true);
    }
    mark_sync(mark);
    if (kOnGpu) comm_progress(t->comm, t->step, phase);
}

static int* batch_of(const Trainer* t, int k) { return t->batches + size_t(k) * 2 * leaf_tokens(t); }

static void load_batches(Trainer* t) {
    for (int k = 0; k < t->leaf_end - t->leaf_begin; k++) {
        const BatchLoader::Batch& batch = t->loader->next();
        std::copy(batch.tokens.begin(), batch.tokens.end(), batch_of(t, k));
        std::copy(batch.targets.begin(), batch.targets.end(), batch_of(t, k) + leaf_tokens(t));
    }
}

// One leaf into its lane's buffer. The host only puts work on the stream; the device reads the batch from memory that stays.
static void leaf_step(Trainer* t, int leaf, bool audit) {
    const int leaves_per_lane = t->G / t->options.lanes, k = leaf - t->leaf_begin;
    const int in_lane = k % leaves_per_lane, lane = k / leaves_per_lane;
    const int *const tokens = batch_of(t, k), *const targets = tokens + leaf_tokens(t);
    const bool reduce = leaf + 1 == t->leaf_end && !audit && !fault_ahead("bwd", t->comm->rank, t->step);
    const OnTensors needed = [&](int first, int last) { ddp_weights_needed(&t->ddp, first, last); };
    const OnTensors ready = [&](int first, int last) {
        const std::vector<TensorSpec>& tensors = t->arena.tensors;
        if (t->trace) trace_point(t, format("leaf %d: %s %s", leaf, size_t(last) == tensors.size() ? "forward, head, backward to" : "backward to", tensors[size_t(first)].name.c_str()));
        if (reduce) ddp_gradients_ready(&t->ddp, first);
    };
    gpt_set_gradients(&t->model, ddp_lane_buffer(&t->ddp, lane));
    gpt_forward_backward(&t->model, t->results + k, tokens, targets, in_lane > 0, state_of(t), uint32_t(leaf), k == 0 ? needed : nullptr, ready, nullptr);
}

// The loss of the step: the same sum on all ranks, in the order of the leaves.
static double gather_loss(Trainer* t) {
    std::vector<double> leaves(static_cast<size_t>(t->G));
    comm_allgather(t->comm, leaves.data(), t->host_results, size_t(t->leaf_end - t->leaf_begin) * sizeof(double));
    return std::accumulate(leaves.begin(), leaves.end(), 0.0) / double(t->options.total_batch_size);
}

// Of the step now on its way, before the update.
static bool is_loss_spike(Trainer* t) {
    wait_for(t, t->marks[1], "forward and backward");
    if (fault_point("loss", t->comm->rank, t->step).kind == Damage::big) t->host_results[0] *= 100;
    const double loss = gather_loss(t);
    const float limit = spike_limit(t, t->losses);
    remember(&t->losses, loss);
    return limit > 0 && loss > double(limit);
}

// THE STEP, what the device has to do for it: gradients of this rank's lanes, their sum over all lanes, the norm, the update. A GPU is
// given all of it before the host waits for the losses and the norm.
static void compute_step(Trainer* t, bool audit) {
    const Options& o = t->options;
    Ddp* ddp = &t->ddp;
    const int leaves_per_lane = t->G / o.lanes, mine = t->leaf_end - t->leaf_begin, W = t->comm->size;
    copy_to_device(state_of(t), t->host_state + t->step % 2, sizeof(StepState), nullptr);
    mark_set(t->marks[0], nullptr);

    uint64_t own_hash = 0, previous_hash = 0;
    if (audit) ddp_settle(ddp);
    if (audit) previous_hash = recompute_leaf(t, (t->comm->rank + W - 1) % W * mine);

    // Forward and backward, leaf by leaf; the last leaf of the last lane starts the reduction of each bucket as it goes.
    for (int leaf = t->leaf_begin; leaf < t->leaf_end; leaf++) {
        const int k = leaf - t->leaf_begin, lane = k / leaves_per_lane;
        leaf_step(t, leaf, audit);
        if (k == 0) {
            fault(t, "bwd", ddp_lane_buffer(ddp, lane), t->arena.n);
            if (audit) own_hash = hash_floats(ddp_lane_buffer(ddp, lane), t->arena.n, nullptr);
        }
        if ((k + 1) % leaves_per_lane == 0) ddp_lane_done(ddp, lane);
        mark_set(t->leaf_marks[size_t(k)], nullptr);
        comm_progress(t->comm, t->step, "forward and backward");
    }
    if (audit) compare_audit(t, own_hash, previous_hash);
    copy_to_host_later(t->host_results, t->results, size_t(mine) * sizeof(double), nullptr);
    mark_set(t->marks[1], nullptr);

    comm_progress(t->comm, t->step, "reduction");
    fault_point("reduce", t->comm->rank, t->step);
    ddp_reduce_finish(ddp);
    // A gradient that is not finite would destroy the weights: all ranks see the same norm, and skip the update together. (A loss
    // that is not finite makes such a gradient.)
    t->loss_spike = o.skip_spikes > 0 && is_loss_spike(t);
    if (t->loss_spike) {                                // no norm is small enough
        static constexpr float kNone = FLT_MIN;
        copy_to_device(&state_of(t)->norm_limit, &kNone, sizeof kNone, ddp->stream);
    }
    ddp_clip(ddp, state_of(t), t->results + mine, o.grad_clip, double(o.total_batch_size));
    copy_to_host_later(t->host_results + mine, t->results + mine, sizeof(double), ddp->stream);
    mark_set(t->marks[2], ddp->stream);
    comm_progress(t->comm, t->step, "update");
    ddp_update(ddp, {float(o.beta1), float(o.beta2), float(o.eps), float(o.weight_decay)}, state_of(t));
}

// The same as one launch, where it is what every step does: a graph for each state, as marks and states take turns. Kept when it is
// first wanted, and again when an evaluation has made the kernels' work space grow. False: it cannot be, and never will.
static bool launch_step(Trainer* t) {
    if constexpr (kOnGpu) {
        Graph& graph = t->graphs[t->step % 2];
        std::string why;
        bool launched = graph && graph_launch(graph);
        if (!launched) {
            graph_destroy(graph);
            graph = graph_capture([](void* p) { compute_step(static_cast<Trainer*>(p), false); }, t, t->ddp.stream, &why);
            launched = graph && graph_launch(graph);
        }
        if (launched) stream_wait(t->ddp.stream, nullptr);
        else warn("the step is no CUDA graph, its kernels are launched one by one: %s", why.c_str());
        return launched;
    }
    return false;
}

// The first step makes room and connections; faults, audits, traces and --skip-spikes want the host in the middle.
static bool is_plain(const Trainer* t, bool audit) {
    const auto fault = [&](const char* point) { return fault_ahead(point, t->comm->rank, t->step); };
    return !t->graph || t->steps_here == 0 || audit || t->trace || t->options.skip_spikes > 0 || fault("bwd") || fault("reduce");
}

static StepResult train_step(Trainer* t) {
    const Options& o = t->options;
    Ddp* ddp = &t->ddp;
    const int mine = t->leaf_end - t->leaf_begin, W = t->comm->size;
    const bool audit = o.audit_every > 0 && t->step > 0 && t->step % o.audit_every == 0;
    const double tokens = double(o.total_batch_size), start = now_seconds();
    StepResult result = {};
    result.lr = o.lr * schedule_fraction(o.schedule, t->step, o.steps, o.warmup_steps, o.final_lr_frac);

    // All that changes from step to step and that kernels read; the clip factor is added on the device.
    StepState* const state = t->host_state + t->step % 2;
    *state = {.seed = o.seed, .step = uint32_t(t->step), .lr = float(result.lr), .grad_scale = 0,
              .bias1 = float(1 - std::pow(o.beta1, double(t->step + 1))), .bias2 = float(1 - std::pow(o.beta2, double(t->step + 1))),
              .norm_limit = spike_limit(t, t->norms)};
    fault_point("fwd", t->comm->rank, t->step);
    comm_progress(t->comm, t->step, "forward and backward");
    load_batches(t);
    ddp_begin(ddp);
    if (is_plain(t, audit)) compute_step(t, audit);
    else if (!launch_step(t)) {
        t->graph = false;
        ddp->next = 0;
        compute_step(t, audit);
    }
    ddp_gather_weights(ddp);

    // The wait. Whoever watches this rank sees the leaves go by: a step may take longer than --timeout, a leaf should not.
    for (const Mark mark : t->leaf_marks) wait_for(t, mark, "forward and backward");
    for (const Mark mark : {t->marks[1], t->marks[2]}) wait_for(t, mark, "reduction");
    stream_check(ddp->stream);                          // of a staged road: bytes damaged between hosts
    if (kOnGpu) comm_progress(t->comm, t->step, "update");
    result.norm = t->host_results[mine];                // of the mean gradient
    result.skipped = !std::isfinite(result.norm);
    result.spike = t->loss_spike ? "loss" : state->norm_limit > 0 && result.norm > double(state->norm_limit) ? "gradient norm" : nullptr;
    if (o.skip_spikes > 0) remember(&t->norms, result.norm);
    fault(t, "opt", ddp->own_master, ddp->own_n);
    fault(t, "opt_m", ddp->own_m, ddp->own_n);
    fault(t, "opt_v", ddp->own_v, ddp->own_n);

    if (t->trace) write_trace(t, start);

    const DdpTimes times = ddp_times(ddp);
    StepReport own = {pending_requests(), saver_ready(t->saver), ddp_changed(ddp), mark_seconds(t->marks[0], t->marks[1]), {}};
    if constexpr (kOnGpu) own.gpu = gpu_health(device_address());
    std::vector<StepReport> reports(static_cast<size_t>(W));
    comm_allgather(t->comm, reports.data(), &own, sizeof own);
    result.loss = gather_loss(t);
    result.saved = reports[0].saved;
    TrainLine line = {};
    line.compute_ms_min = INFINITY;
    for (int w = 0; w < W; w++) {
        const StepReport& r = reports[size_t(w)];
        result.requests |= r.requests;
        ddp_require_unchanged(ddp, w, r.changed);
        const double ms = r.compute_seconds * 1e3;
        line.compute_ms_min = std::min(line.compute_ms_min, ms);
        if (ms > line.compute_ms_max) { line.compute_ms_max = ms; line.slowest_rank = w; line.gpu = r.gpu; }
    }

    const double seconds = t->step_seconds = now_seconds() - start;
    count_stall(t, seconds);
    if (t->log) {
        line.step = t->step; line.steps = o.steps;
        line.loss = result.loss; line.lr = result.lr; line.grad_norm = result.norm;
        line.step_ms = seconds * 1e3; line.tok_s = tokens / seconds;
        line.tokens = (t->step + 1) * o.total_batch_size;
        line.mfu = t->flops_per_token * line.tok_s / (device_peak_flops() * W);
        line.gflops = t->flops_per_token * line.tok_s * 1e-9;
        line.compute_ms = own.compute_seconds * 1e3; line.comm_ms = times.comm * 1e3; line.exposed_ms = times.exposed * 1e3;
        line.ranks = W;
        t->log->train(line);
    }
    t->step++;
    t->steps_here++;
    return result;
}

// ------------------------------------------------------------------------------------------------------ saving, reporting

// Alike on all ranks.
static std::string device_kind() { const std::string name = device_name(); return name.substr(0, name.find(',')); }

static CheckpointFiles checkpoint_files(Trainer* t) {
    CheckpointFiles files = {};
    files.config_json = hf_config_json({t->model.config.L, t->model.config.NH, t->model.config.C, t->model.config.maxT, t->model.config.V,
                                        t->options.dropout, t->data.tokenizer.eot});
    if (t->data.tokenizer.kind != Tokenizer::none) files.tokenizer_json = t->data.tokenizer.to_json();
    Options options = t->options;
    options.vocab_size = t->data.vocab_size;        // as config.json has it, so that a resumed run's checkpoints are the same bytes
    const auto list = [](const std::vector<double>& numbers) {
        std::string text;
        for (const double x : numbers) text += (text.empty() ? "[" : ",") + json_number(x);
        return text.empty() ? "[]" : text + "]";
    };
    JsonLine identity;
    for (const auto& [name, value] : options_identity(options)) identity.add(name.c_str(), value);
    files.state_json = JsonLine().add("version", 1).add("program", version_text()).add("device", device_kind()).add("step", t->step).add("tokens", t->step * t->options.total_batch_size)
        .raw("options", identity.text()).add("data_hash", t->data.train.hash).add("val_hash", t->data.val.hash)
        .add("bad_steps", t->bad_steps).add("best_val", t->best_val).raw("norms", list(t->norms)).raw("losses", list(t->losses)).text() + "\n";
    files.eot = t->data.tokenizer.eot;
    files.arena = &t->arena;
    files.master = t->ddp.master; files.m = t->ddp.m; files.v = t->ddp.v;
    files.sums = t->ddp.sums;
    return files;
}

// The end of the save under way, on all ranks at the same step; waits for it. A disk that is full for a while must not end a run: the save
// is tried again soon, or at once where a save follows anyway (`now`); the third failure in a row ends it, and so does one that nothing
// would follow (`last`).
static void finish_save(Trainer* t, bool last, bool now = false) {
    if (!saver_busy(t->saver)) return;
    const double begin = now_seconds();
    comm_progress(t->comm, t->step, "checkpoint");
    const Saved saved = saver_result(t->saver);
    const std::string failed = comm_gather_text(t->comm, saved.error.message)[0];       // also: nobody leaves before the commit
    int code = saved.error.code;
    comm_broadcast(t->comm, &code, sizeof code, 0);
    t->save_stall += now_seconds() - begin;
    t->failed_saves = failed.empty() ? 0 : t->failed_saves + 1;
    if (failed.empty()) {
        if (!t->log) return;
        t->log->event(JsonLine().add("event", "ckpt").add("step", saved.step).add("path", saved.folder).add("stall_ms", float(t->save_stall * 1e3))
            .add("write_ms", float(saved.seconds * 1e3)));
        t->log->text("saved   %s", saved.folder.c_str());
        return;
    }
    if (last || t->failed_saves == 3 || code == kExitDisagree) die(code == kExitDisagree ? code : kExitWrite, "%s", failed.c_str());
    constexpr double kPause = 30;       // seconds
    int64_t steps = int64_t(kPause / std::max(t->step_seconds, 1e-3)) + 1;
    comm_broadcast(t->comm, &steps, sizeof steps, 0);
    const int64_t every = t->options.save_every;
    t->save_again = now ? t->step : std::min({t->step + steps, every > 0 ? (t->step / every + 1) * every : INT64_MAX, t->options.steps});
    if (!t->log) return;
    warn("not saved: %s; training goes on, the next try is after step %lld", failed.c_str(), (long long)t->save_again);
    t->log->event(JsonLine().add("event", "warn").add("step", saved.step).add("msg", "not saved: " + failed));
}

// Training stands still while the state is copied, and until a save before it has ended: no checkpoint is left out.
static void save(Trainer* t) {
    finish_save(t, false, true);
    const double begin = now_seconds();         // that wait is the save's before
    t->save_again = -1;
    comm_progress(t->comm, t->step, "checkpoint");
    ddp_gather_state(&t->ddp);
    saver_start(t->saver, t->step, checkpoint_files(t), [log = t->log.get()] { log->sync(); });
    comm_barrier(t->comm);
    t->save_stall = now_seconds() - begin;
}

// Returns the requests to stop that broke it off: it counts as not begun, a resume begins it again.
static uint32_t validate(Trainer* t, bool final) {
    ddp_settle(&t->ddp);
    comm_progress(t->comm, t->step, "evaluation");
    const Score score = evaluate(&t->model, t->data, t->data.val, t->options.batch_size, t->options.eval_steps, t->comm);
    if (score.requests && t->log) t->log->text("the evaluation after step %lld is broken off", (long long)t->step);
    if (score.requests) return score.requests;
    t->best_val = std::min(t->best_val, score.loss);
    if (!t->log) return 0;
    const double floor = t->data.val.floor_bits_per_byte;
    t->log->val(t->step, score.loss, score.bpb, floor > 0 ? format("%.3f bpb above the text's entropy of %.3f", score.bpb - floor, floor) : "");
    if (final && t->data.val.stories && t->model.config.maxT >= kStorySlot) {
        const Answers a = closing_questions(&t->model, t->data.tokenizer, kStoryValidationSeed, 200, t->comm);
        if (a.asked < 200) return 0;                    // asked to stop: the run is at its end anyway
        t->log->text("closing questions: %d of %d answered right (%.0f %%, chance %.0f %%)", a.right, a.asked, 100.0 * a.right / a.asked, 100 * a.chance);
        t->log->event(JsonLine().add("event", "questions").add("step", t->step).add("right", a.right).add("asked", a.asked).add("chance", a.chance).add("floor", floor));
    }
    return 0;
}

static void show_sample(Trainer* t) {
    ddp_settle(&t->ddp);
    comm_progress(t->comm, t->step, "sampling");
    if (t->log) {
        const Options& o = t->options;
        const Choosing how = {.temperature = o.temperature, .top_k = o.top_k, .top_p = o.top_p, .seed = o.seed, .stream = uint32_t(t->step)};
        t->log->sample_begin(t->step, o.prompt);
        const std::string text = generate_text(&t->model, t->data.tokenizer, opening(t->data.tokenizer, o.prompt, t->data.vocab_size), o.max_tokens, how,
                                               [&](const std::string& piece) {
                                                   comm_progress(t->comm, t->step, "sampling");
                                                   t->log->sample_text(piece);
                                               });
        t->log->sample_end(t->step, o.prompt, text);
    }
    comm_barrier(t->comm);
}

static void print_header(const Trainer* t) {
    const Options& o = t->options;
    const GptConfig& c = t->model.config;
    Log* log = t->log.get();
    log->text("train_gpt %s | %s | %d rank%s (%s)", version_text(), device_name(), t->comm->size, t->comm->size > 1 ? "s" : "", t->comm->launcher.c_str());
    log->text("model   %d layers x %d heads x %d channels | %s parameters | context %d", c.L, c.NH, c.C, with_commas(gpt_parameters(c)).c_str(), c.maxT);
    log->text("data    %s | tokenizer %s, vocabulary %d", t->data.train.description.c_str(), t->data.tokenizer.name.empty() ? "none" : t->data.tokenizer.name.c_str(), c.V);
    log->text("batch   %d x %d tokens x %d leaves = %s per step, in %d lanes | %s steps = %s tokens", o.batch_size, o.seq_len, t->G,
              with_commas(uint64_t(o.total_batch_size)).c_str(), o.lanes, with_commas(uint64_t(o.steps)).c_str(), with_commas(uint64_t(o.steps * o.total_batch_size)).c_str());
    log->text("memory  %s | gradients go by %s", memory_text(o, c, t->comm).c_str(), exchange_name(t->ddp.exchange));
    log->text("output  %s", t->run.out_dir.c_str());
    if (!o.verbose) return;
    for (size_t i = 0; i < t->arena.tensors.size(); i++) {
        const TensorSpec& s = t->arena.tensors[i];
        log->text("tensor  %-32s %6zu x %-6zu at %zu%s", s.name.c_str(), s.rows, s.cols, t->arena.offset[i], s.decay ? ", decays" : "");
    }
    GptActivations act;
    for (const Activation& a : gpt_plan(&act, c, o.batch_size, o.seq_len, o.recompute, true))
        log->text("activation  %-10s %11.3f MB x %d", a.name, double(a.bytes) * 1e-6, a.count);
    for (const Range& b : t->ddp.buckets) log->text("bucket  elements %zu to %zu, %.1f MB", b.begin, b.end, double(b.size()) * sizeof(float) * 1e-6);
}

static void write_run_files(const Trainer* t) {
    Options o = t->options;                                 // as they turned out
    o.vocab_size = t->data.vocab_size;
    o.device = kOnGpu ? "gpu" : "cpu";
    o.threads = get_threads();
    const std::string options = options_to_json(o);         // {...}: the rest is added inside the same object
    std::string argv, ranks;
    for (const std::string& a : o.argv) argv.append(argv.empty() ? "" : " ").append(a);
    for (const Comm::Peer& p : t->comm->peers) ranks.append(ranks.empty() ? "" : ",").append(JsonLine().add("host", p.host).add("pid", p.pid).text());
    JsonLine facts;
    facts.add("argv", argv).add("version", version_text()).add("device_name", device_name()).add("world_size", t->comm->size).add("launcher", t->comm->launcher)
        .raw("ranks", "[" + ranks + "]").add("data_hash", t->data.train.hash).add("params", uint64_t(gpt_parameters(t->model.config)))
        .add("max_steps", o.steps).add("tokens_per_step", o.total_batch_size).add("tokenizer", t->data.tokenizer.name)
        .add("vocab_size", o.vocab_size).add("seed", o.seed);
    write_file_atomic(path_join(t->run.out_dir, "config.json"), options.substr(0, options.rfind('\n')) + ",\n  \"run\": " + facts.text() + "\n}\n");
    t->log->event(JsonLine().add("event", t->run.resumed() ? "resume" : "run").add("step", t->step).add("name", base_name(t->run.out_dir)).add(facts));
}

// ----------------------------------------------------------------------------------------------------------------- train

// Of a run that goes on: what state.json says.
static void read_state(Trainer* t) {
    const bool first = t->comm->rank == 0;
    if (first) fault_point("load", 0, 0);
    const std::string where = path_join(t->run.checkpoint, "state.json");
    const std::string text = comm_gather_text(t->comm, first ? read_file(where) : "")[0];
    const Json state = parse_json(text, where.c_str());
    if (const std::string hash = state.get_string("data_hash", where.c_str()); hash != t->data.train.hash)
        die(kExitUsage, "--data: %s: the data have changed: got %s, want %s as in %s; resume with the data the run began with",
            t->options.data.c_str(), t->data.train.hash.c_str(), hash.c_str(), where.c_str());
    if (state.get_string("val_hash", where.c_str()) != t->data.val.hash && first) warn("the validation data have changed: earlier validation losses do not compare");
    for (const auto& [key, now] : {std::pair<const char*, std::string>{"program", version_text()}, {"device", device_kind()}})
        if (const Json was = state.find(key); was && was.text() != now)
            t->options.changed.push_back(format("resumed with another %s: got %s, the checkpoint was written by %s; the bits may differ from those of an uninterrupted run",
                                                key, now.c_str(), json_shown(was).c_str()));
    const uint64_t step = state.get_u64("step", where.c_str()), bad = state.get_u64("bad_steps", where.c_str());
    const std::string name = format("step_%08llu", (unsigned long long)step), folder = base_name(t->run.checkpoint);
    if (folder.starts_with("step_") && folder != name) die(kExitBadContent, "%s: step: got %llu, want that of %s", where.c_str(), (unsigned long long)step, folder.c_str());
    if (step > INT64_MAX || bad > 4) die(kExitBadContent, "%s: step %llu, bad_steps %llu: want less than 2^63 and 5", where.c_str(), (unsigned long long)step, (unsigned long long)bad);
    Options options = t->options;
    options.vocab_size = t->data.vocab_size;        // as checkpoint_files has it
    for (const auto& [name, value] : options_identity(options, true))
        if (const Json had = state.find("options").find(name); had && had.text() != value)
            die(kExitBadContent, "%s: --%s: got %s, want %s as in the run's config.json; was one of them edited, or copied from another run?", where.c_str(),
                name.c_str(), json_shown(had).c_str(), value.c_str());
    t->step = int64_t(step);
    t->bad_steps = int(bad);
    state.find("best_val").as_double(&t->best_val);
    for (const auto& [name, numbers] : {std::pair{"norms", &t->norms}, std::pair{"losses", &t->losses}})
        for (JsonItems i(state.find(name)); i.next();)
            if (double x; i.value.as_double(&x)) remember(numbers, x);
}

// Said before the warm-up, which a small --steps may not fit either.
static void check_steps(const Trainer* t) {
    const std::string where = path_join(t->run.checkpoint, "state.json"), text = comm_gather_text(t->comm, t->comm->rank == 0 ? read_file(where) : "")[0];
    const int64_t done = int64_t(parse_json(text, where.c_str()).get_u64("step", where.c_str()));        // read_state refuses what is beyond 2^63
    if (t->options.steps < done) die(kExitUsage, "--steps: got %lld, but the run is at step %lld; give more", (long long)t->options.steps, (long long)done);
}

// Everything before the first step. Returns false if there is nothing left to do. Until the folder is written to, at the end,
// whatever is refused has changed nothing.
static bool set_up(Trainer* t) {
    Options& o = t->options;
    Comm* comm = t->comm;
    exchange_place(comm);
    const InitFrom init = t->run.resumed() ? init_of_run(t->run.checkpoint, comm) : read_init(&o);
    if (t->run.resumed() && o.is_given("steps")) check_steps(t);
    resolve_options(&o, kOnGpu);
    check_channels(o.channels);
    t->G = int(o.total_batch_size / (int64_t(o.batch_size) * o.seq_len));
    if (o.lanes % comm->size != 0) {
        std::string work;
        for (int w = 1; w <= o.lanes; w *= 2) work += (w > 1 ? ", " : "") + std::to_string(w);
        die(kExitUsage, "%d ranks do not divide the %d lanes of this batch; start %s ranks, or change --total-batch-size or --batch-size", comm->size, o.lanes, work.c_str());
    }
    if (!o.dry_run) claim_run(&t->run, &o, comm);
    if constexpr (!kOnGpu) set_threads(rank_threads(comm, o.threads));
    Fields fields = option_fields(o);
    fields.push_back({"device", device_kind()});
    check_agreement(comm, fields);

    t->data = open_data(o, comm, init.tokenizer, init.config.vocab_size);
    const GptConfig config = config_of(o, t->data.vocab_size);
    t->arena = arena_layout(gpt_tensors(config));
    fields.clear();
    for (const TensorSpec& s : t->arena.tensors) fields.push_back({"tensor " + s.name, format("(%zu,%zu)", s.rows, s.cols)});
    fields.push_back({"data", t->data.train.hash});
    fields.push_back({"validation data", t->data.val.hash});
    check_agreement(comm, fields);

    if (o.dry_run) {
        if (comm->rank == 0) dry_run(o, config, comm, t->G);
        return false;
    }
    // On the cores of one host the sum is computation like any other: beside backward it would only take turns with it.
    const bool overlap = o.overlap && (o.is_given("overlap") || kOnGpu || comm->hosts > 1);
    ddp_create(&t->ddp, comm, &t->arena, o.lanes, overlap, o.reduce == "nccl", o.audit_every > 0);
    gpt_create(&t->model, config, o.batch_size, o.seq_len, o.recompute, t->ddp.weights, true);
    t->flops_per_token = gpt_flops_per_token(config, o.seq_len);
    const int leaves = t->G / comm->size;
    t->leaf_begin = leaves * comm->rank;
    t->leaf_end = t->leaf_begin + leaves;
    t->state = static_cast<StepState*>(device_alloc(2 * sizeof(StepState), "step state"));
    t->results = static_cast<double*>(device_alloc(size_t(leaves + 1) * sizeof(double), "losses and norm"));
    t->host_state = static_cast<StepState*>(host_alloc(2 * sizeof(StepState), "step state"));
    t->host_results = static_cast<double*>(host_alloc(size_t(leaves + 1) * sizeof(double), "losses and norm"));
    t->batches = static_cast<int*>(host_alloc(size_t(leaves) * 2 * leaf_tokens(t) * sizeof(int), "batches of a step"));
    if constexpr (kOnGpu) t->graph = o.graph && exchange_on_device(t->ddp.exchange);
    for (Mark& mark : t->marks) mark = mark_create();
    for (int k = 0; k < leaves; k++) t->leaf_marks.push_back(mark_create());
    if (t->run.resumed()) read_state(t);
    if (comm->rank == 0) {
        if (t->run.resumed()) load_state(&t->ddp, t->run.checkpoint, true);
        else if (!init.folder.empty()) load_init(&t->ddp, init, config);
        else arena_init(t->ddp.master, t->arena, o.seed);
    }
    ddp_broadcast_state(&t->ddp);
    if (t->step >= o.steps) return false;
    // Where something is there already, a save or --force first makes room.
    if (comm->rank == 0 && o.save_every > 0 && !t->run.resumed() && !t->run.overwrite) require_space(t->run.out_dir, t->arena);
    t->saver = saver_create(comm, &t->arena, !kOnGpu, t->run.out_dir, o.keep);

    Sampler sampler;
    sampler.torch = o.sampler == "torch";
    sampler.n = t->data.train.samples; sampler.seed = o.seed;
    sampler.B = o.batch_size; sampler.G = t->G; sampler.R = o.lanes;
    t->loader = std::make_unique<BatchLoader>(t->data.train, sampler, t->data.vocab_size, t->leaf_begin, t->leaf_end, uint64_t(t->step));
    if (!o.trace.empty()) t->trace = std::make_unique<Trace>(o.trace, comm->rank);
    if (comm->rank == 0) {
        empty_run(t->run);
        t->log = std::make_unique<Log>(t->run.out_dir, t->run.resumed(), o.log_every);
        t->log->best_val = t->best_val;
        report_out_dir(t->run.out_dir);
        print_header(t);
        if (init.config.seq_len > o.seq_len)
            t->log->text("init    %s: context %d of its %d, the first rows of its position table", init.folder.c_str(), o.seq_len, init.config.seq_len);
        write_run_files(t);
        for (const std::string& change : o.changed) {
            warn("%s", change.c_str());
            t->log->event(JsonLine().add("event", "warn").add("step", t->step).add("msg", change));
        }
        if (t->run.resumed()) abandon_newer(t->run.out_dir, t->step);
        if (t->run.resumed()) t->log->text("resumed %s at step %lld", t->run.checkpoint.c_str(), (long long)t->step);
        else if (!o.resume.empty()) t->log->text("nothing saved in %s yet: starting at step 0", t->run.out_dir.c_str());
    }
    return true;
}

static void tear_down(Trainer* t) {
    t->loader.reset();
    saver_destroy(t->saver);
    if constexpr (kOnGpu)
        for (const Graph graph : t->graphs) graph_destroy(graph);
    ddp_destroy(&t->ddp);
    gpt_destroy(&t->model);
    for (void* memory : {static_cast<void*>(t->state), static_cast<void*>(t->results)}) device_free(memory);
    for (void* memory : {static_cast<void*>(t->host_state), static_cast<void*>(t->host_results), static_cast<void*>(t->batches)}) host_free(memory);
    for (const Mark mark : t->marks)
        if (mark) mark_destroy(mark);
    for (const Mark mark : t->leaf_marks) mark_destroy(mark);
}

static void print_next(const Trainer* t) {
    Log* log = t->log.get();
    if (t->options.save_every == 0) {
        log->text("nothing was saved (--save-every 0)");
        return;
    }
    const std::string here = shell_quote(t->run.out_dir);
    log->text("next    %s sample %s", typed_program(), here.c_str());
    log->text("        %s --resume %s --steps %lld", typed_program(), here.c_str(), (long long)(2 * t->step));
    std::string tools = tools_folder();                     // not there if the program was called through PATH or a link
    for (const char* beside : {"build/", ""})
        if (!file_exists(tools + "export")) tools = path_join(parent_folder(program_path()), beside);
    log->text("        %s %s --hf DIR", shell_quote(tools + "export").c_str(), here.c_str());
}

// The loop. Returns the signals that stopped the run, "" if none did.
static std::string run_steps(Trainer* t) {
    const Options& o = t->options;
    const auto due = [&](int64_t every) { return every > 0 && (t->step % every == 0 || t->step == o.steps); };
    const bool again = t->run.resumed() && due(o.eval_every);           // the run may have ended between this save and its evaluation
    if (const uint32_t stop = again ? validate(t, false) : 0) return stop_reason(stop);
    while (t->step < o.steps) {
        set_error_step(t->step);
        const StepResult r = train_step(t);
        t->bad_steps = r.skipped ? t->bad_steps + 1 : 0;
        if (t->log && (r.skipped || r.spike)) {
            const std::string why = r.skipped ? format("loss or gradient is not finite (loss %g, norm %g)", r.loss, r.norm)
                                              : format("%s of %g is a spike (--skip-spikes %g)", r.spike, *r.spike == 'l' ? r.loss : r.norm, o.skip_spikes);
            t->log->event(JsonLine().add("event", "warn").add("step", t->step - 1).add("msg", "skipped: " + why));
            t->log->text("step %lld skipped: its %s", (long long)(t->step - 1), why.c_str());
        }
        if (t->bad_steps == 5) die(kExitOther, "5 steps in a row without a finite gradient: lr %g, loss %g, norm %g; nothing of them was saved; try a smaller --lr", r.lr, r.loss, r.norm);
        if (t->log && t->step == 1 && o.init.empty()) t->log->text("        ln V = %.4f: a fresh model starts near it", std::log(double(t->data.vocab_size)));

        const std::string reason = stop_reason(r.requests);
        const bool stop = !reason.empty() && t->step < o.steps;
        if (r.saved) finish_save(t, false, stop || wants_save(r.requests) || due(o.save_every));
        const bool wanted = due(o.save_every) || t->step == t->save_again;
        const bool saves = stop || wants_save(r.requests) || (wanted && (t->bad_steps == 0 || t->step == o.steps));
        if (saves) save(t);
        else if (wanted) t->save_again = t->step + 1;       // first see whether these weights are good for anything
        if (stop) {
            finish_save(t, true);
            return reason;
        }
        const double begin = now_seconds();
        const uint32_t broken = due(o.eval_every) ? validate(t, t->step == o.steps) : 0;
        if (!broken && due(o.sample_every)) show_sample(t);
        t->eval_seconds += now_seconds() - begin;
        if (broken && t->step < o.steps) {
            if (!saves) save(t);
            finish_save(t, true);
            return stop_reason(broken);
        }
    }
    finish_save(t, true);
    return "";
}

// The last lines and the last event: among others where the time went, over all attempts of a supervised job; the attempts before this one
// show what they trained and saved.
static void report_end(Trainer* t, int code, const std::string& why) {
    if (!t->log) return;
    Log* log = t->log.get();
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const double wall = job_seconds();
    const Metrics m = log->metrics(double(now.tv_sec) + 1e-9 * double(now.tv_nsec) - wall);
    if (code == kExitStopped) log->text("%s at step %lld, saved; go on with: %s --resume %s", why.c_str(), (long long)t->step, typed_program(), shell_quote(t->run.out_dir).c_str());
    if (code == kExitDone) {
        log->curve(m);
        const double seconds = now_seconds() - t->began, tokens = double(t->steps_here * t->options.total_batch_size);
        log->text("done    %lld steps in %.1f s (%s tokens/s)", (long long)t->steps_here, seconds, with_commas(uint64_t(tokens / std::max(seconds, 1e-9))).c_str());
    }
    const double trained = m.trained - t->stalled, other = std::max(0.0, wall - m.trained - m.again - m.saving - t->eval_seconds);
    log->text("time    %.1f %% of %.1f s trained; evaluation and samples %.1f s, checkpoints %.1f s, stalls %.1f s, steps done again %.1f s, start%s %.1f s", 100 * trained / wall,
              wall, t->eval_seconds, m.saving, t->stalled, m.again, job_restarts() ? format(" and %d restarts", job_restarts()).c_str() : "", other);
    log->event(JsonLine().add("event", "done").add("step", t->step).add("code", code).add("why", why).add("goodput", float(trained / wall))
        .add("wall_s", float(wall)).add("train_s", float(trained)).add("stall_s", float(t->stalled)).add("eval_s", float(t->eval_seconds)).add("save_s", float(m.saving))
        .add("again_s", float(m.again)).add("other_s", float(other)).add("restarts", job_restarts()));
    log->sync();
    if (code == kExitDone) print_next(t);
}

static void give_up(Trainer* t, int code, const std::string& why) {
    try { report_end(t, code, why); } catch (const std::exception&) {}      // no memory for that
    comm_progress(t->comm, -1, "checkpoint");
    saver_destroy(t->saver);            // a checkpoint under way is of a step before: it is completed, while the log is there
}

int train(Options options, Comm* comm, Run run) {
    Trainer t = {};
    t.options = std::move(options);
    t.run = std::move(run);
    t.comm = comm;
    bool more = false;
    try { more = set_up(&t); }
    catch (...) { unclaim_run(t.run); throw; }
    comm_at_end(comm, [] {});           // a disk that hangs must not keep a process from its end
    if (!more) {
        if (comm->rank == 0 && !t.options.dry_run) {
            if (t.run.resumed()) {
                repair_latest(t.run.checkpoint);
                std::printf("%s: finished: %lld steps; --steps N with a larger N goes on\n", t.run.out_dir.c_str(), (long long)t.step);
            } else {
                unclaim_run(t.run);
                std::printf("--steps 0: nothing to train\n");
            }
        }
        tear_down(&t);
        return kExitDone;
    }
    t.began = now_seconds();
    std::string reason;
    try { reason = run_steps(&t); }
    catch (const Error& e) { give_up(&t, e.code, e.message); throw; }
    catch (const std::exception& e) { give_up(&t, kExitOther, e.what()); throw; }       // no memory
    set_error_step(-1);
    const int code = reason.empty() ? kExitDone : kExitStopped;
    report_end(&t, code, reason.empty() ? "finished" : "stopped on request (" + reason + ")");
    tear_down(&t);
    return code;
}

}  // namespace BACKEND
