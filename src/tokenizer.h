// tokenizer.h -- text to tokens and back: byte, char, and byte-level BPE exactly as GPT-2 splits it.
//
// One representation for all: a table of token -> bytes, and for BPE the merges. The byte tokenizer is a BPE without merges
// (256 bytes + end of text = 257 tokens); all are written as Hugging Face's tokenizer.json.
//
// Ids: byte, bpe:N   0..255 the byte of that value, 256 end of text, then the merges in the order they were learnt
//      gpt2          0..255 the bytes in GPT-2's order (id 0 is '!'), 256 + k merge k, 50256 end of text
//      char          the characters in the order of their code points; no end of text
//      a file        as the file says
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct Tokenizer {
    enum Kind { none, byte, character, bpe } kind = none;    // none: tokens have no text (a .bin without tokenizer)
    int vocab_size = 0;
    int eot = -1;                                            // end of text, also the start of a document; -1: none (char)
    std::string name;                                        // "byte", "char", "gpt2", "bpe:512", or the file's
    std::vector<std::string> bytes;                          // of each token; empty for eot and other special tokens
    struct Merge { int left, right, merged; };
    std::vector<Merge> merges;                               // of BPE; the earlier one goes first
    struct Special { int id; std::string text; };
    std::vector<Special> special;                            // tokens that no text encodes to: "<|endoftext|>"
    struct Tables;                                           // what encode looks up, made from the above, and its cache
    std::shared_ptr<Tables> tables;

    // Appends the tokens of text, at 20 MB/s and more. Special tokens' names in text are ordinary text. Any bytes can be encoded,
    // but by char: what it does not know, and what is not UTF-8, is an Error 65. One thread at a time: copies share the cache.
    void encode(std::string_view text, std::vector<int>* tokens) const;
    std::string decode(const int* tokens, size_t n) const;   // the tokens' bytes, one after the other; 65 if one is out of range
    std::string to_json() const;                             // tokenizer.json
};

Tokenizer tokenizer_byte();
Tokenizer tokenizer_char(std::string_view text);             // symbols sorted by code point, as nanoGPT does
// "bpe:N": N tokens in all. Learns from at most the first 16 MiB of text: on prose, more text hardly changes a merge.
Tokenizer tokenizer_train_bpe(std::string_view text, int vocab_size);
// vocab.bpe, tokenizer.json, or a folder with one of them. Any encoder but GPT-2's, bytes or characters is an Error 65.
Tokenizer tokenizer_load(const std::string& path);
// --tokenizer's value. `text` is what char and bpe:N learn from; null when the data are tokens: then those are an Error (2).
Tokenizer tokenizer_open(const std::string& option, const std::string_view* text);

// Bytes of the GPT-2 pre-token at the start of text (not empty). The regular expression, matched by hand:
//     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// A byte that is not UTF-8 counts as [^\s\p{L}\p{N}].
size_t gpt2_next_piece(std::string_view text);

// Streams decoded text without cutting a UTF-8 character: returns what can be printed now, keeps up to 3 bytes. Bytes that are
// not UTF-8 come out as U+FFFD, so the output is always UTF-8.
struct Utf8Stream {
    std::string push(std::string_view bytes);
    std::string finish();                                    // the rest, U+FFFD for what never became a character
  private:
    std::string pending;
};
