// train_gpt.cu -- training: set-up, one step, saves, evaluation, samples, the loop.
//
// Start reading at enqueue_step, which is one step, and train_loop, which is the run. Every rank
// runs this code, and rank 0 also writes files. The file is compiled once per backend (namespace
// BACKEND), and src/app/main.cpp calls train() of the backend that it chose. Keep models/model.h
// (what a model computes) and src/ddp/ddp.h (how ranks sum gradients) open beside it.
#include <algorithm>
#include <memory>
#include "src/app/app.h"

namespace BACKEND {
namespace {

struct Trainer {
    Options options;
    Comm* comm;
    Run run;                            // the folder that rank 0 writes
    Data data;
    std::unique_ptr<BatchLoader> loader;
    Trained arena;                      // where the trained tensors lie in each array
    Ddp ddp;                            // owns the trained weights
    Model model;
    int* batches;                       // (micro-batches, 3, B, T)  tokens, targets, Pass::begin
    PassResult *results, *host_results; // (micro-batches + 1)  the last one's loss is the norm
    StepState *states, *host_states;    // (2)  for even and odd steps
    Executor executor;                  // runs a step as kernels or as a CUDA graph
    Reporter report;
    Checkpoints* checkpoints;
    RunProgress at;                     // steps done, and the other numbers of state.json
};

size_t batch_tokens(const Trainer* t) {
    return size_t(t->options.batch_size) * size_t(t->options.shape.T);
}
// A rank computes the micro-batches [first_batch, first_batch + own_micro_batches) of each step.
int own_micro_batches(const Trainer* t) { return int(t->options.micro_batches()) / t->comm->size; }
int first_batch(const Trainer* t) { return t->comm->rank * own_micro_batches(t); }
enum Part { kTokens, kTargets, kBegin };
int* batch(const Trainer* t, int i, Part p) { return t->batches + size_t(i * 3 + p) * batch_tokens(t); }
// A step's values. The copy of the other parity may still be read when the next step begins.
StepState* state(const Trainer* t) { return t->states + t->at.step % 2; }
StepState* host_state(const Trainer* t) { return t->host_states + t->at.step % 2; }
// Returns whether what happens every n steps (0: never) happens now. The last step has all of it.
bool due(const Trainer* t, int64_t n) {
    return n > 0 && (t->at.step % n == 0 || t->at.step == t->options.steps);
}

// ---- set up

// Opens the data, whose vocabulary completes the shape of the model, and which decide --rows auto.
void read_data(Trainer* t, const Init& init) {
    t->data = open_data(data_options(t->options, init), t->comm);
    if (t->options.rows == "auto") t->options.rows = t->data.train.rows ? "documents" : "join";
    set_vocabulary(&t->options.shape, t->data.vocab_size);
    t->arena = trained_of(t->options);
}

// Makes all arrays: weights, gradients, optimizer state, activations, batches and results.
void allocate(Trainer* t, Init* init) {
    const Options& o = t->options;
    const OptimizerInfo* const optimizer = all_optimizers()[size_t(find_optimizer(o.optimizer))];
    const size_t n = size_t(own_micro_batches(t));
    // By default backward and reduction do not overlap on CPUs of one host: both need the same
    // cores.
    const bool overlap = o.overlap && (o.is_given("overlap") || kOnGpu || t->comm->hosts > 1);
    ddp_create(&t->ddp, t->comm, &t->arena, optimizer,
               {o.replicas, int(n), overlap, o.reduce, o.hyper});
    floatX* const frozen = load_frozen_weights(t->comm, o, init);
    model_create(&t->model, find_model(o.model), o.shape, o.batch_size, o.shape.T, o.recompute,
                 t->ddp.weights, /*training=*/true, t->arena, frozen, {o.loss, o.hyper});
    t->model.documents = t->data.vocabulary.documents;
    t->batches = static_cast<int*>(host_alloc(n * 3 * batch_tokens(t) * sizeof(int), "batches"));
    t->results = device<PassResult>(n + 1, "results");
    t->host_results = static_cast<PassResult*>(host_alloc((n + 1) * sizeof(PassResult), "results"));
    t->at.sums.resize(size_t(optimizer->sums));
    t->states = device<StepState>(2, "step");
    t->host_states = static_cast<StepState*>(host_alloc(2 * sizeof(StepState), "step"));
    executor_create(&t->executor, t->comm, &t->ddp, kOnGpu && o.graph);
}

// Rank 0 reads weights and optimizer state of a checkpoint, or makes the first weights. The other
// ranks get them by broadcast.
void load_weights(Trainer* t, const Init& init) {
    const Options& o = t->options;
    if (t->comm->rank == 0) {
        const std::vector<NamedArray> arrays = ddp_named_state(&t->ddp);
        if (t->run.resumed()) read_state(t->run.checkpoint, t->arena, arrays, t->arena.file);
        else load_first_weights(t->ddp.state[0].host, t->arena, o, init, t->data);
    }
    ddp_broadcast_state(&t->ddp, !t->run.resumed());
}

void open_loader(Trainer* t) {
    const int first = first_batch(t), end = first + own_micro_batches(t);
    const Sampler order = data_order(t->options, t->data.train);
    t->loader = std::make_unique<BatchLoader>(t->data.train, order, t->data.vocab_size, first, end,
                                              uint64_t(t->at.step));
}

void open_outputs(Trainer* t, const Init& init) {
    CheckpointFiles files = checkpoint_files(t->options, t->model.shape, t->data, init);
    files.arena = &t->arena;
    files.arrays = ddp_named_state(&t->ddp);
    t->report = {&t->options, t->comm, &t->run, &t->data, find_model(t->options.model),
                 device_name(), t->ddp.transport, device_peak_flops() * t->comm->size};
    t->checkpoints = checkpoints_create(t->comm, &t->report, files, !kOnGpu, device_kind());
    report_begin(&t->report, t->at);
}

// Prepares everything for the first step. Returns false if no step and no score is left to do.
bool set_up(Trainer* t) {
    Options& o = t->options;
    Comm* const comm = t->comm;
    transport_place(comm);
    // What the run starts from: a checkpoint, the model of --init, or nothing.
    const std::shared_ptr<Init> init =
        t->run.resumed() ? init_of_run(t->run.checkpoint, o, comm) : init_of_options(&o, comm);
    resolve_options(&o, kOnGpu);
    check_device(*find_model(o.model), o.shape);
    check_ranks(o, comm->size);
    claim_run(&t->run, &o, init_folder(*init), comm);
    if (!kOnGpu) set_threads(rank_threads(comm, o.threads));
    check_agreement(comm, option_fields(o, device_kind()));
    read_data(t, *init);
    check_agreement(comm, data_fields(t->arena, t->data));
    if (t->run.resumed()) t->at = read_progress(t->run, comm, &o, t->data, device_kind());
    if (t->at.step >= o.steps && !(t->at.unscored && due(t, o.eval_every))) return false;
    check_memory(o, comm);
    allocate(t, init.get());
    load_weights(t, *init);
    open_loader(t);
    open_outputs(t, *init);
    return true;
}

void tear_down(Trainer* t) {
    t->loader.reset();
    checkpoints_destroy(t->checkpoints);
    executor_destroy(&t->executor);
    model_destroy(&t->model);
    ddp_destroy(&t->ddp);
    device_free(t->results);
    device_free(t->states);
    host_free(t->batches);
    host_free(t->host_results);
    host_free(t->host_states);
}

// ---- one step

// Sets the values that change from step to step. Call it after load_batches, which counts the
// step's targets, those of all ranks. Kernels read the values from memory, so a captured CUDA graph
// can be replayed without new arguments.
void set_step_state(Trainer* t) {
    const Options& o = t->options;
    const double schedule = schedule_fraction(o, t->at.step);
    *host_state(t) = {.seed = o.seed, .step = uint32_t(t->at.step), .lr = float(o.lr * schedule),
                      .grad_scale = 0, .tokens = double(t->loader->step_targets())};
    const OptimizerInfo& rule = *t->ddp.optimizer;
    rule.prepare(host_state(t), hyper_values(o, rule.hyper).data(), t->at.step + 1, schedule,
                 t->at.sums.data());
}

void load_batches(Trainer* t) {
    for (int i = 0; i < own_micro_batches(t); i++) t->loader->next().copy(batch(t, i, kTokens));
}

Pass micro_batch_pass(Trainer* t, int i) {
    Pass pass = {.B = t->model.B, .T = t->model.T, .state = state(t),
                 .micro_batch = uint32_t(first_batch(t) + i), .samples = t->loader->samples(i),
                 .begin = t->data.train.apart ? batch(t, i, kBegin) : nullptr};
    pass.accumulate = ddp_accumulates(&t->ddp, i);
    // The first forward waits for each block's weights, which the step before has updated. The
    // last backward says which gradients are final, so that their reduction begins.
    if (i == 0)
        pass.needed = [t](int first, int last) { ddp_weights_needed(&t->ddp, first, last); };
    if (i + 1 == own_micro_batches(t))
        pass.ready = [t](int first, int) { ddp_gradients_ready(&t->ddp, first); };
    return pass;
}

// Enqueues one whole step: a GPU can capture these calls and replay them as one CUDA graph.
void enqueue_step(Trainer* t) {
    Ddp* ddp = &t->ddp;
    copy_to_device(state(t), host_state(t), sizeof(StepState), kMain);
    for (int i = 0; i < own_micro_batches(t); i++) {
        model_set_gradients(&t->model, ddp_grads(ddp, i));
        model_forward_backward(&t->model, micro_batch_pass(t, i), t->results + i,
                               batch(t, i, kTokens), batch(t, i, kTargets));
        ddp_sum_replicas(ddp, i, state(t));     // if i was its replica's last: what the tree allows
    }
    ddp_reduce_scatter(ddp);                    // backward has started this for most buckets
    const int n = own_micro_batches(t);
    // results[n].loss is where the norm goes. The stream has waited for backward, so the losses and
    // the norm can be copied together.
    ddp_clip_grad_norm(ddp, state(t), &t->results[n].loss, t->options.grad_clip);
    copy_to_host_later(t->host_results, t->results, size_t(n + 1) * sizeof(PassResult),
                       ddp->stream);
    event_record(t->executor.results_copied, ddp->stream);      // the host waits only for this
    ddp_update(ddp, state(t));                  // of this rank's slices, if the norm is finite
}

// Waits for this rank's results, exchanges them with all ranks and returns the step's statistics.
StepStats collect_stats(Trainer* t) {
    executor_wait(&t->executor, t->at.step);
    const size_t n = size_t(own_micro_batches(t));
    std::vector<PassResult> results(n * size_t(t->comm->size));     // in micro-batch order
    comm_allgather(t->comm, results.data(), t->host_results, n * sizeof(PassResult));
    refuse_unwritten(results, t->options.model, t->arena);
    StepStats s = {.step = t->at.step, .lr = double(host_state(t)->lr),
                   .norm = plain(t->host_results[n].loss)};
    for (const PassResult& r : results) s.loss += r.loss;
    s.measures = mean_measures(*find_model(t->options.model), results);
    s.loss = plain(s.loss / host_state(t)->tokens);
    s.times = executor_times(&t->executor);
    if (due(t, t->options.measure_every))
        s.measured = measure(t->options.measure, {&t->model, &t->ddp, host_state(t)->tokens});
    join_reports(&s, comm_gather(t->comm, RankReport{pending_requests(), s.times,
                                                     checkpoints_saved(t->checkpoints)}));
    return s;
}

// Counts consecutive steps whose gradient is not finite: they change no weight. Five end the run.
void count_bad_step(Trainer* t, const StepStats& s) {
    t->at.bad_steps = s.skipped ? t->at.bad_steps + 1 : 0;
    if (!s.skipped) return;
    const auto what = format("loss %g, norm of the gradient %g, lr %g", s.loss, s.norm, s.lr);
    report_warning(&t->report, s.step,
                   format("step %ld skipped: %s", s.step, what.c_str()));
    if (t->at.bad_steps == 5)
        die(kExitOther, "5 steps in a row without a finite gradient: %s; try a smaller --lr",
            what.c_str());
}

StepStats train_step(Trainer* t) {
    const double began = now_seconds();
    set_error_step(t->at.step);
    load_batches(t);
    set_step_state(t);
    const bool audited = t->at.step > 0 && due(t, t->options.audit_every);
    ddp_begin(&t->ddp, audited);
    execute_step(&t->executor, t->at.step, [t] { enqueue_step(t); });
    ddp_all_gather_weights(&t->ddp);            // the next forward waits for it block by block
    StepStats s = collect_stats(t);
    if (audited) audit_step(&t->model, &t->ddp, *t->loader, state(t), t->results);
    s.seconds = now_seconds() - began;
    t->at.step++;
    report_step(&t->report, s);
    count_bad_step(t, s);
    return s;
}

// ---- save, evaluate, sample

// Starts a save. Training waits while the state is gathered and copied, not while it is written.
void save(Trainer* t) {
    checkpoints_finish(t->checkpoints, t->at.step, false);
    check_unchanged(t->data.train);
    ddp_gather_state(&t->ddp);
    checkpoints_start(t->checkpoints, t->at);
}

// Prepares a use of the model between steps, `what` for the watchdog: all weights have arrived, and
// they are those that a user gets. Some optimizers train others; ddp_exchange_weights then takes
// these back.
void take_weights_of_user(Trainer* t, const char* what) {
    ddp_settle(&t->ddp);
    ddp_exchange_weights(&t->ddp);
    comm_progress(t->comm, t->at.step, what);
}

// Scores the weights on the validation data. A request to stop ends that early and is returned; a
// resume then scores again. saved: a save was due and came before; else the best weights are saved.
uint32_t validate(Trainer* t, bool saved) {
    const double began = now_seconds();
    take_weights_of_user(t, "evaluation");
    const std::vector<Score> scores =
        evaluate(&t->model, t->data, t->options.batch_size, t->options.eval_steps, t->comm);
    ddp_exchange_weights(&t->ddp);
    const Score& score = scores[0];
    if (!saved && score.requests) save(t);
    if (score.requests) return score.requests;
    check_unchanged(t->data.val);
    const bool best = score.loss() < t->at.best_val;
    if (best) t->at.best_val = score.loss(), t->at.best_step = t->at.step;
    std::vector<double> losses;
    for (const Score& s : scores) losses.push_back(s.loss());
    report_score(&t->report, t->at.step, losses, score.bpb(), best, now_seconds() - began);
    if (best && saved) checkpoints_best(t->checkpoints, t->at.step);
    else if (best && t->at.step > 0 && t->options.save_every > 0) save(t);
    return 0;
}

void sample_text(Trainer* t) {
    take_weights_of_user(t, "sampling");
    report_sample(&t->report, t->at.step, [t](const Print& print) {
        return generate_text(&t->model, t->data.vocabulary, t->data.start, t->options,
                             uint32_t(t->at.step), [&](const std::string& text) {
            comm_still_works(t->comm);          // for the watchdog: the other ranks wait
            print(text);
        });
    });
    comm_barrier(t->comm);
    ddp_exchange_weights(&t->ddp);
}

// ---- the loop

// Returns the requests that stopped the run before its end; 0 if none did.
uint32_t train_loop(Trainer* t) {
    const Options& o = t->options;
    // The weights of --init have no score yet, nor has a checkpoint whose evaluation did not end.
    const bool unscored = t->at.unscored || (!t->run.resumed() && !o.init.empty());
    uint32_t stop = unscored && due(t, o.eval_every) ? validate(t, t->run.resumed()) : 0;
    while (!stop && t->at.step < o.steps) {
        const StepStats s = train_step(t);
        // A request that comes with the last step can stop the scoring only.
        stop = t->at.step < o.steps ? stop_requests(s.requests) : 0;
        const bool saves = checkpoints_due(t->checkpoints, t->at, s, stop);
        if (saves) save(t);             // first: a failure of what follows cannot lose the step
        if (!stop && due(t, o.eval_every)) stop = validate(t, saves);
        if (!stop && due(t, o.sample_every)) sample_text(t);
    }
    checkpoints_finish(t->checkpoints, t->at.step, true);
    check_unchanged(t->data.train);
    return stop;
}

}  // namespace

int train(Options options, Comm* comm, Run run) {
    Trainer t = {};
    t.options = std::move(options);
    t.run = std::move(run);
    t.comm = comm;
    uint32_t stop = 0;
    try {
        if (!set_up(&t)) return report_nothing_to_do(t.options, t.run, t.at);
        stop = train_loop(&t);
    } catch (...) {
        report_failure(&t.report, t.at.step);
        checkpoints_destroy(t.checkpoints);     // completes the save of an earlier step
        unclaim_run(t.run);                     // removes the folder if it is still empty
        throw;
    }
    set_error_step(-1);
    const int code = stop ? kExitStopped : kExitDone;
    report_end(&t.report, t.at.step, code,
               stop ? "stopped on request (" + stop_reason(stop) + ")" : "finished");
    tear_down(&t);
    return code;
}

}  // namespace BACKEND
