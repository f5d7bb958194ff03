// model.h -- a model as the trainer uses it. What it computes is a table of functions, ModelKind, for each backend.
//
// A model is NAME.h (its declaration: shape.h), NAME.cpp and a line in models/list; a model of another one's family
// needs no NAME.cpp. NAME.cpp defines
// `extern const ModelKind NAME_kind` in namespace BACKEND. model.cpp has what all models share: memory, the head with
// its loss, evaluation and generation.
#pragma once
#include <any>
#include <functional>
#include <memory>
#include "kernels/kernels.h"
#include "models/shape.h"
#include "src/base/common.h"

struct SamplingParams {
    double temperature = 1;     // 0: always the token with the largest logit
    int top_k = 0;              // how many of the likeliest tokens can be chosen; 0: all
    double top_p = 1;           // only the smallest set whose probability reaches this (Holtzman et al. 2020)
    uint64_t seed = 0;
    uint32_t stream = 0;        // separates the samples of one seed
    int tokens = 0;             // only ids below this can be chosen; 0: all ids
};

namespace BACKEND {

using OnTensors = std::function<void(int first, int last)>;      // called with tensors [first, last) of a table

// One pass over B sequences of T tokens.
struct Pass {
    int B, T;
    bool accumulate = false;                // parameter gradients are "+=", not "="
    const StepState* state = nullptr;       // seed and step, for dropout; null: no dropout
    uint32_t micro_batch = 0;               // its number within the step
    // Generation: B is 1, and the tokens are at positions first..first+T-1. The cache holds the positions before them.
    void* cache = nullptr;
    int first = 0;
    // Where the model writes its own numbers (ModelInfo::measures), in device memory; null where nobody asks.
    double* measures = nullptr;
    // Forward calls `needed` before it reads weights, which may still be on their way from other ranks. Backward calls
    // `ready` when gradients are written for the last time: from the table's end down to its start. A model gives
    // tensors of its table; model_forward_backward translates them to the trained tensors. A caller may leave `ready`
    // empty.
    OnTensors needed = [](int, int) {}, ready = {};
    int N() const { return B * T; }
};

// What a pass writes to device memory. It begins as zeros.
struct PassResult {
    double loss;                            // summed, nats
    uint64_t unwritten;                     // elements from the first one that backward left out to the arena's end
    double measures[kMeasures];             // of ModelInfo::measures
};

struct Model;

struct ModelKind {
    // Lays out the arrays for passes of at most m->B x m->T tokens. Arrays of backward exist only if m->training.
    void (*plan)(Model* m, Layout& place);
    // Computes the hidden states (N,C) for the head from m->tokens. Keeps what backward needs.
    const floatX* (*forward)(Model* m, const Pass& pass);
    // Computes all parameter gradients from dhidden (N,C), which it may overwrite. The head has already written its
    // part of its weight's gradient.
    void (*backward)(Model* m, const Pass& pass, floatX* dhidden);
    size_t (*cache_bytes)(const Shape& shape);      // of the cache for one sequence
    // Null, or a function of the head's product: logits changes n rows of logits (n,Vp), in place, and dlogits takes
    // their gradient back, for the same rows and right after it. A model keeps for itself what dlogits needs, in an
    // array of m->chunk rows.
    void (*logits)(Model* m, floatX* logits, int n) = nullptr;
    void (*dlogits)(Model* m, floatX* dlogits, int n) = nullptr;
};
const ModelKind* find_kind(const ModelInfo* info);

struct Adapters;            // of matrices that are frozen: lora.h

// A tensor of the table as forward and backward use it. It converts to its pointer.
struct Weight {
    floatX* at = nullptr;
    int rows = 0, cols = 0;                 // a vector has one row
    const Adapters* adapters = nullptr;     // null: this tensor has no adapter
    size_t A = 0, B = 0;                    // where the adapter's matrices A and B begin in Model::trained
    operator const floatX*() const { return at; }
};

struct Model {
    const ModelKind* kind = nullptr;
    Shape shape;
    int B, T;                               // the largest batch that the arrays have room for
    int recompute;                          // 0 to 3: how much backward computes again to save memory; same bits
    bool training;                          // there are arrays for backward
    int chunk;                              // rows of logits that exist at a time
    Arena arena;                            // where the table's tensors lie
    std::vector<Weight> weights = {};       // one for each tensor of the table
    std::vector<float*> grads = {};         // one for each tensor of the table; null for a frozen matrix
    float* all_grads = nullptr;             // of the trained tensors, in one array
    bool checked = false;                   // backward has run once, with every element of the gradients checked
    Tuning tuning;                          // whether the table is frozen, and what is trained then
    Arena trained = {};                     // where the tensors lie that are trained
    std::vector<int> trained_begin = {};    // [i]: how many of them come before tensor i of the table
    std::shared_ptr<Adapters> adapters = {};        // linear.cpp's own; null if the table is trained
    std::vector<uint64_t> frozen_hashes = {};       // of each frozen tensor, taken by model_create
    DocumentTokens documents = {};          // of the tokenizer, for a model that treats documents one by one
    std::any own = {};                      // this model's own arrays, a struct of its .cpp
    // Arrays that every model has.
    floatX* logits = nullptr;               // (chunk,Vp)
    float* losses = nullptr;                // (N)
    double* loss = nullptr;                 // (1)  their sum, in order
    int *tokens = nullptr, *targets = nullptr;      // (N)
    floatX* dhidden = nullptr;              // (N,C)
    void* memory = nullptr;                 // the allocation that holds all arrays
    size_t memory_bytes = 0;
};

template <class Own> Own& own(Model* m) {
    if (!m->own.has_value()) m->own.emplace<Own>();
    return *std::any_cast<Own>(&m->own);
}

// dropout() describes dropout at one place of the model, number `site`. drop() applies it to inp (N,C), an activation
// or its gradient, and returns out; without dropout it only returns inp.
Dropout dropout(const Model* m, const Pass& pass, int site);
const floatX* drop(const Model* m, const Pass& pass, int site, floatX* out, const floatX* inp);

void check_device(const ModelInfo& info, const Shape& shape, bool on_gpu = kOnGpu);  // kExitUsage if it cannot run

// Returns a model without memory, to learn the sizes it would have on a GPU or a CPU. B, T: the largest batch.
Model model_plan(const ModelInfo* info, const Shape& shape, int B, int T, int recompute, bool training, bool on_gpu,
                 const Tuning& tuning = {});
// Allocates the arrays. weights: those of m->trained. frozen: those of the table, if it is frozen.
void model_create(Model* m, const ModelInfo* info, const Shape& shape, int B, int T, int recompute, floatX* weights,
                  bool training, const Tuning& tuning = {}, floatX* frozen = nullptr);
void model_destroy(Model* m);
void model_set_gradients(Model* m, float* grads);           // of m->trained
void model_set_weights(Model* m, floatX* weights);          // of m->trained
// Returns the name of a frozen tensor that has changed in memory since model_create; "" if none has.
std::string changed_frozen_tensor(const Model& m);

// Runs forward and backward of one micro-batch. Writes the gradients of the summed loss, and *result, in device memory,
// without waiting for it. tokens, targets: host, (B,T); they must not change before the device has read them.
//
// With pass.accumulate false it also checks that backward writes all gradients: kPoison is written before, and looked
// for before `ready` is called. It stands in the first element of each unit, and in a model's first pass in all
// elements.
void model_forward_backward(Model* m, const Pass& pass, PassResult* result, const int* tokens, const int* targets);

// Returns the sum of the losses (nats) of B*T tokens. losses: gets the loss of each, host, (B,T); or null.
double model_loss(Model* m, const int* tokens, const int* targets, int B, int T, float* losses);

// Runs n tokens that follow the `first` ones in `cache` (device memory), and appends them to it. Writes the logits of
// the last token: host, V floats.
void model_generate_step(Model* m, void* cache, const int* tokens, int first, int n, float* logits);

// Appends up to max_tokens tokens to `text`, which is not empty. Calls `more` with each, and stops when it returns
// false. The tokens are a function of (seed, stream, text). When the context is full, generation reads its newer half
// again and goes on.
void generate(Model* m, std::vector<int>* text, int max_tokens, const SamplingParams& params,
              const std::function<bool(int)>& more);

// ---- products with a matrix of the model's table, for all models: linear.cpp. Where the matrix has an adapter
// (lora.h), the product has a second term, and the gradient is the adapter's alone.

// out = inp weight^T + bias    inp (N,C), weight (OC,C), out (N,OC), bias may be null
void linear_forward(floatX* out, const floatX* inp, const Weight& weight, const floatX* bias, int N);

// pre = inp weight^T + bias,  out = gelu(pre)    pre (N,OC)
void linear_gelu_forward(floatX* out, floatX* pre, const floatX* inp, const Weight& weight, const floatX* bias, int N);

// dweight (+)= dout^T inp,  dbias (+)= sum over rows of dout,  dinp = dout weight
//   dout (N,OC); inp, dinp (N,C). Null: dbias if there is no bias, dweight if the matrix is frozen, inp if only dinp is
//   wanted, dinp if it is not wanted.
void linear_backward(floatX* dinp, float* dweight, float* dbias, const floatX* dout, const floatX* inp,
                     const Weight& weight, int N, bool accumulate);

// The same for inp = gelu(pre):  dpre = (dout weight) * gelu'(pre)    pre, dpre (N,C); dpre may be pre
void gelu_linear_backward(floatX* dpre, float* dweight, float* dbias, const floatX* dout, const floatX* inp,
                          const floatX* pre, const Weight& weight, int N, bool accumulate);

// Beside a frozen table they need work space, and weights and gradients of m->trained.
void linear_place(Model* m, Layout& place);
void linear_set_weights(Model* m, floatX* weights);
void linear_set_gradients(Model* m, float* grads);

}  // namespace BACKEND
