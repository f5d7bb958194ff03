// qwen2.h -- Qwen2 and Qwen2.5: Llama with biases of q, k and v. See llama.h.
#pragma once
#include "models/llama.h"

inline const ModelInfo qwen2_info = {
    .name = "qwen2",
    .title = "Qwen2",
    .architecture = "Qwen2ForCausalLM",
    .keys = kLlamaKeys,
    .fixed = [](const Shape& c) { return llama_fixed(c, kQwen2); },
    .dropouts = {},
    .presets = {
        {"qwen2-nano", "", kLlamaNano},
        {"qwen2.5-0.5b", "", kLlamaRun + "layers 24 heads 14 kv-heads 2 channels 896 mlp-size 4864 rope-theta 1000000 "
         "norm-eps 1e-6 seq-len 2048 batch-size 8 eval-steps 64 steps 20000 lr 3e-4"},
    },
    .gpu_preset = "qwen2.5-0.5b",
    .cuda = true,
    .check = [](Shape& c) { return llama_check(c, kQwen2); },
    .tensors = [](const Shape& c) { return llama_tensors(c, kQwen2); },
    .flops_per_token = llama_flops,
    .text = llama_text,
    .head_size = [](const Shape& c) { return LlamaSizes(c).HS; },
    .read = [](const Json& config, Shape* c, const char* what) { llama_read(config, c, kQwen2, what); },
};
