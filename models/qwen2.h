// qwen2.h -- Qwen2 and Qwen2.5: Llama with biases for q, k and v. See llama.h.
#pragma once
#include "models/llama.h"

void qwen2_read(const Json& config, Shape* shape, const char* what);
inline const ModelInfo qwen2_info =
    llama_family<kQwen2>("qwen2", "Qwen2", "Qwen2ForCausalLM", qwen2_presets, "qwen2.5-0.5b");
