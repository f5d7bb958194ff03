// prepare.h -- makes what training needs of data: the tokens, the vocabulary, the tokens of --prompt. It
// goes into a cache (src/base/cache.h), so that the next start on the same text reads it at once.
#pragma once
#include "src/data/data.h"
#include "tools/text/text.h"

// What --data, --val-data, --tokenizer, --chat-template and the model of --init mean together.
struct TextChoice {
    Sources sources;
    Tokenizer tokenizer;                    // its kind is none if tokens have no text
    ModelTexts texts;                       // of the model of --init, but for those that another tokenizer replaces
    ChatTemplate chat;                      // its form is null unless the data are conversations with a template
    bool packs = false;                     // rows have whole documents, or conversations
};
// Chooses. A tokenizer that learns from the text does so once; folder: the cache. kExitUsage, kExitBadContent.
TextChoice choose_text(const TextOptions& options, const std::string& folder, const Progress& progress);

template <class T> std::string json_list(const std::vector<T>& numbers) {
    std::string list = "[";
    for (const T n : numbers) list += (list.size() > 1 ? "," : "") + std::to_string(n);
    return list + "]";
}

// Makes the folder that the trainer reads (docs/data.md), and returns its path. folder: it is returned, and all that is
// made goes into it; "": all goes into the cache.
std::string prepare(const TextOptions& options, const std::string& folder, const Progress& progress);
