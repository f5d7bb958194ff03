// bpe_train.cpp -- learns the merges of BPE from a text: the most frequent pair becomes a token, again and again.
//
// Pairs are counted within the pieces of a split. Of equally frequent pairs the smallest (left, right) goes
// first, so the merges are a function of the text alone.
#include <queue>
#include <unordered_map>
#include "src/base/common.h"
#include "tools/text/tokenizer.h"
#include "tools/text/unicode.h"

namespace {
// Holds every distinct piece once, one after another. Merging a pair visits only the places where it occurs, so
// training takes time linear in the text's length, apart from the heap.
struct Learner {
    static constexpr uint64_t kNone = UINT64_MAX;
    Tokenizer t = tokenizer_byte();
    struct Symbol {
        int token;          // the one that begins here; -1: the end of a piece, or inside a token
        uint32_t previous;  // where the token before begins
        uint32_t weight;    // how often its piece occurs
    };
    std::vector<Symbol> symbols;
    struct Pair { int64_t count = 0; std::vector<uint32_t> places; };  // places ascend; some are out of date
    std::unordered_map<uint64_t, Pair> pairs;                   // by pair_key
    std::vector<uint64_t> fresh;                                // new pairs that are not in the heap yet
    std::priority_queue<std::pair<int64_t, uint64_t>> heap;     // count, ~pair_key; a count may have fallen since

    uint32_t next(uint32_t at) const { return at + uint32_t(t.bytes[size_t(symbols[at].token)].size()); }
    uint64_t key_at(uint32_t at) const {
        const int left = symbols[at].token, right = left < 0 ? -1 : symbols[next(at)].token;
        return right < 0 ? kNone : pair_key(left, right);
    }
    void add(uint32_t at) {
        const uint64_t key = key_at(at);
        if (key == kNone) return;
        Pair& pair = pairs[key];
        if (pair.places.empty()) fresh.push_back(key);
        pair.count += symbols[at].weight;
        pair.places.push_back(at);
    }
    void remove(uint32_t at) {
        const auto found = pairs.find(key_at(at));  // not found: no pair, or the one being merged
        if (found != pairs.end()) found->second.count -= symbols[at].weight;
    }
    void push_fresh() {
        for (const uint64_t key : fresh) heap.push({pairs[key].count, ~key});
        fresh.clear();
    }

    void read(std::string_view text) {
        std::unordered_map<std::string_view, uint32_t> pieces;
        for (std::string_view piece; !text.empty(); text.remove_prefix(piece.size())) {
            piece = text.substr(0, t.split.next_piece(text));
            pieces[piece]++;
        }
        symbols.push_back({-1, 0, 0});
        for (const auto& [piece, weight] : pieces) {
            for (const char c : piece) symbols.push_back({uint8_t(c), uint32_t(symbols.size()) - 1, weight});
            symbols.push_back({-1, 0, 0});
        }
        for (uint32_t at = 0; at < symbols.size(); at++) add(at);
        push_fresh();
    }

    void merge(uint64_t key, int token) {
        const Pair pair = std::move(pairs[key]);
        pairs.erase(key);
        for (const uint32_t at : pair.places) {
            if (key_at(at) != key) continue;
            const uint32_t previous = symbols[at].previous, right = next(at);
            remove(previous);
            remove(right);
            symbols[right].token = -1;
            symbols[at].token = token;
            symbols[next(at)].previous = at;
            add(previous);
            add(at);
        }
        push_fresh();
    }
};
}  // namespace

Tokenizer tokenizer_train_bpe(std::string_view text, int vocab_size, const Split& split) {
    Learner learner;
    Tokenizer& t = learner.t;
    t.split = split;
    int got = t.vocab_size;
    t.name = format("bpe:%d", vocab_size) + (&split == splits ? "" : std::string(":") + split.name);
    if (vocab_size < got) die(kExitUsage, "--tokenizer %s: want at least %d tokens", t.name.c_str(), got);
    std::string composed;
    text = text.substr(0, 16 << 20);
    learner.read(split.nfc && to_nfc(text, &composed) ? composed : text);
    std::unordered_map<std::string, int> known;
    while (got < vocab_size && !learner.heap.empty()) {
        const auto [most, inverse] = learner.heap.top();
        learner.heap.pop();
        const uint64_t key = ~inverse;
        const int64_t count = learner.pairs[key].count;
        if (count < most) learner.heap.push({count, inverse});
        if (count < most || count < 2) continue;  // a pair that occurs once gets no token
        const int left = int(key >> 32), right = int(uint32_t(key));
        const std::string bytes = t.bytes[size_t(left)] + t.bytes[size_t(right)];
        // Files name tokens by their bytes, so no two may be equal: "ab" + "c" rules out "a" + "bc".
        if (!known.try_emplace(bytes, got).second) continue;
        t.bytes.push_back(bytes);
        t.merges.push_back({left, right, got});
        learner.merge(key, got++);
    }
    if (got < vocab_size)
        die(kExitUsage, "--tokenizer %s: got a text that gives %d tokens, want %d; use bpe:%d or more text",
            t.name.c_str(), got, vocab_size, got);
    tokenizer_finish(&t);
    return t;
}
