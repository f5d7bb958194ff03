// tokenizer.h -- text to tokens and back: byte, char, and byte-level BPE exactly as GPT-2 splits it.
//
// One representation for all: a table of token -> bytes, and for BPE the merges. The byte tokenizer is a BPE without merges
// (256 bytes + end of text = 257 tokens); both are written as Hugging Face's tokenizer.json. Formats: formats.md 3.6, 3.10, 4.
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
    std::vector<std::string> bytes;                          // of each token; empty for eot
    struct Bpe;                                              // merges and the cache of pieces
    std::shared_ptr<Bpe> model;

    // Appends the tokens of text. Special tokens' names in text are ordinary text. An unknown character (char): Error 65.
    void encode(std::string_view text, std::vector<int>* tokens) const;
    std::string decode(const int* tokens, size_t n) const;
    std::string to_json() const;                             // tokenizer.json
};

Tokenizer tokenizer_byte();
Tokenizer tokenizer_char(std::string_view text);             // symbols sorted by code point, as nanoGPT does
Tokenizer tokenizer_train_bpe(std::string_view text, int vocab_size);  // "bpe:N": N tokens in all: 256 bytes, end of text, merges
Tokenizer tokenizer_load(const std::string& path);           // vocab.bpe, tokenizer.json, .tiktoken, or a folder with one of them
// --tokenizer's value. `text` is what char and bpe:N learn from; null when the data are tokens: then those are an Error (2).
Tokenizer tokenizer_open(const std::string& option, const std::string_view* text);

// Bytes of the GPT-2 pre-token at the start of text (not empty): the regular expression of formats.md 4.1, by hand.
size_t gpt2_next_piece(std::string_view text);

// Streams decoded text without cutting a UTF-8 character: returns what can be printed now, keeps up to 3 bytes.
struct Utf8Stream {
    std::string push(std::string_view bytes);
    std::string finish();                                    // the rest, U+FFFD for what never became a character
  private:
    std::string pending;
};
