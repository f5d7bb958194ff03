// tuning.h -- LoRA adapters as tensors and as files: lora.cpp. Models compute with Trained (shape.h).
#pragma once
#include "models/shape.h"

// Adapters are in a PEFT folder with these two files. base: the folder of the frozen model.
constexpr const char *kTunedConfig = "adapter_config.json", *kTunedWeights = "adapter_model.safetensors";

// Returns the adapters of the table's matrices, which --lora rank, --lora-alpha and --lora-targets ask for. kExitUsage
// if these do not fit the table.
Trained adapters_of(const std::vector<TensorSpec>& table, int rank, double alpha, const std::string& targets);

std::string tuned_config_json(int rank, double alpha, const std::string& targets, const std::vector<TensorSpec>& table,
                              const std::string& base);
bool is_tuned(const std::string& folder);       // whether the folder has adapters
struct Tuned { std::string base; size_t rank; float scale; };       // of adapter_config.json; scale: of B A
Tuned read_tuned(const std::string& folder);    // kExitBadContent, also for settings that are not computed here
// Adds the adapters in a PEFT folder to the weights of their model. kExitBadContent if they do not fit.
void load_tuned(float* weights, const Arena& arena, const std::string& folder);
