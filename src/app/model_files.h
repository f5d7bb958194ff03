// model_files.h -- the small files that stand beside a checkpoint's weights, as Hugging Face and llama.cpp read them.
#pragma once
#include <string>
#include <utility>
#include <vector>
#include "src/app/init.h"
#include "src/checkpoint/checkpoint.h"

// Returns config.json. Its bos token begins a text, its eos token ends one, or with conversations a turn.
std::string model_config_json(const ModelInfo* info, const Shape& shape, const Data& data, const Init& init);

// Names and contents of tokenizer.json, tokenizer_config.json, chat_template.jinja and generation_config.json. What
// came with a model is kept, unless the run trains on conversations. None without a tokenizer.
std::vector<std::pair<std::string, std::string>> tokenizer_files(const Data& data, const Init& init);

// With --lora says in a checkpoint's files that their weights are adapters, and of which model: init.folder. Rank 0.
void describe_adapters(CheckpointFiles* files, const Options& options, const Init& init);
