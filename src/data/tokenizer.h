// tokenizer.h -- text to tokens and back: byte, char, and byte-level BPE as GPT-2, Llama 3, Qwen and SmolLM2 split it.
//
// A table of token -> bytes, and for BPE the merges; written as Hugging Face's tokenizer.json. The ids:
//      byte, bpe:N   0..255 the byte of that value, 256 end of text, then the merges in the order they were learnt
//      gpt2          0..255 the bytes in GPT-2's order (id 0 is '!'), 256 + k merge k, 50256 end of text
//      char          the characters in the order of their code points; no end of text
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

// How a text is cut into pieces; merges stay within them. A byte that is not UTF-8 is no letter, number or white space.
struct Split {
    const char *name, *gguf;                                // as users and as GGUF's tokenizer.ggml.pre have it
    std::string_view pre_tokenizer;                         // of tokenizer.json
    bool ignore_merges;                                     // a piece that is a token becomes that token
    bool nfc;                                               // text is first brought to Unicode's form NFC
    size_t (*next_piece)(std::string_view text);            // bytes of the piece at the start of text (not empty)
};
extern const Split splits[4];                               // gpt2, llama3, qwen2 (2.5 and 3, too), smollm (2)

struct Tokenizer {
    enum Kind { none, character, bpe } kind = none;         // none: tokens have no text; bpe without merges: bytes
    int vocab_size = 0;
    int eot = -1;                                           // end of text, stands before a document; -1: none
    std::string name;                                       // "byte", "char", "gpt2", "bpe:512", or its file
    std::string json = {};                                  // the tokenizer.json that it was read from, or empty
    Split split = splits[0];                                // of bpe
    std::vector<std::string> bytes = {};                    // of each token; empty for special and unused ones
    struct Merge { int left, right, merged; };
    std::vector<Merge> merges = {};                         // the earlier one goes first
    // Tokens that encode looks for before the split; normalized: after NFC. It finds special ones only on request.
    struct Added { int id; std::string text; bool special = true, normalized = false; };
    std::vector<Added> added = {};                          // "<|endoftext|>"; not special: "<tool_call>"
    struct Tables;
    std::shared_ptr<Tables> tables = {};                    // what encode looks up, and its cache

    // Appends the tokens of text. Names of special tokens are ordinary text, so that no text can spell a control token;
    // with_special finds them, like the tokenizers library. From 2^18 tokens on `some` is called and may remove them.
    // kExitBadContent for what char has not learnt. One thread at a time: copies share the cache.
    void encode(std::string_view text, std::vector<int>* tokens, const std::function<void()>& some = {},
                bool with_special = false) const;
    // The bytes of a token, none for special ones and for ids beyond, which a model may have and no text needs.
    std::string_view text(int token) const {
        return size_t(token) < bytes.size() ? bytes[size_t(token)] : std::string_view();
    }
    // tokenizer.json in this program's form. with_gaps: names numbers without a text, too, as data_hash always has.
    std::string own_json(bool with_gaps = false) const;
    std::string to_json() const { return json.empty() ? own_json() : json; }    // what was read, byte for byte
};

Tokenizer tokenizer_byte();
Tokenizer tokenizer_char(std::string_view text);
// Learns from the first 16 MiB of text.
Tokenizer tokenizer_train_bpe(std::string_view text, int vocab_size, const Split& split = splits[0]);
Tokenizer tokenizer_load(const std::string& path);  // vocab.bpe, tokenizer.json, or a folder with one; kExitNoInput
Tokenizer tokenizer_parse(std::string_view text, const std::string& path);      // of such a file; kExitBadContent
// --tokenizer's value. `text` is what char and bpe:N learn from; null when the data are tokens: then kExitUsage.
Tokenizer tokenizer_open(const std::string& option, const std::string_view* text);

// tokenizer.json of a trained model: its post_processor puts t.eot, if there is one, before a text, as training does.
std::string tokenizer_json_of_model(const Tokenizer& t);
// A tokenizer.json from GGUF's tokenizer.ggml.pre, and `rest`: all from the model's "vocab" on.
std::string tokenizer_json_of_gguf(const std::string& split, const std::string& rest, const std::string& path);

// Completes a tokenizer whose kind, name, bytes, merges and special tokens are set.
void tokenizer_finish(Tokenizer* t);
void tokenizer_add_end_of_text(Tokenizer* t);       // as the next token
inline uint64_t pair_key(int left, int right) { return uint64_t(uint32_t(left)) << 32 | uint32_t(right); }

// Streams decoded text without cutting a UTF-8 character: keeps up to 3 bytes back. What is not UTF-8 becomes U+FFFD.
struct Utf8Stream {
    std::string push(std::string_view bytes);
    std::string finish();
  private:
    std::string pending;
};
