// bpe.h -- the inside of a BPE tokenizer: which pairs merge, and a cache of pieces. For tokenizer.cpp and bpe_train.cpp.
#pragma once
#include <algorithm>
#include <functional>
#include <unordered_map>
#include "tokenizer.h"

inline uint64_t pair_key(int left, int right) { return uint64_t(uint32_t(left)) << 32 | uint32_t(right); }
inline int left_of(uint64_t pair) { return int(pair >> 32); }
inline int right_of(uint64_t pair) { return int(uint32_t(pair)); }
inline uint64_t mix(uint64_t x) { x *= 0x9E3779B97F4A7C15; return x ^ x >> 32; }    // 2^64 / golden ratio: spreads close keys

// A piece seen before and its tokens, in one cache line. Text repeats itself: more than 99 % of the pieces of prose are found.
// Each piece has one place and drives out what was there, so the memory is fixed whatever the text.
struct alignas(64) CachedPiece {
    static constexpr size_t kMaxBytes = 15, kMaxTokens = 11, kPlaces = 1 << 15;
    uint64_t text[2] = {};                                      // zero-padded, the last byte its length; 0: nothing
    int n = 0;
    int tokens[kMaxTokens];
};

struct Tokenizer::Tables {
    int of_byte[256];
    std::unordered_map<uint64_t, int> ranks;                    // by pair_key
    std::vector<Merge> merges;                                  // by rank
    std::vector<int> of_code;                                   // char: code point -> token, -1: none; 4.4 MB at most
    std::vector<CachedPiece> cache;

    struct Symbol { int token; int previous, next; };           // a doubly linked list; -1 ends it, a token of -1 was merged away
    std::vector<Symbol> symbols;                                // of the piece at hand
    std::vector<uint64_t> heap;                                 // rank << 32 | position of the left symbol

    void add_merge(const Merge& merge);                         // the next rank
    void consider(int at);                                      // puts the pair at `at` on the heap, if it can merge
    void merge_piece(std::string_view piece, std::vector<int>* tokens);
    void encode_piece(std::string_view piece, std::vector<int>* tokens);    // merge_piece through the cache
};

// Ends the making of a tokenizer whose bytes, merges and special tokens are set. what: its file, for an Error.
void tokenizer_finish(Tokenizer* t, const std::string& what);
