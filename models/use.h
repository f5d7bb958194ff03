// use.h -- what is done with a model beside training: planning its memory, auditing it, generating
// tokens. The functions are in model.cpp.
#pragma once
#include "models/model.h"

struct SamplingParams {
    double temperature = 1;     // 0: always the token with the largest logit
    int top_k = 0;              // only this many of the likeliest tokens can be chosen; 0: all
    // Only the smallest set of tokens that has this probability can be chosen: Holtzman et al.
    // 2020.
    double top_p = 1;
    uint64_t seed = 0;
    uint32_t stream = 0;        // separates the samples of one seed
    int tokens = 0;             // only ids below this can be chosen; 0: all ids
};

namespace BACKEND {

// kExitUsage for a model that the device cannot run. on_gpu: whether it is a GPU.
void check_device(const ModelInfo& info, const Shape& shape, bool on_gpu = kOnGpu);

// Returns a model without memory, whose sizes are those that it has on a GPU or a CPU. B, T: the
// largest batch. trained: what it trains; {}: its table. loss: of training.
Model model_plan(const ModelInfo* info, const Shape& shape, int B, int T, int recompute,
                 bool training, bool on_gpu, const Trained& trained = {},
                 const ChosenLoss& loss = {});

// Returns the name of a frozen tensor that has changed in memory since model_create, or "".
std::string changed_frozen_tensor(const Model& m);

// Runs forward on n tokens that follow the `first` tokens in `cache` (device memory), and appends
// them to the cache. Writes the logits of the last token to logits (host, V floats).
void model_generate_step(Model* m, void* cache, const int* tokens, int first, int n, float* logits);

// Appends up to max_tokens tokens to `text`, which must not be empty. Calls more(token) for each,
// and stops when it returns false. The tokens depend on seed, stream and text only. When the
// context is full, generation starts a new one from its newer half and continues.
void generate(Model* m, std::vector<int>* text, int max_tokens, const SamplingParams& params,
              const std::function<bool(int)>& more);

}  // namespace BACKEND
