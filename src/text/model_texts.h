// model_texts.h -- the text files of a model's folder that say how its tokens are read, as Hugging Face reads them.
#pragma once
#include <string>
#include <utility>
#include <vector>
#include "src/data/data.h"
#include "src/text/chat.h"
#include "src/text/tokenizer.h"

// Returns what training needs to know of a tokenizer, without `files`.
Vocabulary vocabulary_of(const Tokenizer& tokenizer, const ChatTemplate& chat);
// Returns names and contents of tokenizer.json, tokenizer_config.json, chat_template.jinja and generation_config.json.
// What came with the model of --init is kept, unless the run trains on conversations. Without a tokenizer there are no
// files.
std::vector<std::pair<std::string, std::string>> tokenizer_files(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                                                 const DataOptions& options);
