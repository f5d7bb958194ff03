// qwen3.h -- Qwen3: Llama with a norm of each head of q and k. See llama.h.
#pragma once
#include "models/llama.h"

inline const ModelInfo qwen3_info = {
    .name = "qwen3",
    .title = "Qwen3",
    .architecture = "Qwen3ForCausalLM",
    .keys = kLlamaKeys,
    .fixed = [](const Shape& c) { return llama_fixed(c, kQwen3); },
    .dropouts = {},
    .presets = {
        {"qwen3-nano", "", kLlamaNano},
        {"qwen3-0.6b", "", kLlamaRun + "layers 28 heads 16 kv-heads 8 head-size 128 channels 1024 mlp-size 3072 "
         "rope-theta 1000000 norm-eps 1e-6 seq-len 2048 batch-size 8 eval-steps 64 steps 24000 lr 3e-4"},
    },
    .gpu_preset = "qwen3-0.6b",
    .cuda = true,
    .check = [](Shape& c) { return llama_check(c, kQwen3); },
    .tensors = [](const Shape& c) { return llama_tensors(c, kQwen3); },
    .flops_per_token = llama_flops,
    .text = llama_text,
    .head_size = [](const Shape& c) { return LlamaSizes(c).HS; },
    .read = [](const Json& config, Shape* c, const char* what) { llama_read(config, c, kQwen3, what); },
};
