// config.h -- what a model's folder has beside its weights: config.json of Hugging Face's models,
// and LoRA adapters. tools/text/config_reader.h reads config.json.
#pragma once
#include <utility>
#include "models/shape.h"
#include "src/checkpoint/safetensors.h"

struct ModelConfig {
    const ModelInfo* info = nullptr;
    Shape shape;
    std::string text = "";          // the config.json that this was read from; "": a new model
};

// Returns the text of config.json: config.text with the values of `shape` and with the members of
// the object `changes`.
std::string config_json(const ModelConfig& config, const std::string& changes = "{}");
// Returns the text of an integer, or of a float with the fewest digits that read back as the same
// float.
std::string number_text(double x);

// ---- LoRA adapters as tensors and as files. linear.cpp computes with them, by what Trained says
// (shape.h).

// Adapters are in a PEFT folder with these two files. base: the folder of the frozen model.
constexpr const char *kTunedConfig = "adapter_config.json",
                     *kTunedWeights = "adapter_model.safetensors";

// Returns the adapters of the table's matrices, which --lora rank, --lora-alpha and --lora-targets
// ask for. kExitUsage if these do not fit the table.
Trained adapters_of(const std::vector<TensorSpec>& table, int rank, double alpha,
                    const std::string& targets);
// Returns a matrix's A and B. PEFT's name of A is "base_model.model.model.x.lora_A.weight" for
// "model.x.weight".
std::pair<TensorSpec, TensorSpec> adapter_of(const std::string& matrix, size_t rows, size_t cols,
                                             size_t rank);

// Returns the text of kTunedConfig.
std::string tuned_config_json(int rank, double alpha, const std::string& targets,
                              const std::vector<TensorSpec>& table, const std::string& base);

// Adds scale B A to a matrix w (rows,cols). files: A (rank,cols) and B (rows,rank).
void add_adapter(float* w, size_t rows, size_t cols, size_t rank, float scale,
                 const std::vector<SafeTensor>& files);
