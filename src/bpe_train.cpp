// bpe_train.cpp -- learning merges from a text: the most frequent pair becomes a token, again and again.
//
// Pairs are counted within the pieces of GPT-2's split, each different piece once with its frequency. Of equally frequent pairs
// the smallest (left, right) goes first, so the merges are a function of the text alone.
#include <queue>
#include <unordered_map>
#include "bpe.h"
#include "common.h"

namespace {
constexpr size_t kLearnBytes = 16 << 20;    // bounds time and memory: some 50 bytes for each byte that is not in a piece seen before

// The symbols of all different pieces in one array, each piece a doubly linked list within it. Merging a pair visits only the
// places where it stands, so the whole training is linear in the text but for the heap.
struct Learner {
    static constexpr uint32_t kNone = UINT32_MAX;
    struct Symbol { int token; uint32_t previous, next, weight; };      // weight: how often its piece stands in the text
    struct Pair { int64_t count = 0; std::vector<uint32_t> places; };   // places ascend; some have changed since
    std::vector<Symbol> symbols;
    std::unordered_map<uint64_t, Pair> pairs;
    std::vector<uint64_t> fresh;                                // pairs that came up since the heap was last fed

    struct Candidate {                                          // the most frequent first, of equals the smallest
        int64_t count; uint64_t pair;
        bool operator<(const Candidate& other) const { return count != other.count ? count < other.count : pair > other.pair; }
    };
    std::priority_queue<Candidate> heap;                        // with the counts of once: a pair's count can only have fallen since

    void add(uint32_t at) {
        const Symbol& left = symbols[at];
        if (left.next == kNone) return;
        const uint64_t key = pair_key(left.token, symbols[left.next].token);
        Pair& pair = pairs[key];
        if (pair.places.empty()) fresh.push_back(key);
        pair.count += left.weight;
        pair.places.push_back(at);
    }
    void remove(uint32_t at) {
        const Symbol& left = symbols[at];
        if (left.next == kNone) return;
        const auto found = pairs.find(pair_key(left.token, symbols[left.next].token));
        if (found != pairs.end()) found->second.count -= left.weight;   // not found: it is the pair being merged
    }
    void feed_heap() {
        for (const uint64_t key : fresh) heap.push({pairs[key].count, key});
        fresh.clear();
    }

    void read(std::string_view text) {
        std::unordered_map<std::string_view, size_t> seen;
        std::vector<std::pair<std::string_view, uint32_t>> pieces;      // in order of appearance: nothing depends on a hash
        while (!text.empty()) {
            const std::string_view piece = text.substr(0, gpt2_next_piece(text));
            const auto [entry, is_new] = seen.try_emplace(piece, pieces.size());
            if (is_new) pieces.push_back({piece, 0});
            pieces[entry->second].second++;
            text.remove_prefix(piece.size());
        }
        for (const auto& [piece, weight] : pieces)
            for (size_t i = 0; i < piece.size(); i++) {
                const uint32_t at = uint32_t(symbols.size());
                symbols.push_back({uint8_t(piece[i]), i > 0 ? at - 1 : kNone, i + 1 < piece.size() ? at + 1 : kNone, weight});
            }
        for (uint32_t at = 0; at < symbols.size(); at++) add(at);
        feed_heap();
    }

    void merge(uint64_t key, int token) {
        const Pair pair = std::move(pairs[key]);
        pairs.erase(key);
        for (const uint32_t at : pair.places) {
            Symbol& left = symbols[at];
            if (left.token != left_of(key) || left.next == kNone || symbols[left.next].token != right_of(key)) continue;
            Symbol& right = symbols[left.next];
            if (left.previous != kNone) remove(left.previous);
            remove(left.next);
            left.token = token;
            left.next = right.next;
            right.token = -1;
            if (left.next != kNone) symbols[left.next].previous = at;
            if (left.previous != kNone) add(left.previous);
            add(at);
        }
        feed_heap();
    }
};
}  // namespace

Tokenizer tokenizer_train_bpe(std::string_view text, int vocab_size) {
    if (vocab_size < 257)
        die(kExitUsage, "--tokenizer bpe:%d: got %d tokens, want at least 257: 256 bytes and end of text", vocab_size, vocab_size);
    Tokenizer t = tokenizer_byte();
    t.kind = Tokenizer::bpe;
    t.name = format("bpe:%d", vocab_size);
    Learner learner;
    learner.read(text.substr(0, kLearnBytes));
    std::unordered_map<std::string, int> known;
    while (int(t.bytes.size()) < vocab_size && !learner.heap.empty()) {
        const Learner::Candidate best = learner.heap.top();
        learner.heap.pop();
        const int64_t count = learner.pairs[best.pair].count;
        if (count < 2) continue;                                // what stands once is not worth a token
        if (count < best.count) { learner.heap.push({count, best.pair}); continue; }
        const int left = left_of(best.pair), right = right_of(best.pair), token = int(t.bytes.size());
        const std::string bytes = t.bytes[size_t(left)] + t.bytes[size_t(right)];
        // Files name tokens by their bytes, so no two may be equal: "ab" + "c" rules out "a" + "bc".
        if (!known.try_emplace(bytes, token).second) continue;
        t.bytes.push_back(bytes);
        t.merges.push_back({left, right, token});
        learner.merge(best.pair, token);
    }
    if (int(t.bytes.size()) < vocab_size)
        die(kExitUsage, "--tokenizer bpe:%d: got a text that gives %zu tokens, want %d; use bpe:%zu or more text", vocab_size,
            t.bytes.size(), vocab_size, t.bytes.size());
    tokenizer_finish(&t, t.name);
    return t;
}
