// tokenizer.h -- text to tokens and back: byte, char, and byte-level BPE as GPT-2, Llama 3, Qwen and SmolLM2 split it.
//
// A tokenizer is a table of each token's bytes and, for BPE, the merges. It is written as Hugging Face's
// tokenizer.json. The ids are:
//      byte, bpe:N   0..255 the byte of that value, 256 end of text, then the merges in the order they were learnt
//      gpt2          0..255 the bytes in GPT-2's order (id 0 is '!'), 256 + k merge k, 50256 end of text
//      char          the characters in the order of their code points; no end of text
// In these the end of text stands before each document, and so between two.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>
#include "src/base/json.h"

// How a text is cut into pieces; merges stay within them. A byte that is not UTF-8 is no letter, number or white space.
struct Split {
    const char *name, *gguf;                                // its name in --tokenizer and in GGUF's tokenizer.ggml.pre
    std::string_view pre_tokenizer;                         // its text in tokenizer.json
    bool ignore_merges;                                     // a piece that is a token becomes that token
    bool nfc;                                               // text is first normalized to Unicode's form NFC
    size_t (*next_piece)(std::string_view text);            // bytes of the piece at the start of text (not empty)
};
extern const Split splits[4];                               // gpt2, llama3, qwen2 (2.5 and 3, too), smollm (2)

// The names of control tokens that texts spell: how many, and the first.
struct Spelled {
    uint64_t count = 0;
    std::string first = {};
    // Warns of names that stay text, if there are any. message: they stand in the content of one.
    void warn(const std::string& where, bool message) const;
};

struct Tokenizer {
    enum Kind { none, character, bpe } kind = none;         // none: tokens have no text; bpe without merges: bytes
    int vocab_size = 0;
    int begin = -1, eot = -1;                               // stand before and behind a document; -1: none does
    int bos = -1;                                           // with which a text without a beginning begins; -1: none
    std::vector<int> ends = {};                             // all that end a text, eot first
    bool own = false;                                       // made by this program, which puts eot before a document
    bool guessed = false;                                   // eot is known by its name alone
    bool names = false;                                     // --special-tokens: names in texts are the control tokens
    std::string name;                                       // "byte", "char", "gpt2", "bpe:512", or its file
    std::string json = {};                                  // the tokenizer.json that it was read from, or empty
    Split split = splits[0];                                // of bpe
    std::vector<std::string> bytes = {};                    // of each token; empty for special and unused ones
    struct Merge { int left, right, merged; };
    std::vector<Merge> merges = {};                         // by rank: an earlier one is made first
    // Tokens whose text encode finds before the split: normalized ones after NFC, special ones only on request.
    struct Added { int id; std::string text; bool special = true, normalized = false; };
    std::vector<Added> added = {};                          // "<|endoftext|>"; not special: "<tool_call>"
    std::vector<std::string> unplaced = {};                 // names that the model's files have without an id
    struct Tables;
    std::shared_ptr<Tables> tables = {};                    // what encode looks up, and its cache

