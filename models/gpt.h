// gpt.h -- GPT-2: its shape, its one tensor table, and the functions the trainer calls. Keep this file open while reading gpt.cpp.
//
// The model is a pre-LayerNorm transformer with learned positions, tanh-GELU and a tied head (Radford et al. 2019):
//
//     x = wte[token] + wpe[position]
//     x = x + attproj(attention(qkv(ln1(x))))            L times
//     x = x + fcproj(gelu(fc(ln2(x))))
//     logits = lnf(x) wte^T
//
// Compiled once per backend: everything here lives in namespace BACKEND. Nothing here knows which backend it is.
#pragma once
#include <functional>
#include <vector>
#include "arena.h"
#include "kernels.h"

namespace BACKEND {

struct GptConfig {
    int L, NH, C;           // layers, heads, channels
    int maxT;               // context length
    int V, Vp;              // vocabulary; rows of wte in memory, V rounded up to 16. Rows V..Vp-1 stay zero
    float dropout;          // embedding, attention and residual
};

// The table: every parameter once, in memory order. Allocation, initialisation, decay, checkpoint names, gradient buckets and
// the errors of the start-up checks all read it.
std::vector<TensorSpec> gpt_tensors(const GptConfig& config);
size_t gpt_parameters(const GptConfig& config);               // without padding rows; the tied head once
double gpt_flops_per_token(const GptConfig& config, int T);   // forward and backward: 6 N + 6 L C T, N = parameters in matmuls

// Pointers into an arena, resolved once. T is floatX* for weights, float* for gradients.
template <class F> struct GptTensors {
    struct Block {
        F *ln1w, *ln1b;         // (C)
        F *qkvw, *qkvb;         // (3C,C) (3C)    rows: q of all heads, then k, then v
        F *attprojw, *attprojb; // (C,C) (C)
        F *ln2w, *ln2b;         // (C)
        F *fcw, *fcb;           // (4C,C) (4C)
        F *fcprojw, *fcprojb;   // (C,4C) (C)
    };
    F *wte, *wpe;               // (Vp,C) (maxT,C)
    std::vector<Block> block;   // L
    F *lnfw, *lnfb;             // (C)
};

// What forward leaves for backward. With --recompute some of it is one array that all blocks share, and backward fills it again:
//   1  gelu     2  ln1, ln2 too     3  everything of a block but its output, from its input
struct GptActivations {
    struct Block {
        floatX *ln1;                // (N,C)
        float *ln1_mean, *ln1_rstd; // (N)
        floatX *qkv;                // (N,3C)
        floatX *att;                // (N,C)
        float *lse;                 // (B,NH,T)
        floatX *residual2;          // (N,C)    after attention
        floatX *ln2;                // (N,C)
        float *ln2_mean, *ln2_rstd; // (N)
        floatX *fc, *gelu;          // (N,4C)   before and after the activation
        floatX *residual3;          // (N,C)    after the MLP: the next block's input
    };
    floatX *encoded;                // (N,C)
    std::vector<Block> block;       // L
    floatX *branch;                 // (N,C)    output of the last projection, before it joins the residual stream
    floatX *lnf;                    // (N,C)
    float *lnf_mean, *lnf_rstd;     // (N)
    floatX *logits;                 // (chunk,Vp)  a chunk of rows at a time: the whole of them never exists
    float *losses;                  // (N)
    double *loss;                   // (1)      their sum, in order
    // backward
    floatX *dresidual;              // (N,C)    the residual stream's gradient, carried from the head to the embedding
    floatX *dbranch;                // (N,C)
    floatX *dwide;                  // (N,4C)   gradient of fc, and of qkv
    floatX *dnorm;                  // (N,C)    gradient of a LayerNorm's output
    float *delta;                   // (B,NH,T)
    int *tokens, *targets;          // (N)
};

struct Activation { const char* name; size_t bytes; int count; std::vector<void**> pointers; };    // count 1: all pointers are to one array

// Called with tensors [first, last) of the table: `needed` before forward reads their weights, which may still be on their way from other
// ranks; `ready` as soon as backward has written their gradients for the last time in this pass. Either may be null.
using OnTensors = std::function<void(int first, int last)>;

struct Gpt {
    GptConfig config;
    Arena arena;                    // offsets of the table's tensors
    GptTensors<floatX> w;
    GptTensors<float> d;
    GptActivations act;
    void* memory;                   // of the activations
    size_t activation_bytes;
    int B, T;                       // what the activations have room for
    int chunk;                      // rows of logits at a time
    int recompute;                  // 0 to 3, see GptActivations; the bits do not depend on it
};

// The activations: what gpt_create will allocate. The pointers are of `act`.
std::vector<Activation> gpt_plan(GptActivations* act, const GptConfig& config, int B, int T, int recompute, bool training);

// Error 2 for more channels than this device's LayerNorm takes.
void check_channels(int channels);

// weights: an arena of arena.n elements, laid out by gpt_tensors. B, T: the largest batch. training: room for backward too.
void gpt_create(Gpt* model, const GptConfig& config, int B, int T, int recompute, floatX* weights, bool training);
void gpt_destroy(Gpt* model);
// Points model->d at an arena of gradients: one of the buffers of the reduction tree.
void gpt_set_gradients(Gpt* model, float* grads);

// Sum of the losses (nats) over B*T tokens. tokens, targets: host, (B,T). losses: per token, host, (B,T), or null.
double gpt_loss(Gpt* model, const int* tokens, const int* targets, int B, int T, float* losses, Stream stream);

// Forward and backward of one leaf of model->B x model->T tokens: gradients of the summed loss "=" or "+=" into model->d,
// the summed loss into loss[0] (memory of the device, so that nobody waits for it here). tokens and targets are host memory and
// stay as they are until the stream has read them.
void gpt_forward_backward(Gpt* model, double* loss, const int* tokens, const int* targets, bool accumulate,
                          const StepState* state, uint32_t leaf, const OnTensors& needed, const OnTensors& ready, Stream stream);

// Generation with a cache of keys and values: feeds n tokens after the `first` already cached, and returns in `logits`
// (host, V floats) those of the last one. first + n <= maxT.
struct GptCache { floatX* kv; };    // (L,2,NH,maxT,HS)
void gpt_cache_create(GptCache* cache, const GptConfig& config);
void gpt_cache_destroy(GptCache* cache);
void gpt_generate_step(Gpt* model, GptCache* cache, const int* tokens, int first, int n, float* logits, Stream stream);

}  // namespace BACKEND
