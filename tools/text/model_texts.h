// model_texts.h -- the text files of a model's folder that say how its tokens are read, as Hugging Face reads them.
#pragma once
#include <string>
#include <utility>
#include <vector>
#include "src/data/data.h"
#include "tools/text/chat.h"
#include "tools/text/tokenizer.h"

// Returns what training needs to know of a tokenizer, without `files`. config: the text of the model's config.json;
// "": it is a new one.
Vocabulary vocabulary_of(const Tokenizer& tokenizer, const ChatTemplate& chat, const std::string& config);
// Returns names and contents of the files, but config.json. Those of the model of --init, `texts`, stay as they are.
// Conversations change the tokens and the template that they use, and a context T that is not the model's changes
// model_max_length. A tokenizer that is not read (kind none) stays, too.
std::vector<std::pair<std::string, std::string>> tokenizer_files(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                                                 ModelTexts texts, int T);
