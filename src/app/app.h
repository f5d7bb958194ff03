// app.h -- what surrounds a training step. Each section names the file with its functions;
// train_gpt.cu calls them.
#pragma once
#include <functional>
#include <memory>
#include <numbers>
#include <string>
#include "src/checkpoint/checkpoint.h"
#include "src/data/data.h"
#include "src/options/options.h"
#include "src/run/run.h"

// ---- where shape, weights, tokenizer and data come from: init.cpp

// program.h: the model of --init, or the checkpoint of a resume, without its weights.
struct Init;

// Rank 0 asks for --init, and every rank puts its model and shape into the options. kExitUsage if a
// given option differs. Collective.
std::shared_ptr<Init> init_of_options(Options* options, Comm* comm);
// Rank 0 reads config.json, tokenizer.json and the files beside them in the checkpoint to resume,
// and broadcasts them, because other hosts may lack the folder. The shape is that of the saved
// options; kExitBadContent if config.json has another. Collective.
std::shared_ptr<Init> init_of_run(const std::string& checkpoint, const Options& options,
                                  Comm* comm);
// Returns the folder or file with the weights; "": random ones.
const std::string& init_folder(const Init& init);
// Returns the options of open_data. On a resume --tokenizer comes from the saved options and is not
// "given", so a value other than the default counts as given, too. eval uses the model's own
// tokenizer unless one is given.
DataOptions data_options(const Options& options, const Init& init);
// Fills arena.n floats with the first values of the trained tensors: the weights of --init, or
// random ones if there is no --init or if its weights are frozen. In embedding and head, rows of
// untrained tokens get the mean of the others.
void load_first_weights(float* weights, const Arena& arena, const Options& options,
                        const Init& init, const Data& data);
// Returns the sampler, which decides the order of the training data.
Sampler data_order(const Options& options, const Dataset& data);

// Returns the texts that every checkpoint gets: config.json, the tokenizer's files and, if the
// weights of --init are frozen, the file that names them. In config.json bos_token_id is the token
// before a text. eos_token_id is the token after a text, or after a turn if the data are
// conversations.
CheckpointFiles checkpoint_files(const Options& options, const Shape& shape, const Data& data,
                                 const Init& init);

