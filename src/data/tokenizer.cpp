// tokenizer.cpp -- GPT-2's split, merging by rank (Sennrich et al. 2016, arXiv 1508.07909), encoding.
#include "src/data/tokenizer.h"
#include <algorithm>
#include <functional>
#include <queue>
#include <unordered_map>
#include <utility>
#include "src/base/common.h"
#include "src/base/unicode.h"

static CharClass class_at(std::string_view text, size_t at, size_t* length) {
    *length = 1;
    if (uint8_t(text[at]) < 0x80) return char_class(uint8_t(text[at]));     // most of most texts
    const Utf8Char c = decode_utf8(text.substr(at));
    *length = c.length;
    return c.valid ? char_class(c.code) : kOther;
}

size_t gpt2_next_piece(std::string_view text) {
    if (text[0] == '\'')  // lower case only: DON'T is DON ' T
        for (const std::string_view tail : {"s", "t", "m", "d", "re", "ve", "ll"})
            if (text.substr(1, tail.size()) == tail) return 1 + tail.size();
    size_t length;
    // One U+0020 joins what follows it, unless that is white space. No other white space does.
    const size_t begin = text[0] == ' ' && text.size() > 1 && class_at(text, 1, &length) != kSpace ? 1 : 0;
    const CharClass kind = class_at(text, begin, &length);
    size_t last = begin, end = begin + length;  // last: where the run's last character starts
    while (end < text.size() && class_at(text, end, &length) == kind) {
        last = end;
        end += length;
    }
    // White space before something else leaves its last character behind: "  two" is " ", " two".
    return kind == kSpace && last > begin && end < text.size() ? last : end;
}

std::string Utf8Stream::push(std::string_view bytes) {
    pending += bytes;
    std::string out;
    std::string_view rest = pending;
    for (Utf8Char c; !(c = decode_utf8(rest)).cut; rest.remove_prefix(c.length))
        out += c.valid ? rest.substr(0, c.length) : "\uFFFD";
    pending.erase(0, pending.size() - rest.size());
    return out;
}

std::string Utf8Stream::finish() { return std::exchange(pending, "").empty() ? "" : "\uFFFD"; }

struct Tokenizer::Tables {
    std::vector<int> first;                                     // token of a byte, of char: of a code point; -1: none
    std::unordered_map<uint64_t, size_t> ranks;                 // of merges, by pair_key
    std::unordered_map<std::string, std::vector<int>> cache;    // of short pieces: text repeats itself
};

// Merges the lowest rank first, of equals the leftmost: O(n log n), so a megabyte without a space is no trap.
static void merge_piece(const Tokenizer& t, std::string_view piece, std::vector<int>* tokens) {
    const size_t n = piece.size();
    if (n > UINT32_MAX) die_content("tokenizer", format("%zu bytes without a break", n), "less than 2^32");
    static thread_local std::vector<int> at;                // the token whose bytes begin there; -1: inside another
    static thread_local std::vector<uint32_t> previous;     // where the token before begins
    at.resize(n);
    previous.resize(n);
    std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> heap;  // rank << 32 | left token's place
    const auto next = [&](size_t i) { return i + t.bytes[size_t(at[i])].size(); };
    const auto consider = [&](size_t i) {
        if (next(i) >= n) return;
        const auto found = t.tables->ranks.find(pair_key(at[i], at[next(i)]));
        if (found != t.tables->ranks.end()) heap.push(uint64_t(found->second) << 32 | i);
    };
    for (size_t i = 0; i < n; i++) at[i] = t.tables->first[uint8_t(piece[i])];
    for (size_t i = 0; i < n; i++) {
        previous[i] = uint32_t(i - 1);
        consider(i);
    }
    while (!heap.empty()) {
        const size_t i = uint32_t(heap.top());
        const Tokenizer::Merge& merge = t.merges[heap.top() >> 32];
        heap.pop();
        if (at[i] != merge.left || next(i) >= n || at[next(i)] != merge.right) continue;  // has changed since
        at[next(i)] = -1;
        at[i] = merge.merged;
        if (next(i) < n) previous[next(i)] = uint32_t(i);
        if (i > 0) consider(previous[i]);
        consider(i);
    }
    for (size_t i = 0; i < n; i = next(i)) tokens->push_back(at[i]);
}

