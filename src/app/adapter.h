// adapter.h -- reads and writes adapters in PEFT's form: a folder with adapter_config.json and
// adapter_model.safetensors. Names and meanings are those of peft 0.17, config.py and lora/config.py.
#pragma once
#include "models/lora.h"

constexpr const char *kAdapterConfig = "adapter_config.json", *kAdapterWeights = "adapter_model.safetensors";

bool is_adapter(const std::string& folder);
// Returns the text of adapter_config.json. table: tensors of the model that the adapters belong to; base: its folder.
std::string adapter_config_json(const Lora& lora, const std::vector<TensorSpec>& table, const std::string& base);
struct AdapterConfig { std::string base; size_t rank; double scale; };       // base: the model it belongs to
// These read adapter_config.json. kExitBadContent, also for settings that W += scale B A cannot express.
AdapterConfig parse_adapter_config(std::string_view text, const char* what);
AdapterConfig read_adapter_config(const std::string& folder);
// Adds an adapter of any rank to weights laid out by `arena`: W += scale B A. kExitBadContent if it does not fit them.
void merge_adapter(float* weights, const Arena& arena, const std::string& folder);
