// unicode.h -- UTF-8, NFC, and the classes of code points by which tokenizers split a text.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

enum CharClass { kOther, kLetter, kNumber, kSpace };    // none of the others; \p{L}; \p{N}; \s, White_Space
CharClass char_class(uint32_t code);                    // of Unicode 16.0; code <= 0x10FFFF

struct Utf8Char {
    uint32_t code;
    uint32_t length;    // bytes, 1..4; 0 for an empty text
    bool valid;
    bool cut;           // not valid, only because the text ends: more bytes could complete the character
};

// Decodes the character at the start of text. If it is not valid, length is that of the longest part that could begin a
// character, at least 1. One U+FFFD replaces that part (Unicode 16, 3.9, "maximal subparts").
inline Utf8Char decode_utf8(std::string_view text) {
    if (text.empty()) return {0, 0, false, true};
    const uint8_t c = uint8_t(text[0]);
    if (c < 0x80) return {c, 1, true, false};
    // Table 3-7 of the standard: the second byte's range rules out overlong forms, surrogates and codes above 10FFFF.
    const uint32_t want = c >= 0xC2 && c <= 0xDF ? 2 : (c & 0xF0) == 0xE0 ? 3 : c >= 0xF0 && c <= 0xF4 ? 4 : 0;
    if (want == 0) return {0, 1, false, false};
    const uint8_t low = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80, high = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
    uint32_t code = c & (0x7Fu >> want);
    for (uint32_t i = 1; i < want; i++) {
        if (i >= text.size()) return {0, i, false, true};
        const uint8_t next = uint8_t(text[i]);
        if (next < (i == 1 ? low : 0x80) || next > (i == 1 ? high : 0xBF)) return {0, i, false, false};
        code = code << 6 | (next & 0x3F);
    }
    return {code, want, true, false};
}

inline void append_utf8(std::string* out, uint32_t code) {
    const int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;  // continuation bytes
    *out += char(more ? 0x7F80 >> more | code >> 6 * more : code);
    for (int k = more - 1; k >= 0; k--) *out += char(0x80 | (code >> 6 * k & 0x3F));
}

// Appends text in the composed form NFC, as the tokenizers library 0.23 computes it (Unicode 9.0). Bytes that are not
// UTF-8 stay as they are. Returns false, and appends nothing, if text is in that form already.
bool to_nfc(std::string_view text, std::string* out);