// Returns the code point at *at and steps over it.
static uint32_t next_character(std::string_view text, size_t* at) {
    const Utf8Char c = decode_utf8(text.substr(*at));
    if (!c.valid)
        die_content(format("tokenizer char: byte %zu of the text", *at), format("0x%02x", uint8_t(text[*at])),
                    "UTF-8; use --tokenizer byte");
    *at += c.length;
    return c.code;
}

size_t Tokenizer::encode(std::string_view text, std::vector<int>* tokens, size_t enough) const {
    constexpr size_t kMaxBytes = 15, kMaxPieces = 1 << 16;  // of the cache
    CHECK(kind != none, "encode without a tokenizer");
    const std::vector<int>& first = tables->first;
    const size_t end = std::min(text.size(), enough);
    size_t at = 0;
    if (kind == character) {
        while (at < end) {
            const size_t begin = at;
            const uint32_t code = next_character(text, &at);
            if (code >= first.size() || first[code] < 0)
                die_content(format("tokenizer char: byte %zu of the text", begin), format("U+%04X", code),
                            "a character that it learnt");
            tokens->push_back(first[code]);
        }
    } else if (merges.empty()) {  // the split changes nothing
        tokens->reserve(tokens->size() + end);
        for (; at < end; at++) tokens->push_back(first[uint8_t(text[at])]);
    } else {
        for (std::string_view piece; at < end; at += piece.size()) {
            piece = text.substr(at, gpt2_next_piece(text.substr(at)));
            if (tables->cache.size() >= kMaxPieces) tables->cache.clear();
            std::vector<int> once;
            std::vector<int>& of = piece.size() > kMaxBytes ? once : tables->cache[std::string(piece)];
            if (of.empty()) merge_piece(*this, piece, &of);
            tokens->insert(tokens->end(), of.begin(), of.end());
        }
    }
    return at;
}

void tokenizer_finish(Tokenizer* t) {
    t->vocab_size = int(t->bytes.size());
    t->tables = std::make_shared<Tokenizer::Tables>();
    std::vector<int>& first = t->tables->first;
    const bool characters = t->kind == Tokenizer::character;
    first.assign(characters ? 0x110000 : 256, -1);
    for (int id = 0; id < t->vocab_size; id++) {
        const std::string& bytes = t->bytes[size_t(id)];
        if (characters && !bytes.empty()) first[decode_utf8(bytes).code] = id;
        if (!characters && bytes.size() == 1) first[uint8_t(bytes[0])] = id;
    }
    for (size_t b = 0; !characters && b < 256; b++)
        if (first[b] < 0) die_content(format("tokenizer: %s: byte 0x%02zx", t->name.c_str(), b), "no token", "one");
    for (size_t rank = 0; rank < t->merges.size(); rank++)
        t->tables->ranks[pair_key(t->merges[rank].left, t->merges[rank].right)] = rank;
}

void tokenizer_add_end_of_text(Tokenizer* t) {
    t->eot = int(t->bytes.size());
    t->bytes.push_back("");
    t->special.push_back({t->eot, "<|endoftext|>"});
}

Tokenizer tokenizer_byte() {
    Tokenizer t;
    t.kind = Tokenizer::bpe;
    t.name = "byte";
    for (int b = 0; b < 256; b++) t.bytes.push_back(std::string(1, char(b)));
    tokenizer_add_end_of_text(&t);
    tokenizer_finish(&t);
    return t;
}

Tokenizer tokenizer_char(std::string_view text) {
    std::vector<bool> seen(0x110000);
    for (size_t at = 0; at < text.size();) seen[next_character(text, &at)] = true;
    Tokenizer t;
    t.kind = Tokenizer::character;
    t.name = "char";
    for (uint32_t code = 0; code < seen.size(); code++)
        if (seen[code]) append_utf8(&t.bytes.emplace_back(), code);
    if (t.bytes.empty()) die_content("tokenizer char", "no text", "at least one character");
    tokenizer_finish(&t);
    return t;
}