    // Appends the tokens of text. Names of special tokens are ordinary text, so that no text can spell a control token;
    // with_special finds them, like the tokenizers library. `some` is called whenever there are 2^18 tokens or more,
    // and may remove them. kExitBadContent: a character that `char` has not learnt. One thread at a time may use a
    // tokenizer and its copies, which share the cache. Returns how many bytes more the text has than after NFC.
    int64_t encode(std::string_view text, std::vector<int>* tokens, const std::function<void()>& some = {},
                   bool with_special = false) const;
    // Appends a document: begin, its text, and eot. If these are the same, it stands before the text alone. With
    // `names` a text that begins or ends with the name of such a token has no second one.
    int64_t encode_document(std::string_view text, std::vector<int>* tokens,
                            const std::function<void()>& some = {}) const;
    void find_names(std::string_view text, Spelled* found) const;   // adds those of special tokens
    // Whether, with `names`, text begins with the name of a special token; token: of this one.
    bool begins_with_name(std::string_view text, int token = -1) const;
    // Returns `at`, or where the special token's name begins that contains it.
    size_t outside_names(std::string_view text, size_t at) const;
    void require_names() const;                             // kExitUsage: `names` without any
    // Returns a token's bytes. Special tokens have none; neither have ids after the last one, which a model may have.
    std::string_view text(int token) const {
        return size_t(token) < bytes.size() ? bytes[size_t(token)] : std::string_view();
    }
    // Returns how many bytes of a token count in bits per byte: none of one that begins or ends a text.
    size_t counted(int id) const { return id == begin || std::ranges::count(ends, id) ? 0 : text(id).size(); }
    std::string name_of(int token) const;                   // the text of a control token; "": it is none
    // Returns tokenizer.json as this program writes it. with_gaps: also lists ids without a text; data_hash needs that.
    std::string own_json(bool with_gaps = false) const;
    std::string to_json() const { return json.empty() ? own_json() : json; }    // what was read, byte for byte
};

Tokenizer tokenizer_byte();
Tokenizer tokenizer_char(std::string_view text);
// Learns from the first 16 MiB of text.
Tokenizer tokenizer_train_bpe(std::string_view text, int vocab_size, const Split& split = splits[0]);
Tokenizer tokenizer_load(const std::string& path);  // vocab.bpe, tokenizer.json, or a folder with one; kExitNoInput
Tokenizer tokenizer_parse(std::string_view text, const std::string& path);      // text: of such a file; kExitBadContent
// kExitNoInput if a folder has an older form of tokenizer.json instead: vocab.json and merges.txt.
void refuse_older_form(const std::string& folder);
// Returns the tokenizer that --tokenizer means. text: what char and bpe:N learn from. It is null if the data are
// tokens; then these two are kExitUsage.
Tokenizer tokenizer_open(const std::string& option, const std::string_view* text);

// Returns an item of tokenizer.json's list added_tokens, and such a file with more items at the end of that list.
std::string added_item(const Tokenizer::Added& token);
std::string with_added(std::string json, const std::string& items);

// Returns tokenizer.json for a trained model. If this program made it, its post_processor puts t.begin before a text,
// as training does. Another one is the file byte for byte.
std::string tokenizer_json_of_model(const Tokenizer& t);

struct ModelTexts;                              // src/data/data.h
// Returns the tokens that a model's tokenizer_config.json and special_tokens_map.json name: "eos_token" and "</s>".
std::map<std::string, std::string> special_tokens(const ModelTexts& texts);
// Sets begin, eot, bos and ends by what the files say. tokenizer_ends.cpp has the rule, and says in a line what the
// files leave open. Adds the tokens that files beside tokenizer.json give an id and it lacks. where: the path of
// tokenizer.json. kExitBadContent: an id that is no number, or another than transformers gives the token.
void read_ends(Tokenizer* t, const ModelTexts& texts, const std::string& where);
// Sets begin and eot by tokenizer.json's post_processor. Where it puts nothing behind a text, eot is `guess`.
void read_post_processor(Tokenizer* t, const Json& root, int guess, const std::string& where);
Tokenizer::Added end_by_name(const Tokenizer& t);       // the special token that ends texts by its name; id -1: none
// Returns tokenizer.json for a GGUF file. split: its tokenizer.ggml.pre; rest: all from the model's "vocab" on; begin:
// the token before a text, or -1.
std::string tokenizer_json_of_gguf(const std::string& split, const std::string& rest, int begin,
                                   const std::string& path);

// Completes a tokenizer whose kind, name, bytes, merges and special tokens are set.
void tokenizer_finish(Tokenizer* t);
void tokenizer_add_end_of_text(Tokenizer* t);       // as the next token
void tokenizer_own(Tokenizer* t, int eot);          // sets eot, and all that follows from it in this program's own
inline uint64_t pair_key(int left, int right) { return uint64_t(uint32_t(left)) << 32 | uint32_t(right); }
