// tokenizer.cpp -- the splits, merging by rank (Sennrich et al. 2016, arXiv 1508.07909), encoding.
#include "tools/text/tokenizer.h"
#include <algorithm>
#include <climits>
#include <queue>
#include <unordered_map>
#include <utility>
#include "src/base/common.h"
#include "tools/text/unicode.h"

// ---- the splits: regular expressions, matched by hand

// Returns the class and the length of a character. kDigits: with the numbers of Unicode 17, as in the tokenizers
// library's Digits.
template <bool kDigits = false> static CharClass class_at(std::string_view text, size_t at, size_t* length) {
    *length = 1;
    if (uint8_t(text[at]) < 0x80) return char_class(uint8_t(text[at]));     // ASCII, the usual case
    const Utf8Char c = decode_utf8(text.substr(at));
    *length = c.length;
    if (kDigits && (c.code - 0x11DE0 < 10 || c.code - 0x16FF4 < 3)) return kNumber;
    return c.valid ? char_class(c.code) : kOther;
}

// Returns the length of s|t|re|ve|m|ll|d at the start of text, or 0. any_case: also of capitals and of the long s,
// U+017F, which folds to s.
static size_t contraction(std::string_view text, bool any_case) {
    const auto same = [&](char c, char tail) { return c == tail || (any_case && (c | 0x20) == tail); };
    for (const std::string_view tail : {"s", "t", "m", "d", "re", "ve", "ll"})
        if (std::ranges::equal(text.substr(0, tail.size()), tail, same)) return tail.size();
    return any_case && text.starts_with("\u017f") ? 2 : 0;
}

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// kDigits (SmolLM): each number is a piece, and the text between two numbers is split as if it were alone.
template <bool kDigits> static size_t gpt2_piece(std::string_view text) {
    if (text[0] == '\'')  // lower case only: DON'T is DON ' T
        if (const size_t n = contraction(text.substr(1), false)) return 1 + n;
    size_t length;
    const auto ends = [](CharClass kind) { return kDigits && kind == kNumber; };
    // One U+0020 joins what follows it, unless that is white space. No other white space does.
    CharClass after = text[0] == ' ' && text.size() > 1 ? class_at<kDigits>(text, 1, &length) : kSpace;
    const size_t begin = after != kSpace && !ends(after) ? 1 : 0;
    const CharClass kind = class_at<kDigits>(text, begin, &length);
    size_t last = begin, end = begin + length;  // last: where the run's last character starts
    if (ends(kind)) return end;
    while (end < text.size() && (after = class_at<kDigits>(text, end, &length)) == kind) {
        last = end;
        end += length;
    }
    // The last character of white space before something else belongs to the next piece: "  two" is " ", " two".
    return kind == kSpace && last > begin && end < text.size() && !ends(after) ? last : end;
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,kMost}|
//  ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
template <int kMost> static size_t llama_piece(std::string_view text) {
    if (text[0] == '\'')
        if (const size_t n = contraction(text.substr(1), true)) return 1 + n;
    size_t length, end, next;
    const auto is_line_end = [&](size_t at) { return at < text.size() && (text[at] == '\r' || text[at] == '\n'); };
    const auto run = [&](size_t at, CharClass kind, int most = INT_MAX) {  // returns its end
        for (; at < text.size() && most > 0 && class_at(text, at, &length) == kind; most--) at += length;
        return at;
    };
    const CharClass kind = class_at(text, 0, &next);
    const CharClass second = next < text.size() ? class_at(text, next, &length) : kSpace;
    if (kind == kNumber) return run(0, kNumber, kMost);
    if (kind == kLetter || (second == kLetter && !is_line_end(0))) return run(next, kLetter);
    if (kind == kOther || (text[0] == ' ' && second == kOther)) {
        for (end = run(kind == kOther ? 0 : 1, kOther); is_line_end(end);) end++;
        return end;
    }
    size_t last = 0, lines = 0;                 // where its last character begins; where its last line ends
    for (end = 0; end < text.size() && class_at(text, end, &length) == kSpace; end += length) {
        last = end;
        if (is_line_end(end)) lines = end + 1;
    }
    return lines ? lines : last > 0 && end < text.size() ? last : end;
}

#define BYTE_LEVEL(regex) R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":)" regex "}"
#define SEQUENCE(first, regex) R"({"type":"Sequence","pretokenizers":[)" first "," BYTE_LEVEL(regex) "]}"
#define LLAMA(numbers) SEQUENCE( \
    R"({"type":"Split","pattern":{"Regex":"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|)" numbers \
    R"(| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},)" \
    R"("behavior":"Isolated","invert":false})", "false")
const Split splits[] = {
    {"gpt2", "gpt-2", BYTE_LEVEL("true"), false, false, gpt2_piece<false>},
    {"llama3", "llama-bpe", LLAMA(R"(\\p{N}{1,3})"), true, false, llama_piece<3>},
    {"qwen2", "qwen2", LLAMA(R"(\\p{N})"), false, true, llama_piece<1>},
    {"smollm", "smollm", SEQUENCE(R"({"type":"Digits","individual_digits":true})", "true"), false, false,
     gpt2_piece<true>},
};

