// model.h -- a model as the trainer uses it. A table of functions per backend, ModelKind, computes it.
//
// A model is NAME.h with its declaration (shape.h), NAME.cpp and a line in models/list. NAME.cpp defines
// `extern const ModelKind NAME_kind` in namespace BACKEND. A model of another one's family needs no NAME.cpp: the
// family's file defines its kind. model.cpp has what all models share: memory, the head with its loss, evaluation and
// generation.
#pragma once
#include <any>
#include <functional>
#include <memory>
#include "kernels/kernels.h"
#include "models/shape.h"
#include "src/base/common.h"

struct SamplingParams {
    double temperature = 1;     // 0: always the token with the largest logit
    int top_k = 0;              // only this many of the likeliest tokens can be chosen; 0: all
    double top_p = 1;           // of these only the smallest set with this probability (Holtzman et al. 2020)
    uint64_t seed = 0;
    uint32_t stream = 0;        // separates the samples of one seed
    int tokens = 0;             // only ids below this can be chosen; 0: all ids
};

namespace BACKEND {

using OnTensors = std::function<void(int first, int last)>;      // a callback for tensors [first, last) of a table

// One pass over B sequences of T tokens.
struct Pass {
    int B, T;
    bool accumulate = false;                // parameter gradients are added ("+="), not written ("=")
    const StepState* state = nullptr;       // seed and step, for dropout; null: no dropout
    uint32_t micro_batch = 0;               // its number within the step
    // Generation: B is 1, and the tokens are at positions first..first+T-1. The cache holds the positions before them.
    void* cache = nullptr;
    int first = 0;
    // Where the model writes its measures (ModelInfo::measures), in device memory; null: it must not write them.
    double* measures = nullptr;
    // Forward calls `needed` before it reads weights, because the all-gather may not have delivered them yet. Backward
    // calls `ready` when gradients are final, from the table's end to its start. A model calls both with tensors of its
    // table, and model_forward_backward passes on the trained tensors that belong to them. A caller may leave `ready`
    // empty.
    OnTensors needed = [](int, int) {}, ready = {};
    int N() const { return B * T; }
};

// What a pass writes to device memory. Its memory is zero at first.
struct PassResult {
    double loss;                            // sum over the tokens, nats
    uint64_t unwritten;                     // elements from the first that backward left out to the arena's end; or 0
    double measures[kMeasures];             // in the order of ModelInfo::measures
};

struct Model;

struct ModelKind {
    // Lays out the arrays for passes of at most m->B x m->T tokens. Arrays of backward exist only if m->training.
    void (*plan)(Model* m, Layout& place);
    // Computes the hidden states (N,C) for the head from m->tokens. Keeps the activations that backward needs.
    const floatX* (*forward)(Model* m, const Pass& pass);
    // Computes all parameter gradients from dhidden (N,C), which it may overwrite. The head has already written its
    // part of its weight's gradient.
    void (*backward)(Model* m, const Pass& pass, floatX* dhidden);
    size_t (*cache_bytes)(const Shape& shape);      // returns the bytes of the cache for one sequence
    // Null, or a function after the head's product: logits() changes n rows of logits (n,Vp) in place, and dlogits(),
    // called next for the same rows, replaces the gradient of its result by that of its input. The model itself keeps
    // what dlogits needs, in an array of m->chunk rows.
    void (*logits)(Model* m, floatX* logits, int n) = nullptr;
    void (*dlogits)(Model* m, floatX* dlogits, int n) = nullptr;
};
const ModelKind* find_kind(const ModelInfo* info);

// A tensor of the table as forward and backward use it. It converts to its pointer.
struct Weight {
    floatX* at = nullptr;
    int rows = 0, cols = 0;                 // a vector has one row
    const Model* pairs = nullptr;           // the model with the arrays of A and B (Trained); null: it has no pair
    size_t A = 0, B = 0;                    // where they begin in Model::trained
    operator const floatX*() const { return at; }
};

struct Model {
    const ModelKind* kind = nullptr;
    Shape shape;
    int B, T;                               // the largest batch that the arrays have room for
    int recompute;                          // 0 to 3: how much backward computes again to save memory; changes no bit
    bool training;                          // there are arrays for backward
    int chunk;                              // rows of logits that are computed at a time
    Arena arena;                            // where the table's tensors lie
    std::vector<Weight> weights = {};       // one for each tensor of the table
    std::vector<float*> grads = {};         // one for each tensor of the table; null for a frozen matrix
    floatX* all_weights = nullptr;          // the trained tensors, laid out as `trained`
    float* all_grads = nullptr;             // their gradients, likewise
    bool checked = false;                   // a pass has run in which every element of the gradients was checked
    Trained trained = {};                   // where the trained tensors lie
    std::vector<uint64_t> frozen_hashes = {};       // a hash of each frozen tensor, from model_create
    DocumentTokens documents = {};          // the tokenizer's, for a model that keeps documents apart
    std::any own = {};                      // the model's own arrays, a struct in its .cpp
    // Arrays that every model has.
    floatX* logits = nullptr;               // (chunk,Vp)
    float* losses = nullptr;                // (N)
    double* loss = nullptr;                 // (1)  sum of the losses, in order
    int *tokens = nullptr, *targets = nullptr;      // (N)
    floatX* dhidden = nullptr;              // (N,C)
    // Work space that only a frozen table needs.
    floatX *low = nullptr, *dlow = nullptr;         // (N,rank) each: x A^T, and its gradient
    floatX* wide = nullptr;                 // (N, the largest dimension of any matrix with a pair)
    float* unread = nullptr;                // gradients of frozen vectors, which are written and never read
    void* memory = nullptr;                 // the allocation that holds all arrays
    size_t memory_bytes = 0;
};

template <class Own> Own& own(Model* m) {
    if (!m->own.has_value()) m->own.emplace<Own>();
    return *std::any_cast<Own>(&m->own);
}

// dropout() returns the arguments of dropout at place number `site` of the model. drop() applies that dropout to inp
// (N,C), an activation or its gradient, and returns out. If the rate is 0, drop() only returns inp.
Dropout dropout(const Model* m, const Pass& pass, int site);
const floatX* drop(const Model* m, const Pass& pass, int site, floatX* out, const floatX* inp);

void check_device(const ModelInfo& info, const Shape& shape, bool on_gpu = kOnGpu);  // kExitUsage: it cannot run

// Returns a model without memory, whose sizes are those that it has on a GPU or a CPU. B, T: the largest batch.
// trained: what it trains; {}: its table.
Model model_plan(const ModelInfo* info, const Shape& shape, int B, int T, int recompute, bool training, bool on_gpu,
                 const Trained& trained = {});
// Sets *m and allocates its arrays. weights: laid out as m->trained. frozen: if the table is frozen, its weights;
// then *m has to stay where it is.
void model_create(Model* m, const ModelInfo* info, const Shape& shape, int B, int T, int recompute, floatX* weights,
                  bool training, const Trained& trained = {}, floatX* frozen = nullptr);
void model_destroy(Model* m);
void model_set_gradients(Model* m, float* grads);           // where passes write gradients, laid out as m->trained
// Returns the name of a frozen tensor that has changed in memory since model_create; "" if none has.
std::string changed_frozen_tensor(const Model& m);

// Enqueues forward and backward of one micro-batch. It writes the gradients of the summed loss and *result, both in
// device memory. tokens, targets: host, (B,T); they must not change before the device has read them.
//
// With pass.accumulate false it also checks that all gradients are written. After forward it writes kPoison to their
// first element in each unit, or in a model's first pass to all elements. Before it calls `ready` it searches for
// kPoison there, and sets result->unwritten.
void model_forward_backward(Model* m, const Pass& pass, PassResult* result, const int* tokens, const int* targets);

// Returns the sum of the losses (nats) of B*T tokens. losses: null, or host memory (B,T) for the loss of each token.
double model_loss(Model* m, const int* tokens, const int* targets, int B, int T, float* losses);

// Runs forward on n tokens that follow the `first` tokens in `cache` (device memory), and appends them to the cache.
// Writes the logits of the last token to logits (host, V floats).
void model_generate_step(Model* m, void* cache, const int* tokens, int first, int n, float* logits);

// Appends up to max_tokens tokens to `text`, which must not be empty. Calls more(token) for each, and stops when it
// returns false. The tokens depend on seed, stream and text only. When the context is full, generation starts a new one
// from its newer half and continues.
void generate(Model* m, std::vector<int>* text, int max_tokens, const SamplingParams& params,
              const std::function<bool(int)>& more);

// ---- linear layers, for all models: linear.cpp. If the matrix has a pair (Trained), the product has a second term,
// and only the pair gets gradients.

// out = inp weight^T + bias    inp (N,C), weight (OC,C), out (N,OC), bias may be null
void linear_forward(floatX* out, const floatX* inp, const Weight& weight, const floatX* bias, int N);

// pre = inp weight^T + bias,  out = gelu(pre)    pre (N,OC)
void linear_gelu_forward(floatX* out, floatX* pre, const floatX* inp, const Weight& weight, const floatX* bias, int N);

// dweight (+)= dout^T inp,  dbias (+)= sum over rows of dout,  dinp = dout weight
//   dout (N,OC); inp, dinp (N,C). These may be null: dbias if there is no bias, dweight if the matrix is frozen, inp if
//   the caller wants only dinp, dinp if the caller does not want it.
void linear_backward(floatX* dinp, float* dweight, float* dbias, const floatX* dout, const floatX* inp,
                     const Weight& weight, int N, bool accumulate);

// The same for inp = gelu(pre):  dpre = (dout weight) * gelu'(pre)    pre, dpre (N,C); dpre may be pre
void gelu_linear_backward(floatX* dpre, float* dweight, float* dbias, const floatX* dout, const floatX* inp,
                          const floatX* pre, const Weight& weight, int N, bool accumulate);

}  // namespace BACKEND
