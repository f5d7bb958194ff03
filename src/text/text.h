// text.h -- reads the texts that --data means, finds their documents and their part for validation, and encodes them.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>
#include "src/data/shards.h"
#include "src/text/chat.h"

// Called often while a function works, with the tokens made so far. It may throw.
using Progress = std::function<void(uint64_t tokens)>;

// Returns text without the byte order mark with which it may begin.
inline std::string_view without_mark(std::string_view text) {
    return text.substr(text.starts_with("\xef\xbb\xbf") ? 3 : 0);
}
inline bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == line.npos; }
size_t nine_tenths(std::string_view text);  // the byte at which character floor(9 n / 10) of n begins

// Does find_source's work and also tells apart the kinds of .jsonl.
Source find_texts(const std::string& path);

// The text of a source. Its parts are documents, or one text, or the two parts of one if its end is for validation.
struct Text {
    std::string all;
    std::vector<size_t> ends;               // of the parts, in `all`; only the first of a cut text may be empty
    size_t documents = 0, train = 0;        // how many parts begin a document; how many are for training
    std::vector<Conversation> conversations = {};   // part i is the text of conversation i
    void add(std::string_view part) {
        if (!part.empty()) ends.push_back(all.append(part).size());
    }
};

// Reads the text of a source. split: keeps a part for validation. kExitBadContent names file and line.
Text read_text(const Source& source, bool split, const Progress& progress);

// Appends the tokens of a text to *out, `width` bytes each. Returns how many tokens are for training.
uint64_t encode_text(const Text& text, const Tokenizer& tokenizer, size_t width, std::vector<char>* out,
                     const Progress& progress);
// Appends a window of T tokens of 4 bytes for each conversation. The last target of a window is the first token of the
// next one, which is untrained, so one more token follows the last window for training, and another the last for
// validation. Returns how many tokens are for training. *note: statistics for the user.
uint64_t encode_conversations(const Text& text, const Tokenizer& tokenizer, const ChatTemplate& chat, int T,
                              std::vector<char>* out, std::string* note, const Progress& progress);
