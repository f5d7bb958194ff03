// utf8.h -- characters as UTF-8, read and written.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

struct Utf8Char {
    uint32_t code;
    uint32_t length;    // bytes, 1..4; 0 for an empty text
    bool valid;
    // It is not valid only because the text ends: more bytes could complete the character.
    bool cut;
};

// Decodes the character at the start of text. If it is not valid, length is that of the longest
// part that could begin a character, at least 1. One U+FFFD replaces that part (Unicode 16, 3.9,
// "maximal subparts").
inline Utf8Char decode_utf8(std::string_view text) {
    if (text.empty()) return {0, 0, false, true};
    const uint8_t c = text[0];
    if (c < 0x80) return {c, 1, true, false};
    // Table 3-7 of the standard: the second byte's range rules out overlong forms, surrogates and
    // codes above 10FFFF.
    const uint32_t want = c >= 0xC2 && c <= 0xDF ? 2 :
                          (c & 0xF0) == 0xE0 ? 3 :
                          c >= 0xF0 && c <= 0xF4 ? 4 : 0;
    if (want == 0) return {0, 1, false, false};
    const uint8_t low = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80,
                  high = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
    uint32_t code = c & (0x7Fu >> want);
    for (uint32_t i = 1; i < want; i++) {
        if (i >= text.size()) return {0, i, false, true};
        const uint8_t next = text[i];
        if (next < (i == 1 ? low : 0x80) || next > (i == 1 ? high : 0xBF))
            return {0, i, false, false};
        code = code << 6 | (next & 0x3F);
    }
    return {code, want, true, false};
}

inline void append_utf8(std::string* out, uint32_t code) {
    // more: the number of continuation bytes.
    const int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    *out += more ? 0x7F80 >> more | code >> 6 * more : code;
    for (int k = more - 1; k >= 0; k--) *out += 0x80 | (code >> 6 * k & 0x3F);
}

// Decodes a stream of bytes to text without cutting a UTF-8 character: holds back up to 3 bytes.
// Bytes that are not UTF-8 become U+FFFD.
struct Utf8Stream {
    std::string push(std::string_view bytes) {
        pending += bytes;
        std::string out;
        std::string_view rest = pending;
        for (Utf8Char c; !(c = decode_utf8(rest)).cut; rest.remove_prefix(c.length))
            out += c.valid ? rest.substr(0, c.length) : "\uFFFD";
        pending.erase(0, pending.size() - rest.size());
        return out;
    }
    std::string finish() { return std::exchange(pending, "").empty() ? "" : "\uFFFD"; }
  private:
    std::string pending;
};
