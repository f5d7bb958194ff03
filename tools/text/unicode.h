// unicode.h -- NFC, and the classes of code points by which tokenizers split a text.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include "src/base/utf8.h"

enum CharClass { kOther, kLetter, kNumber, kSpace };    // none of the others; \p{L}; \p{N}; \s, White_Space
CharClass char_class(uint32_t code);                    // of Unicode 16.0; code <= 0x10FFFF

// Appends text in the composed form NFC, as the tokenizers library 0.23 computes it (Unicode 9.0). Bytes that are not
// UTF-8 stay as they are. Returns false, and appends nothing, if text is in that form already.
bool to_nfc(std::string_view text, std::string* out);
