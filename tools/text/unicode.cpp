// unicode.cpp -- the classes of code points, and NFC (Unicode 16, 3.11).
#include "tools/text/unicode.h"
#include <algorithm>
#include <unordered_map>
#include <vector>
#include "tools/text/unicode_tables.h"

namespace {
struct Numbers {                            // reads the numbers of a table in unicode_tables.h
    const char* at;
    uint32_t next() {
        uint32_t n = 0;
        for (; *at < '5'; at++) n = *at == '\n' ? n : n * 18 + uint32_t(*at - '#');
        return n * 74 + uint32_t(*at++ - '5');
    }
};

struct Steps {
    uint8_t of[0x110000] = {};              // a value for each code point; the table has runs of equal ones
    Steps(const char* table, uint32_t base) {
        uint8_t *at = of, now = 0;
        for (Numbers n = {table}; *n.at;) {
            const uint32_t step = n.next();
            at = std::fill_n(at, step / base, now);
            now = uint8_t(step % base);
        }
    }
};

struct Normalizer {
    Steps order = {combining_steps, 64};    // ranks of combining classes; 0: the code point is no mark but a base
    std::vector<bool> stable = std::vector<bool>(0x110000, true);   // NFC neither changes it nor joins it to one before
    std::unordered_map<uint32_t, std::pair<uint32_t, uint32_t>> parts;  // decomposition; second 0: it has one part
    std::unordered_map<uint64_t, uint32_t> whole;                       // composition of first << 32 | second

    void add(uint32_t code, uint32_t first, uint32_t second, bool composes) {
        parts[code] = {first, second};
        stable[composes ? second : code] = false;
        if (composes) whole[uint64_t(first) << 32 | second] = code;
    }
    Normalizer() {
        for (uint32_t code = 0; code < 0x110000; code++) stable[code] = order.of[code] == 0;
        for (uint32_t s = 0; s < 11172; s++)    // Hangul: each is a lead and a vowel, or such a syllable and a tail
            if (s % 28) add(0xAC00 + s, 0xAC00 + s - s % 28, 0x11A7 + s % 28, true);
            else add(0xAC00 + s, 0x1100 + s / 588, 0x1161 + s / 28 % 21, true);
        for (Numbers n = {decompositions}; *n.at;) {
            const uint32_t second = n.next(), how = n.next();
            for (uint32_t k = 0, code = 0, first = 0; k < how / 2; k++) {
                code += second || k == 0 ? n.next() : 1;
                const uint32_t step = n.next();
                add(code, first += step / 2 ^ -(step % 2), second, how % 2 == 0);
            }
        }
    }

    void decompose(uint32_t code, std::vector<uint32_t>* out) const {
        const auto found = parts.find(code);
        if (found == parts.end()) return out->push_back(code);
        decompose(found->second.first, out);
        if (found->second.second) out->push_back(found->second.second);
    }
    // Sorts the marks of decomposed code points, composes them, and appends the result as UTF-8.
    void append(std::vector<uint32_t>* codes, std::string* out) const {
        const auto mark = [&](uint32_t code) { return order.of[code]; };
        for (auto from = codes->begin(), to = from; from != codes->end(); from = to) {  // marks up to the next base
            to = std::find_if_not(from + 1, codes->end(), mark);
            std::ranges::stable_sort(from + !mark(*from), to, {}, mark);
        }
        uint32_t *base = nullptr, *end = codes->data();     // the base that a mark may join; the output's end
        for (const uint32_t code : *codes) {
            // No mark of the same or a higher class is between the base and this mark.
            const bool reaches = base && (base == end - 1 || mark(end[-1]) < mark(code));
            const auto both = reaches ? whole.find(uint64_t(*base) << 32 | code) : whole.end();
            if (both == whole.end()) *end++ = code;
            else *base = both->second;
            if (both == whole.end() && !mark(code)) base = end - 1;
        }
        std::for_each(codes->data(), end, [&](uint32_t code) { append_utf8(out, code); });
    }
};
}  // namespace

CharClass char_class(uint32_t code) {
    static const Steps classes(class_steps, 4);
    return CharClass(classes.of[code]);
}

bool to_nfc(std::string_view text, std::string* out) {
    static const Normalizer normalizer;
    std::vector<uint32_t> codes;            // a stable character and the others after it, up to the next stable one
    size_t done = 0, stable = 0;            // bytes of text that are done; where the last stable character begins
    const auto finish = [&](size_t at) {
        if (codes.empty()) return;
        normalizer.append(&codes, out);
        codes.clear();
        done = at;
    };
    for (size_t at = 0, length = 1; at < text.size(); at += length) {
        const Utf8Char c = uint8_t(text[at]) < 0x80 ? Utf8Char{0, 1, true, false} : decode_utf8(text.substr(at));
        length = c.length;
        if (!c.valid || normalizer.stable[c.code]) {
            finish(at);
            stable = c.valid ? at : at + length;
            continue;
        }
        if (codes.empty()) out->append(text, done, stable - done);
        if (codes.empty() && stable < at) normalizer.decompose(decode_utf8(text.substr(stable)).code, &codes);
        normalizer.decompose(c.code, &codes);
    }
    finish(text.size());
    if (done > 0) out->append(text, done);
    return done > 0;
}
