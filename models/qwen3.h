// qwen3.h -- Qwen3: Llama with a norm of each head of q and k. See llama.h.
#pragma once
#include "models/llama.h"

inline const ModelInfo qwen3_info = llama_family<kQwen3>("qwen3", "Qwen3", "Qwen3ForCausalLM", {
    {"qwen3-nano", "", kLlamaNano},
    {"qwen3-0.6b", "", kLlamaRun + "layers 28 heads 16 kv-heads 8 head-size 128 channels 1024 mlp-size 3072 "
     "rope-theta 1000000 norm-eps 1e-6 seq-len 2048 batch-size 8 eval-steps 64 steps 24000 lr 3e-4"},
}, "qwen3-0.6b");
