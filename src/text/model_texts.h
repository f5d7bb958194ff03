// model_texts.h -- the text files of a model's folder that say how its tokens are read, as Hugging Face reads them.
#pragma once
#include <string>
#include <utility>
#include <vector>
#include "src/data/data.h"
#include "src/text/chat.h"
#include "src/text/tokenizer.h"

// Returns what training needs to know of a tokenizer, without `files`. config: the text of the model's config.json;
// "": it is a new one.
Vocabulary vocabulary_of(const Tokenizer& tokenizer, const ChatTemplate& chat, const std::string& config);
// Returns names and contents of tokenizer.json, tokenizer_config.json, chat_template.jinja, generation_config.json and
// special_tokens_map.json. Those of the model of --init stay as they are; conversations change the tokens and the
// template that they use. A tokenizer that is not read (kind none) stays, too.
std::vector<std::pair<std::string, std::string>> tokenizer_files(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                                                 const DataOptions& options);
