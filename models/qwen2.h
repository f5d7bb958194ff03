// qwen2.h -- Qwen2 and Qwen2.5: Llama with biases of q, k and v. See llama.h.
#pragma once
#include "models/llama.h"

inline const ModelInfo qwen2_info = llama_family<kQwen2>("qwen2", "Qwen2", "Qwen2ForCausalLM", {
    {"qwen2-nano", "", kLlamaNano},
    {"qwen2.5-0.5b", "", kLlamaRun + "layers 24 heads 14 kv-heads 2 channels 896 mlp-size 4864 rope-theta 1000000 "
     "norm-eps 1e-6 seq-len 2048 batch-size 8 eval-steps 64 steps 20000 lr 3e-4"},
}, "qwen2.5-0.5b");
