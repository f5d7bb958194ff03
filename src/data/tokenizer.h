// tokenizer.h -- text to tokens and back: byte, char, and byte-level BPE exactly as GPT-2 splits it.
//
// A table of token -> bytes, and for BPE the merges; written as Hugging Face's tokenizer.json. The ids:
//      byte, bpe:N   0..255 the byte of that value, 256 end of text, then the merges in the order they were learnt
//      gpt2          0..255 the bytes in GPT-2's order (id 0 is '!'), 256 + k merge k, 50256 end of text
//      char          the characters in the order of their code points; no end of text
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct Tokenizer {
    enum Kind { none, character, bpe } kind = none;         // none: tokens have no text; bpe without merges: bytes
    int vocab_size = 0;
    int eot = -1;                                           // end of text, stands before a document; -1: none
    std::string name;                                       // "byte", "char", "gpt2", "bpe:512", or its file
    std::vector<std::string> bytes;                         // of each token; empty for special ones
    struct Merge { int left, right, merged; };
    std::vector<Merge> merges;                              // the earlier one goes first
    struct Special { int id; std::string text; };
    std::vector<Special> special;                           // tokens that no text encodes to: "<|endoftext|>"
    struct Tables;
    std::shared_ptr<Tables> tables;                         // what encode looks up, and its cache

    // Appends the tokens of text, until at least `enough` bytes are done; returns how many are. Names of special tokens
    // are ordinary text. Error 65 for what char does not know. One thread at a time: copies share the cache.
    size_t encode(std::string_view text, std::vector<int>* tokens, size_t enough = SIZE_MAX) const;
    std::string to_json() const;                            // tokenizer.json
};

Tokenizer tokenizer_byte();
Tokenizer tokenizer_char(std::string_view text);
Tokenizer tokenizer_train_bpe(std::string_view text, int vocab_size);  // learns from the first 16 MiB of text
Tokenizer tokenizer_load(const std::string& path);  // vocab.bpe, tokenizer.json, or a folder with one; 65, 66
Tokenizer tokenizer_parse(std::string_view text, const std::string& path);      // of such a file; 65
// --tokenizer's value. `text` is what char and bpe:N learn from; null when the data are tokens: then an Error 2.
Tokenizer tokenizer_open(const std::string& option, const std::string_view* text);

// Completes a tokenizer whose kind, name, bytes, merges and special tokens are set.
void tokenizer_finish(Tokenizer* t);
void tokenizer_add_end_of_text(Tokenizer* t);       // as the next token
inline uint64_t pair_key(int left, int right) { return uint64_t(uint32_t(left)) << 32 | uint32_t(right); }

// Bytes of the GPT-2 pre-token at the start of text (not empty). The regular expression, matched by hand:
//     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// A byte that is not UTF-8 counts as [^\s\p{L}\p{N}].
size_t gpt2_next_piece(std::string_view text);

// Streams decoded text without cutting a UTF-8 character: keeps up to 3 bytes back. What is not UTF-8 becomes U+FFFD.
struct Utf8Stream {
    std::string push(std::string_view bytes);
    std::string finish();
  private:
    std::string pending;
};
