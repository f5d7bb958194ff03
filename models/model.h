// model.h -- a model as the trainer uses it: what it computes, as a table of functions per backend.
//
// A model is NAME.h (its declaration: shape.h), NAME.cpp and a line in models/list. NAME.cpp defines
// `extern const ModelKind NAME_kind` in namespace BACKEND. Shared by all models (model.cpp): the head with its loss,
// memory, evaluation and generation.
#pragma once
#include <any>
#include <functional>
#include <memory>
#include "kernels/kernels.h"
#include "models/lora.h"
#include "models/shape.h"
#include "src/base/common.h"
#include "src/base/layout.h"

struct SamplingParams {
    double temperature = 1;     // 0: the largest logit
    int top_k = 0;              // 0: all
    double top_p = 1;           // the smallest set whose probability reaches it (Holtzman et al. 2020)
    uint64_t seed = 0;
    uint32_t stream = 0;        // separates the samples of one seed
    int tokens = 0;             // of the vocabulary the first so many can be chosen; 0: all
};

namespace BACKEND {

constexpr Stream kMain = nullptr;           // models work on the main stream

using OnTensors = std::function<void(int first, int last)>;      // called with tensors [first, last) of a table

// One pass over B sequences of T tokens.
struct Pass {
    int B, T;
    bool accumulate = false;                // parameter gradients are "+=", not "="
    const StepState* state = nullptr;       // seed and step, for dropout; null: no dropout
    uint32_t micro_batch = 0;               // its number within the step
    // Generation: B = 1, positions first..first+T-1, whose predecessors are in the cache.
    void* cache = nullptr;
    int first = 0;
    // Forward calls `needed` before it reads weights, which may still be on their way from other ranks. Backward calls
    // `ready` when gradients are written for the last time: from the table's end down to its start. A model calls them
    // with tensors of its table; model_forward_backward passes the trained ones among them on.
    OnTensors needed = [](int, int) {}, ready = [](int, int) {};
    int N() const { return B * T; }
};

struct Model;

struct ModelKind {
    // Lays out the arrays of passes of at most m->B x m->T tokens, those of backward if m->training.
    void (*plan)(Model* m, Layout& place);
    // tokens -> hidden states (N,C) for the head; leaves what backward needs.
    const floatX* (*forward)(Model* m, const Pass& pass);
    // dhidden (N,C), which it may overwrite -> all parameter gradients; that of the head's weight is written already.
    void (*backward)(Model* m, const Pass& pass, floatX* dhidden);
    size_t (*cache_bytes)(const Shape& shape);      // of one sequence's generation
};
const ModelKind* find_kind(const ModelInfo* info);

struct Adapters;            // what --lora trains: linear.h

// A tensor of the table as forward and backward use it. It stands for its pointer where that is all one needs.
struct Weight {
    floatX* at = nullptr;
    int rows = 0, cols = 0;                 // a vector has one row
    const Adapters* adapters = nullptr;     // null: it has none; else its A and B begin at these elements of them
    size_t A = 0, B = 0;
    operator const floatX*() const { return at; }
};

struct Model {
    const ModelKind* kind = nullptr;
    Shape shape;
    int B, T;                               // what the arrays have room for
    int recompute;                          // 0 to 3: what backward computes again instead of keeping it; same bits
    bool training;                          // there are arrays for backward
    int chunk;                              // rows of logits at a time: the whole of them never exists
    Arena arena;                            // where the table's tensors lie
    std::vector<Weight> weights = {};       // of each tensor of the table
    std::vector<float*> grads = {};         // of each; null: of a matrix that is frozen
    // What is trained. It is the table, or with --lora adapters beside it, and then the table's weights are frozen.
    Arena trained = arena;
    std::vector<int> trained_begin = {};    // [i]: how many trained tensors come before tensor i of the table
    std::shared_ptr<Adapters> adapters = {};        // null without --lora
    std::vector<uint64_t> frozen_hashes = {};       // of each frozen tensor, as it was at the start
    std::any own = {};                      // this model's own arrays, a struct of its .cpp
    // Arrays that every model has.
    floatX* logits = nullptr;               // (chunk,Vp)
    float* losses = nullptr;                // (N)
    double* loss = nullptr;                 // (1)  their sum, in order
    int *tokens = nullptr, *targets = nullptr;      // (N)
    floatX* dhidden = nullptr;              // (N,C)
    void* memory = nullptr;                 // of all these arrays
    size_t memory_bytes = 0;
};

template <class Own> Own& own(Model* m) {
    if (!m->own.has_value()) m->own.emplace<Own>();
    return *std::any_cast<Own>(&m->own);
}

// Dropout number `site` of a model. drop: of an array (N,C) or its gradient, into `out`; returns inp if there is none.
Dropout dropout(const Model* m, const Pass& pass, int site);
const floatX* drop(const Model* m, const Pass& pass, int site, floatX* out, const floatX* inp);

void check_device(const ModelInfo& info, const Shape& shape, bool on_gpu = kOnGpu);  // kExitUsage if it cannot run

// A model without memory, for its sizes, as on a GPU or not. B, T: the largest batch.
Model model_plan(const ModelInfo* info, const Shape& shape, int B, int T, int recompute, bool training, bool on_gpu,
                 const Lora& lora = {});
// weights: of m->trained. frozen: with --lora the weights of the table.
void model_create(Model* m, const ModelInfo* info, const Shape& shape, int B, int T, int recompute, floatX* weights,
                  bool training, const Lora& lora = {}, floatX* frozen = nullptr);
void model_destroy(Model* m);
void model_set_weights(Model* m, floatX* weights);          // of m->trained
void model_set_gradients(Model* m, float* grads);
// The name of a frozen tensor that has changed in memory since model_create; "" if none has.
std::string changed_frozen_tensor(const Model& m);

// Forward and backward of one micro-batch: gradients of the summed loss, and that (nats) into loss[0], device memory:
// nobody waits for it here. tokens, targets: host, (B,T); they stay until the device has read them.
void model_forward_backward(Model* m, const Pass& pass, double* loss, const int* tokens, const int* targets);

// Sum of the losses (nats) over B*T tokens. losses: per token, host, (B,T), or null.
double model_loss(Model* m, const int* tokens, const int* targets, int B, int T, float* losses);

// Feeds n tokens after the `first` ones in `cache`, device memory; logits (host, V floats): those of the last one.
void model_generate_step(Model* m, void* cache, const int* tokens, int first, int n, float* logits);

// Appends up to max_tokens to `text` (not empty), or until `more`, which gets each new token, returns false: a function
// of (seed, stream, text). When the context is full, the newer half of it is read again and generation goes on.
void generate(Model* m, std::vector<int>* text, int max_tokens, const SamplingParams& params,
              const std::function<bool(int)>& more);

}  // namespace BACKEND
