// qwen3.h -- Qwen3: Llama with an RMSNorm of each head of q and k. See llama.h.
#pragma once
#include "models/llama.h"

void qwen3_read(const Json& config, Shape* shape, const char* what);
inline const ModelInfo qwen3_info =
    llama_family<kQwen3>("qwen3", "Qwen3", "Qwen3ForCausalLM", qwen3_presets, "qwen3-0.6b");