#ifdef BACKEND                      // the other functions belong to a backend
#include "models/use.h"
#include "src/ddp/ddp.h"
#include "src/measure/measure.h"
namespace BACKEND {

// ---- the memory that a run takes: memory.cpp

// Returns the bytes that `sharing` ranks need for arrays, and sets *said to a line about one rank.
// sharing: on CPUs the ranks of a host, which share one copy of weights and state; on a GPU 1.
double memory_of(const Options& options, int ranks, bool on_gpu, int sharing, std::string* said);
// kExitOther if this host's CPU memory is too small.
void check_memory(const Options& options, const Comm* comm);

// ---- runs a step's work, kernel by kernel or as a CUDA graph: executor.cpp

struct Executor {
    Comm* comm = nullptr;
    Ddp* ddp = nullptr;
    bool use_graph = false;             // steps are replayed as graphs
    // Recorded when this step starts, and when its results are in host memory.
    Event begin = nullptr, results_copied = nullptr;
    Graph graphs[2] = {};               // for even and odd steps, which read different StepStates
    int64_t runs = 0;                   // steps that ran with use_graph and without an audit
    Sensors sensors = {};               // as executor_wait has read them
};

void executor_create(Executor* executor, Comm* comm, Ddp* ddp, bool use_graph);
void executor_destroy(Executor* executor);

// Calls enqueue, which puts work on the main stream and on ddp->stream and records
// executor->results_copied. The first step is launched kernel by kernel, because it allocates work
// space and opens connections, and so are audited steps. Other steps replay a graph, which is
// captured again when the kernels' work space has moved.
void execute_step(Executor* executor, int64_t step, const std::function<void()>& enqueue);
// Waits for the results. Tells the watchdog that this rank waits for its GPU, so that it does not
// count as stuck.
void executor_wait(Executor* executor, int64_t step);
// Returns the names and means of the model's own measures.
std::vector<std::pair<const char*, double>> mean_measures(const ModelInfo& info,
                                                          const std::vector<PassResult>& results);
StepTimes executor_times(Executor* executor);       // call it after executor_wait

// ---- loads weights; runs a model forward, for losses and continued texts: inference.cpp

// Does what load_init does, but stores the weights in floatX, the type that models compute with.
void load_stored(floatX* weights, const Arena& arena, const Init& init);
// Returns the weights of --init if they are frozen; else null. Rank 0 reads them. The ranks of a
// host share one copy, but each GPU has its own. They are never freed. On a resume the checkpoint
// names the model with the frozen weights, and on rank 0 *init becomes that model. kExitNoInput if
// it is missing, kExitBadContent if it has changed. Collective.
floatX* load_frozen_weights(Comm* comm, const Options& options, Init* init);

struct Score {
    // Sums of -ln p: over all targets; over those that have text. The bytes of that text as given.
    double nats = 0, text_nats = 0, bytes = 0;
    uint64_t tokens = 0;                // number of targets that are not -1
    uint32_t requests = 0;              // requests to stop that ended the evaluation early
    void add(const Score& more);
    double loss() const { return plain(nats / double(tokens)); }
    // NaN where tokens have no text.
    double bpb() const { return text_nats / std::numbers::ln2 / bytes; }
};

// Scores the first `batches` batches of B windows of each source of data.val, or all of them if
// `batches` is 0. A source's last batch may be smaller. Returns the score of all, and behind it, if
// there are several sources, that of each. Each batch has one sum, and the sums are added in order,
// so any number of ranks gives the same bits. Collective.
std::vector<Score> evaluate(Model* model, const Data& data, int B, int64_t batches, Comm* comm);

// Generates --samples samples that continue the tokens `start`. Before each but the first it prints
// "---" and --prompt. A sample ends at a token that ends a text or turn, after --max-tokens tokens,
// or at a request to stop. Passes whole characters to `print` as they are generated, and returns
// all of them. With the same seed another stream gives other samples. If `start` is empty, a sample
// continues the last token id of the model, V - 1.
std::string generate_text(Model* model, const Vocabulary& vocabulary, const std::vector<int>& start,
                          const Options& options, uint32_t stream, const Print& print);

// Generates up to --max-tokens tokens and appends them to *tokens. Ends at a token that ends a text
// or turn, or when stops() returns true. Passes the text to `print` as it is generated, and returns
// it.
std::string continue_text(Model* model, const Vocabulary& vocabulary, const Options& options,
                          uint32_t stream, std::vector<int>* tokens, const Print& print,
                          const std::function<bool()>& stops);

// ---- finds silent corruption: two ranks compute the same micro-batch and compare: audit.cpp

// Runs after a step that ddp_begin was told to audit. Adds the kept gradients of the replicas again
// in plain loops, and compares with the sum that the update has used. Then each rank computes its
// first micro-batch again, with the new weights, and that of the rank before it, and all ranks
// compare hashes of the gradients and of the weights. Where two ranks differ, a third one computes
// the micro-batch, too. kExitDisagree names the rank that the third one contradicts, both if it
// contradicts both or there is no third; a sum that differs; or a frozen tensor that has changed in
// memory. state, result: the step's in device memory. Collective.
void audit_step(Model* model, Ddp* ddp, const BatchLoader& loader, const StepState* state,
                PassResult* result);

// kExitOther if backward did not write a gradient. Then kPoison, a NaN, is in its place, so no
// weight has changed.
void refuse_unwritten(const std::vector<PassResult>& results, const std::string& model,
                      const Arena& arena);

}  // namespace BACKEND
#endif
