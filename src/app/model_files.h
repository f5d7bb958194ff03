// model_files.h -- the small files that stand beside a checkpoint's weights, as Hugging Face and llama.cpp read them.
#pragma once
#include <string>
#include <utility>
#include <vector>
#include "src/app/init.h"

// config.json, with the tokens that begin a text and end it, or with conversations a turn.
std::string model_config_json(const ModelInfo* info, const Shape& shape, const Data& data, const Init& init);

// tokenizer.json, the names of its tokens, the chat template, and where an answer ends: names and contents. What came
// with a model is kept, unless the run trains on conversations. None without a tokenizer.
std::vector<std::pair<std::string, std::string>> tokenizer_files(const Data& data, const Init& init);
