// model.h -- a model as a training step uses it. Each backend has a struct of functions that
// compute it, a ModelKind. The table is the list of its tensors, in arena order (shape.h).
//
// A model is NAME.h with its declaration (shape.h), NAME.cpp and a line in models/list. NAME.cpp
// defines `extern const ModelKind NAME_kind` in namespace BACKEND. A model of another one's family
// needs no files: the family's header declares it, and the family's source defines its kind.
// model.cpp has what all models share: memory, and the head. use.h declares what is done with a
// model beside training, losses/loss.h what training minimises.
#pragma once
#include <any>
#include <functional>
#include <map>
#include <span>
#include "kernels/kernels.h"
#include "models/shape.h"

namespace BACKEND {

// A callback for tensors [first, last) of a table.
using OnTensors = std::function<void(int first, int last)>;

// One pass over B sequences of T tokens.
struct Pass {
    int B, T;
    bool accumulate = false;            // parameter gradients are added ("+="), not written ("=")
    const StepState* state = nullptr;   // seed and step, for dropout; null: no dropout
    uint32_t micro_batch = 0;           // its number within the step
    // (B) numbers of the training samples, in host memory whose address stays the same from step to
    // step; null: other tokens.
    const uint64_t* samples = nullptr;
    // (B,T) where in its sequence each token's document begins; null: a sequence is one document.
    // The caller's is in host memory, which stays as `samples` does. A model gets device memory.
    const int* begin = nullptr;
    void* cache = nullptr;              // generation: of positions before `first`; B is 1
    int first = 0;                      // position of the first token
    double* measures = nullptr;         // where the model writes ModelInfo::measures; null: nowhere
    // Forward calls `needed` before it reads weights, because the all-gather may not have delivered
    // them yet. Backward calls `ready` when gradients are final, from the table's end to its start.
    // A model calls both with tensors of its table, in every pass. In training it gets wrappers,
    // which pass on the trained tensors that belong to them (model_forward_backward). The caller's
    // `ready` is empty but in a rank's last micro-batch of a step.
    OnTensors needed = [](int, int) {}, ready = {};
    int N() const { return B * T; }
};

// What a pass writes to device memory. Its memory is zero at first.
struct PassResult {
    double loss;                        // sum over the tokens, nats
    // 0 if all gradients are written; else from the first unwritten one to the arena's end.
    uint64_t unwritten;
    double measures[kMeasures];         // in the order of ModelInfo::measures
};

struct Model;

// Rows of logits, and what is wanted of them.
struct LossRows {
    floatX* logits;             // (n,Vp)
    float* losses;              // (n)      null: none are wanted, as in generation
    const int* targets;         // (n)      in 0..V-1, or -1 for a row whose loss and gradient are 0
    int n, V, Vp;
    bool backward;              // the logits become their gradient, 0 in columns V..Vp-1
    float* memory;              // (LossInfo::memory,n)
    const std::map<std::string, double>& hyper;
};

// The loss of a run by its name (losses/loss.h), and the values of options, its own among them.
struct ChosenLoss {
    std::string name = "cross-entropy";
    std::map<std::string, double> hyper = {};
};

// Does what `rows` asks for, by the run's loss. Without `backward` that is the cross entropy.
void run_loss(Model* m, const LossRows& rows);

struct ModelKind {
    // Lays out the arrays for passes of at most m->B sequences of at most m->T tokens. Those of
    // backward exist if m->training.
    void (*plan)(Model* m, Layout& place);
    // Computes the hidden states (N,C) for the head from m->tokens. Keeps what backward needs.
    const floatX* (*forward)(Model* m, const Pass& pass);
    // Computes all parameter gradients from dhidden (N,C), which it may overwrite. The head has
    // already written its part of its weight's gradient.
    void (*backward)(Model* m, const Pass& pass, floatX* dhidden);
    // Returns the bytes of the cache for one sequence.
    size_t (*cache_bytes)(const Shape& shape);
    // What follows the head's product. A model's own function may change the logits in place, for
    // scores and samples, too; then it calls run_loss; and if rows.backward is set, it replaces the
    // gradient of the changed logits by that of the head's.
    void (*loss)(Model* m, const LossRows& rows) = run_loss;
};

// A tensor of the table as forward and backward use it. It converts to its pointer.
struct Weight {
    floatX* at = nullptr;
    int rows = 0, cols = 0;             // a vector has one row
    const Model* pairs = nullptr;       // --lora: the model with its A and B (Trained); null: none
    size_t A = 0, B = 0;                // where these begin in Model::all_weights
    operator const floatX*() const { return at; }
};

struct Model {
    const ModelKind* kind = nullptr;
    Shape shape;
    int B, T;                           // the arrays have room for B sequences of T tokens
    int recompute;                      // 0 to 3: how much backward computes again; changes no bit
    bool training;                      // there are arrays for backward
    int chunk;                          // rows of logits that are computed at a time
    Arena arena;                        // where the table's tensors lie
    std::vector<Weight> weights = {};   // one for each tensor of the table
    std::vector<float*> grads = {};     // likewise; null for a frozen matrix
    DocumentTokens documents = {};      // the tokenizer's, for a model that keeps documents apart
    std::any own = {};                  // the model's own arrays, a struct in its .cpp
    // The arrays of the residual stream: in front of each block and behind the last.
    std::vector<std::span<floatX>> residuals = {};
    // Arrays that every model has.
    floatX* logits = nullptr;           // (chunk,Vp)
    float* losses = nullptr;            // (N)
    double* loss = nullptr;             // (1)  sum of the losses, in order
    ChosenLoss chosen_loss = {};        // what training minimises
    float* loss_memory = nullptr;       // (LossInfo::memory,chunk)
    int *tokens = nullptr, *targets = nullptr, *begin = nullptr;    // (N)
    floatX* dhidden = nullptr;          // (N,C)
    void* memory = nullptr;             // the allocation that holds all arrays
    size_t memory_bytes = 0;
    // The trained tensors are the table's, or with --lora those beside a frozen table.
    Trained trained = {};               // where they lie
    floatX* all_weights = nullptr;      // laid out as `trained`
    float* all_grads = nullptr;         // likewise
    bool checked = false;               // a pass has checked every element of the gradients
    // These are used if the table is frozen.
    floatX *low = nullptr, *dlow = nullptr;     // (N,rank)  x A^T, and its gradient
    floatX* wide = nullptr;             // (N, the largest dimension of any matrix with a pair)
    float* unread = nullptr;            // gradients of vectors, which are written and never read
    std::vector<uint64_t> frozen_hashes = {};   // of each tensor, from model_create
};

// Returns the model's own struct. The first call makes it.
template <class Own> Own& own(Model* m) {
    if (!m->own.has_value()) m->own.emplace<Own>();
    return *std::any_cast<Own>(&m->own);
}

// Places an array of the residual stream, which measurements read after a step: only forward may
// write to it.
inline void place_residual(Model* m, Layout& place, floatX*& array, size_t n) {
    place(array, n);
    m->residuals.push_back({array, n});
}

// dropout() returns the arguments of dropout at place number `site` of the model. drop() applies
// that dropout to inp (N,C), an activation or its gradient, and returns out. If the rate is 0, it
// only returns inp.
Dropout dropout(const Model* m, const Pass& pass, int site);
const floatX* drop(const Model* m, const Pass& pass, int site, floatX* out, const floatX* inp);

// Sets *m and allocates its arrays. weights: laid out as m->trained. frozen: if the table is
// frozen, its weights; then *m has to stay where it is.
void model_create(Model* m, const ModelInfo* info, const Shape& shape, int B, int T, int recompute,
                  floatX* weights, bool training, const Trained& trained = {},
                  floatX* frozen = nullptr, const ChosenLoss& loss = {});
void model_destroy(Model* m);
// Sets where passes write gradients, laid out as m->trained.
void model_set_gradients(Model* m, float* grads);

// Enqueues forward and backward of one micro-batch. Writes the gradients of the summed loss and
// *result, both in device memory. tokens, targets: host, (B,T); they must not change before the
// device has read them. In this order: copies the tokens; forward; marks the gradients; the head,
// which writes losses, dhidden and its part of its weight's gradient; backward. The marks check
// that all gradients are written, with pass.accumulate false: in a model's first pass of every
// element, later of the first of each unit. It searches for them before it calls `ready`, and sets
// result->unwritten. They wait for forward: until all weights have arrived, the last update may
// still read the gradients.
void model_forward_backward(Model* m, const Pass& pass, PassResult* result, const int* tokens,
                            const int* targets);
// Returns the sum of the losses (nats) of B*T tokens. losses: null, or host memory for each, (B,T).
// begin: as in Pass.
double model_loss(Model* m, const int* tokens, const int* targets, int B, int T, float* losses,
                  const int* begin = nullptr);

// ---- linear layers, for all models: linear.cpp. If the matrix has a pair (Trained), the product
// has a second term, and only the pair gets gradients.

// out = inp weight^T + bias    inp (N,C), weight (OC,C), out (N,OC), bias may be null
void linear_forward(floatX* out, const floatX* inp, const Weight& weight, const floatX* bias,
                    int N);

// pre = inp weight^T + bias,  out = gelu(pre)    pre (N,OC)
void linear_gelu_forward(floatX* out, floatX* pre, const floatX* inp, const Weight& weight,
                         const floatX* bias, int N);

// dweight (+)= dout^T inp,  dbias (+)= sum over rows of dout,  dinp = dout weight
//   dout (N,OC); inp, dinp (N,C). These may be null: dbias if there is no bias, dweight if the
//   matrix is frozen, inp if the caller wants only dinp, dinp if the caller does not want it.
void linear_backward(floatX* dinp, float* dweight, float* dbias, const floatX* dout,
                     const floatX* inp, const Weight& weight, int N, bool accumulate);

// The same for inp = gelu(pre):  dpre = (dout weight) * gelu'(pre)
//   pre, dpre (N,C); dpre may be pre
void gelu_linear_backward(floatX* dpre, float* dweight, float* dbias, const floatX* dout,
                          const floatX* inp, const floatX* pre, const Weight& weight, int N,
                          bool accumulate);

}  // namespace BACKEND
