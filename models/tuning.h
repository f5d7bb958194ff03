// tuning.h -- LoRA adapters as tensors and as files: lora.cpp. Models compute with Trained (shape.h).
#pragma once
#include <utility>
#include "models/shape.h"
#include "src/checkpoint/safetensors.h"

// Adapters are in a PEFT folder with these two files. base: the folder of the frozen model.
constexpr const char *kTunedConfig = "adapter_config.json", *kTunedWeights = "adapter_model.safetensors";

// Returns the adapters of the table's matrices, which --lora rank, --lora-alpha and --lora-targets ask for. kExitUsage
// if these do not fit the table.
Trained adapters_of(const std::vector<TensorSpec>& table, int rank, double alpha, const std::string& targets);
// Returns a matrix's A and B. PEFT's name of A is "base_model.model.model.x.lora_A.weight" for "model.x.weight".
std::pair<TensorSpec, TensorSpec> adapter_of(const std::string& matrix, size_t rows, size_t cols, size_t rank);

std::string tuned_config_json(int rank, double alpha, const std::string& targets, const std::vector<TensorSpec>& table,
                              const std::string& base);

// Adds scale B A to a matrix w (rows,cols). files: A (rank,cols) and B (rows,rank).
void add_adapter(float* w, size_t rows, size_t cols, size_t rank, float scale, const std::vector<SafeTensor>& files);
