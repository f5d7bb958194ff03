// app.h -- what surrounds a training step. Each section names the file with its functions; train_gpt.cu calls them.
#pragma once
#include <cstdio>
#include <functional>
#include <memory>
#include <numbers>
#include <string>
#include "src/data/data.h"
#include "src/options/options.h"
#include "src/run/run.h"

struct CheckpointFiles;             // src/checkpoint/checkpoint.h

// ---- where shape, weights, tokenizer and data come from: init.cpp, weights.cpp

struct Init;                        // init.h: the model of --init, or the checkpoint of a resume, without its weights

// Reads --init, and puts model and shape into the options. kExitUsage if a given one differs.
std::shared_ptr<Init> init_of_options(Options* options, Comm* comm);
// Rank 0 reads config.json, tokenizer.json and the files beside them in the checkpoint to resume, and broadcasts them:
// other hosts may lack the folder. kExitBadContent if its sizes are not those of the saved options. Collective.
std::shared_ptr<Init> init_of_run(const std::string& checkpoint, const Options& options, Comm* comm);
const std::string& init_folder(const Init& init);       // the folder or file with its weights; "": fresh weights
// Returns the options of open_data. On a resume --tokenizer comes from the saved options and is not "given", so one
// other than the default counts as chosen. eval uses the model's own tokenizer unless one is given.
DataOptions data_options(const Options& options, const Init& init);
// Fills arena.n floats with the first values of the trained tensors: the weights of --init, or random ones if there is
// no --init or if its weights are frozen. Tokens of the data that nobody has trained get the mean of the others.
void load_first_weights(float* weights, const Arena& arena, const Options& options, const Init& init, const Data& data);
// Returns the sampler, which decides the order of the data. micro_batches: of a step, over all ranks.
Sampler data_order(const Options& options, uint64_t samples, int micro_batches);

// Returns config.json. bos_token_id is the token before a text; eos_token_id is the token after a text, or after a turn
// if the data are conversations.
std::string model_config_json(const ModelInfo* info, const Shape& shape, const Data& data, const Init& init);

// If the weights of --init are frozen, says in a checkpoint's files where they are, and what is trained. Rank 0.
void describe_frozen(CheckpointFiles* files, const Options& options, const Init& init);

#ifdef BACKEND                      // the other functions belong to a backend
#include "models/model.h"
#include "src/ddp/ddp.h"
namespace BACKEND {

// Returns the weights of --init if they are frozen; else null. Rank 0 reads them. The ranks of a host share one copy,
// but each GPU has its own; they are never freed. On a resume the checkpoint names the model that the weights are of,
// and *init becomes that model. kExitNoInput if the model is missing, kExitBadContent if it has changed. Collective.
floatX* load_frozen_weights(Comm* comm, const Options& options, Init* init);

// ---- --dry-run, the memory that a run takes: dry_run.cpp

// Prints the model, the step, a rank's memory and whether it fits; with --for also a step's time. options.shape.V is
// known.
void dry_run(const Options& options, const Comm* comm, int micro_batches);
void check_memory(const Options& options, const Comm* comm);    // kExitOther if a run needs more than this host has

// ---- a step's work, launch by launch or as a CUDA graph, its results and its timeline: executor.cpp

struct Executor {
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
void executor_create(Executor* executor, Comm* comm, Ddp* ddp, bool use_graph, const std::string& trace);
void executor_destroy(Executor* executor);

// Calls enqueue, which puts work on the main stream and on ddp->stream and records executor->results. The first step
// runs launch by launch, because it allocates work space and opens connections. A graph is captured again when the
// kernels' work space has moved.
void execute_step(Executor* executor, int64_t step, const std::function<void()>& enqueue);
// Waits for the results, and tells the watchdog that this rank is blocked by its GPU, not stuck.
void executor_wait(Executor* executor, int64_t step);
StepTimes executor_times(Executor* executor, int64_t step);     // after executor_wait; adds the step to the timeline

// ---- runs a model forward, for losses of data and continued texts: inference.cpp

struct Score {
    double nats = 0, text_nats = 0;     // sums of -ln p: of all tokens; of tokens that have text
    uint64_t bytes = 0, tokens = 0;     // bytes of that text; targets that are not -1
    uint32_t requests = 0;              // requests to stop that ended the evaluation early
    double loss() const { return nats / double(tokens); }
    double bpb() const { return text_nats / std::numbers::ln2 / double(bytes); }        // NaN where tokens have no text
};

// Scores the first `batches` batches of B windows of data.val, or all of them if `batches` is 0. The last batch may be
// smaller. Each batch has one sum, and the sums are added in order, so any number of ranks gives the same bits.
// to_its_end: requests to stop do not end it early. Collective.
Score evaluate(Model* model, const Data& data, int B, int64_t batches, Comm* comm, bool to_its_end = false);

// Continues the tokens `start` --samples times with a line between them; after the first, --prompt is printed again. A
// sample ends at the token that ends a text or turn, after --max-tokens, or at a request to stop. Passes whole
// characters to `print` as they are generated, and returns all of them. With the same seed another stream gives other
// samples. start: empty: the model's last token.
std::string generate_text(Model* model, const Vocabulary& vocabulary, const std::vector<int>& start,
                          const Options& options, uint32_t stream, const Print& print);

// Appends up to --max-tokens tokens. Ends at a token that ends a text or turn, or when stops() is true. Returns the
// tokens' text.
std::string continue_text(Model* model, const Vocabulary& vocabulary, const Options& options, uint32_t stream,
                          std::vector<int>* tokens, const Print& print, const std::function<bool()>& stops);

// ---- multiple-choice questions: which ending does the model find likeliest? tasks.cpp

// Scores all questions, B rows at a time. to_its_end: requests to stop do not end it early. Collective.
TaskScore score_task(Model* model, const Task& task, int B, Comm* comm, bool to_its_end = false);

// Returns the sum of log p of each row's scored tokens. A request to stop ends it early and is added to *stop; if stop
// is null, none does. The ranks share batches of B rows; any number of ranks gives the same bits. Collective.
std::vector<double> score_rows(Model* model, const std::vector<Task::Row>& rows, int B, Comm* comm, uint32_t* stop);

// ---- finds silent corruption: two ranks compute the same micro-batch and compare the results: audit.cpp

// Runs between two steps. Each rank computes its own first micro-batch of the coming step and that of the rank before
// it, and all ranks compare hashes of the gradients and of the weights. Where two ranks differ, a third one computes
// the micro-batch again: kExitDisagree names the rank that it contradicts, or both if it cannot tell. It also names a
// frozen tensor that has changed in this process's memory, and a gradient that a backward has left out (kExitOther).
// name: the model's. micro_batches: of a rank. state: of the step, copied to device_state. Asks the step's reduction to
// keep what audit_sum needs. Collective.
void audit_replicas(Model* model, const std::string& name, Ddp* ddp, BatchLoader* loader, StepState* device_state,
                    const StepState& state, int64_t step, int micro_batches);

// kExitOther if a backward has left a gradient out. No weight has changed: a NaN was in its place (PassResult).
void refuse_unwritten(const std::vector<PassResult>& results, const std::string& model, const Arena& arena,
                      int64_t step);

// After a step in which replicas have met and were kept: kExitDisagree if their sum, by plain loops, is not what the
// update has used. After any other step it does nothing. Collective.
void audit_sum(Ddp* ddp, int64_t step);

}  // namespace BACKEND
#endif