// ---- encoding

// Finds added tokens in a text: the leftmost one and, of several at one place, the longest.
struct Names {
    static constexpr size_t kNone = SIZE_MAX;
    std::vector<Tokenizer::Added> all;                          // sorted by text
    std::vector<size_t> shorter;                                // for each: the longest other one that it begins with
    bool begin[256] = {};                                       // whether one begins with that byte

    void finish() {
        std::ranges::stable_sort(all, {}, &Tokenizer::Added::text);
        for (const Tokenizer::Added& a : all) {
            size_t i = shorter.size() - 1;                      // kNone for the first
            while (i != kNone && !a.text.starts_with(all[i].text)) i = shorter[i];
            shorter.push_back(i);
            begin[uint8_t(a.text[0])] = true;
        }
    }
    // Returns the longest one that text begins with, or kNone. All that sort between it and text begin with it, so
    // `shorter` leads from the last of them to it.
    size_t find(std::string_view text) const {
        if (!begin[uint8_t(text[0])]) return kNone;
        const auto text_of = [](const Tokenizer::Added& a) { return std::string_view(a.text); };
        size_t i = size_t(std::ranges::upper_bound(all, text, {}, text_of) - all.begin()) - 1;
        if (i == kNone) return i;
        const size_t same = size_t(std::ranges::mismatch(all[i].text, text).in2 - text.begin());
        while (i != kNone && all[i].text.size() > same) i = shorter[i];
        return i;
    }
    template <class Between, class Found>
    void divide(std::string_view text, const Between& between, const Found& found) const {
        size_t from = 0, at = 0;
        while (at < text.size() && !all.empty()) {
            const size_t i = find(text.substr(at));
            if (i == kNone) {
                at++;
                continue;
            }
            if (from < at) between(text.substr(from, at - from));
            found(all[i].id);
            from = at += all[i].text.size();
        }
        if (from < text.size()) between(text.substr(from));
    }
};

struct Tokenizer::Tables {
    Names names[2][2];                                          // [with special ones][normalized]
    std::unordered_map<std::string, int> whole;                 // tokens by their bytes, for ignore_merges
    std::vector<int> first;                                     // token of a byte, or of char's code point; -1: none
    std::unordered_map<uint64_t, size_t> ranks;                 // of merges, by pair_key
    std::unordered_map<std::string, std::vector<int>> cache;    // tokens of short pieces, because text repeats itself
};

