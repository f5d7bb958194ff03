// rows.cpp -- see rows.h.
#include "tools/text/rows.h"
#include <algorithm>
#include <map>
#include <numeric>
#include "src/base/common.h"
#include "src/base/file.h"

constexpr size_t kBlock = 65536;            // documents that are packed together
constexpr uint64_t kLongest = (1 << Piece::kBits) - 1;

void Packer::add(uint64_t first, uint64_t end, uint64_t shard_end) {
    for (uint64_t n; first < end && first + 1 < shard_end; first += n) {
        n = std::min({T, kLongest, end - first});
        block.push_back(first << Piece::kBits | n);
        tokens += n;
    }
    if (++of_block == kBlock) pack();
}

void Packer::pack() {
    const auto length = [&](size_t i) { return block[i] & kLongest; };
    std::vector<size_t> order(block.size()), row_of(order), head;       // head: the first piece of each row
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::greater(), length);
    std::multimap<uint64_t, size_t> rooms;  // of rows that have some: how much, and the row
    for (const size_t i : order) {
        auto found = rooms.lower_bound(length(i));
        if (found == rooms.end()) {
            found = rooms.emplace(T, head.size());
            head.push_back(i);
        }
        row_of[i] = found->second;
        head[row_of[i]] = std::min(head[row_of[i]], i);
        auto room = rooms.extract(found);
        room.key() -= length(i);
        if (room.key() > 0) rooms.insert(std::move(room));
    }
    const auto head_of = [&](size_t i) { return head[row_of[i]]; };
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, head_of);
    for (const size_t i : order) {
        if (head_of(i) == i) rows.push_back(pieces.size());
        pieces.push_back(block[i]);
    }
    block.clear();
    of_block = 0;
}

bool write_rows(const Dataset& part, const std::vector<size_t>& sources, const DocumentTokens& between, int vocab_size,
                const std::string& path, const Progress& progress) {
    Packer packer = {uint64_t(part.T)};
    std::vector<uint64_t> shards;           // first the tokens with which they begin, then their first rows
    std::vector<int> tokens(1 << 16);
    uint64_t base = 0;                      // the shard's first token in the part
    bool found = false;
    for (const Shard& s : part.shards) {
        uint64_t first = 0;
        bool ended = false;
        if (std::ranges::count(sources, shards.size())) packer.pack();
        shards.push_back(base);
        for (uint64_t at = 0, n; at < s.tokens; at += n) {
            n = std::min<uint64_t>(tokens.size(), s.tokens - at);
            s.read(at, n, tokens.data(), vocab_size);
            progress();
            for (uint64_t i = 0; i < n; i++) {
                const bool begins = s.masked ? tokens[i] & kBegins : ended || between.start_at(tokens[i]);
                ended = between.start_behind(tokens[i]);
                found |= begins || ended;
                if (!begins || at + i == first) continue;
                packer.add(base + first, base + at + i, base + s.tokens);
                first = at + i;
            }
        }
        packer.add(base + first, base + s.tokens, base + s.tokens);
        base += s.tokens;
    }
    if (base >> (64 - Piece::kBits)) die_content("data: " + part.path, with_commas(base) + " tokens", "less than 2^40");
    packer.pack();
    std::vector<uint64_t> table = {packer.rows.size(), packer.pieces.size(), packer.tokens};
    const auto begin = [&](uint64_t piece) { return packer.pieces[piece] >> Piece::kBits; };
    for (uint64_t& shard : shards)
        shard = uint64_t(std::ranges::lower_bound(packer.rows, shard, {}, begin) - packer.rows.begin());
    packer.rows.push_back(packer.pieces.size());
    for (const auto* numbers : {&packer.rows, &packer.pieces, &shards})
        table.insert(table.end(), numbers->begin(), numbers->end());
    write_file_atomic(path, {reinterpret_cast<const char*>(table.data()), table.size() * sizeof table[0]});
    return found;
}
