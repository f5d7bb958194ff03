// model_files.h -- the small files that stand beside a checkpoint's weights, as Hugging Face and llama.cpp read them.
#pragma once
#include <string>
#include "src/app/init.h"
#include "src/checkpoint/checkpoint.h"

// Returns config.json: that of the model of `init`, if there is one, with what the run changes.
std::string model_config_json(const ModelInfo* info, const Shape& shape, const Data& data, const Init& init);

// With --lora adds to a checkpoint's files that its weights are adapters of the model in init.folder. Rank 0.
void describe_adapters(CheckpointFiles* files, const Options& options, const Init& init);