// Appends a piece's tokens. It makes the merge of the lowest rank first, the leftmost of equal ones, in O(n log n)
// steps for pieces of any size.
static void merge_piece(const Tokenizer& t, std::string_view piece, std::vector<int>* tokens) {
    const size_t n = piece.size();
    if (n > UINT32_MAX) die_content("tokenizer", format("%zu bytes without a break", n), "less than 2^32");
    if (const auto& whole = t.tables->whole; !whole.empty())
        if (const auto found = whole.find(std::string(piece)); found != whole.end())
            return tokens->push_back(found->second);
    static thread_local std::vector<int> at;                // the token that begins at a byte; -1: inside a token
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
        if (at[i] != merge.left || next(i) >= n || at[next(i)] != merge.right) continue;  // out of date
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

int64_t Tokenizer::encode(std::string_view text, std::vector<int>* tokens, const std::function<void()>& some,
                          bool with_special) const {
    constexpr size_t kMaxBytes = 15, kMaxPieces = 1 << 16;  // in the cache
    constexpr size_t kSome = 1 << 18;                       // tokens
    CHECK(kind != none, "encode without a tokenizer");
    const std::vector<int>& first = tables->first;
    const auto add = [&](int token) {
        tokens->push_back(token);
        if (some && tokens->size() >= kSome) some();
    };
    if (kind == character) {
        for (size_t at = 0, begin = 0; at < text.size(); begin = at) {
            const uint32_t code = next_character(text, &at);
            if (code >= first.size() || first[code] < 0)
                die_content(format("tokenizer char: byte %zu of the text", begin), format("U+%04X", code),
                            "a character that it learnt");
            add(first[code]);
        }
        return 0;
    }
    const auto encode_pieces = [&](std::string_view rest) {
        if (merges.empty() && !split.ignore_merges) {  // the split has no effect
            for (const char c : rest) add(first[uint8_t(c)]);
            return;
        }
        for (std::string_view piece; !rest.empty(); rest.remove_prefix(piece.size())) {
            piece = rest.substr(0, split.next_piece(rest));
            if (tables->cache.size() >= kMaxPieces) tables->cache.clear();
            std::vector<int> once;
            std::vector<int>& of = piece.size() > kMaxBytes ? once : tables->cache[std::string(piece)];
            if (of.empty()) merge_piece(*this, piece, &of);
            tokens->insert(tokens->end(), of.begin(), of.end());
            if (some && tokens->size() >= kSome) some();
        }
    };
    const Names* const of = tables->names[with_special];
    int64_t more = 0;
    of[0].divide(text, [&](std::string_view part) {
        std::string composed;
        const std::string_view form = split.nfc && to_nfc(part, &composed) ? composed : part;
        more += int64_t(part.size()) - int64_t(form.size());
        of[1].divide(form, encode_pieces, add);
    }, add);
    return more;
}

int64_t Tokenizer::encode_document(std::string_view text, std::vector<int>* tokens,
                                   const std::function<void()>& some) const {
    if (begin >= 0 && !begins_with_name(text, begin)) tokens->push_back(begin);
    if (const std::string name = names ? name_of(eot) : ""; text.ends_with(name) && text != name)
        text.remove_suffix(name.size());
    const int64_t more = encode(text, tokens, some, names);
    if (eot >= 0 && eot != begin) tokens->push_back(eot);
    return more;
}

void Spelled::warn(const std::string& where, bool message) const {
    if (count > 0)
        ::warn("%s: it spells control tokens, such as %s, %s times; %s", where.c_str(), first.c_str(),
               with_commas(count).c_str(), message ? "in messages they stay text" :
               "they stay text, which a model learns to spell; --special-tokens makes them tokens");
}

void Tokenizer::find_names(std::string_view text, Spelled* found) const {
    const auto add = [&](int token) {
        const Added& a = *std::ranges::find(added, token, &Added::id);
        if (a.special && found->count++ == 0) found->first = a.text;
    };
    if (tables) tables->names[1][0].divide(text, [&](std::string_view part) {
        tables->names[1][1].divide(part, [](std::string_view) {}, add);
    }, add);
}

bool Tokenizer::begins_with_name(std::string_view text, int token) const {
    return names && std::ranges::any_of(added, [&](const Added& a) {
        return a.special && (token < 0 || token == a.id) && text.starts_with(a.text);
    });
}

size_t Tokenizer::outside_names(std::string_view text, size_t at) const {
    for (const Added& a : added)
        for (size_t back = 1; a.special && back < a.text.size() && back <= at; back++)
            if (text.substr(at - back).starts_with(a.text)) return at - back;
    return at;
}

void Tokenizer::require_names() const {
    if (names && std::ranges::none_of(added, &Added::special))
        die(kExitUsage, "--special-tokens: the tokenizer %s has no control tokens; leave it out, or give another "
            "--tokenizer", name.c_str());
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
        if (t->split.ignore_merges && !bytes.empty()) t->tables->whole[bytes] = id;
    }
    for (size_t b = 0; !characters && b < 256; b++)
        if (first[b] < 0) die_content(format("tokenizer: %s: byte 0x%02zx", t->name.c_str(), b), "no token", "one");
    for (size_t rank = 0; rank < t->merges.size(); rank++)
        t->tables->ranks[pair_key(t->merges[rank].left, t->merges[rank].right)] = rank;
    for (Tokenizer::Added a : t->added) {
        std::string& bytes = t->bytes[size_t(a.id)];    // set after `first`, which must not contain them
        if (!a.special && bytes.empty()) bytes = a.text;
        if (std::string text; a.normalized && t->split.nfc && to_nfc(a.text, &text)) a.text = text;
        for (int with = a.special; with < 2; with++) t->tables->names[with][a.normalized].all.push_back(a);
    }
    for (auto& pair : t->tables->names)
        for (Names& names : pair) names.finish();
}

void tokenizer_add_end_of_text(Tokenizer* t) {
    tokenizer_own(t, int(t->bytes.size()));
    t->bytes.push_back("");
    t->added.push_back({t->eot, "<|endoftext|>"});
}

void tokenizer_own(Tokenizer* t, int eot) {
    t->own = true;
    t->begin = t->bos = t->eot = eot;
    t->ends = eot >= 0 ? std::vector<int>{eot} : std::vector<int>();
}

Tokenizer tokenizer_byte() {
    Tokenizer t = {.kind = Tokenizer::bpe, .name = "byte"};
    for (int b = 0; b < 256; b++) t.bytes.push_back(std::string(1, char(b)));
    tokenizer_add_end_of_text(&t);
    tokenizer_finish(&t);
    return t;
}

Tokenizer tokenizer_char(std::string_view text) {
    std::vector<bool> seen(0x110000);
    for (size_t at = 0; at < text.size();) seen[next_character(text, &at)] = true;
    Tokenizer t = {.kind = Tokenizer::character, .own = true, .name = "char"};
    for (uint32_t code = 0; code < seen.size(); code++)
        if (seen[code]) append_utf8(&t.bytes.emplace_back(), code);
    if (t.bytes.empty()) die_content("tokenizer char", "no text", "at least one character");
    tokenizer_finish(&t);
    return t;
}
