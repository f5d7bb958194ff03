// vocabulary.h -- what the trainer knows of a tokenizer: the bytes of each token, the tokens that begin and end a text,
// and the files that it copies into checkpoints unread. build/prep writes such a folder, and the trainer reads it:
//
//     vocabulary.json  names and numbers    bytes.bin  u32 length and bytes of each token    files/  tokenizer.json ...
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

struct Vocabulary {
    std::string name = "none";              // of the tokenizer: "byte", "gpt2", its file; "none": tokens have no text
    int tokens = 0;                         // how many the tokenizer has; a model may have more
    std::vector<int> ends = {};             // tokens that end a text or a turn
    std::vector<int> untrained = {};        // control tokens of the data whose rows in the model are not trained
    std::string config = "{}";              // members that config.json gets: which tokens begin and end a text
    bool chats = false;                     // the training data are conversations
    bool is_bpe = false;                    // GGUF has a form for it
    std::vector<std::string> bytes = {};    // of each of the model's tokens; empty for control tokens and unused ids
    std::vector<std::pair<std::string, std::string>> files = {};    // names and contents

    bool has_text() const { return !bytes.empty(); }
    // Returns a token's bytes. Control tokens have none; neither have ids that are none.
    std::string_view text(int token) const {
        return size_t(token) < bytes.size() ? bytes[size_t(token)] : std::string_view();
    }
};
void write_vocabulary(const Vocabulary& vocabulary, const std::string& folder);     // an empty folder; kExitWrite
Vocabulary read_vocabulary(const std::string& folder);                              // kExitNoInput, kExitBadContent
std::string vocabulary_content(const Vocabulary& vocabulary);                       // what identifies it: all of it
