#!/usr/bin/env python3
"""make_unicode.py -- writes src/base/unicode.cpp: which code points are letters (L*), numbers (N*) and white space.

    python3 tools/make_unicode.py > src/base/unicode.cpp

Unicode 16.0, the version that tiktoken 0.14 and tokenizers 0.23 classify by: all 1,112,064 code points agree with both.
Python 3.14 has it; for another Python: pip install unicodedata2==16.0.0.
"""
import sys

try:
    import unicodedata2 as unicodedata
except ImportError:
    import unicodedata

WANT = "16.0.0"
# The White_Space property, what \\s means in tiktoken's and tokenizers' regular expressions.
# U+FEFF and U+001C..1F are not in it.
SPACES = [*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000]
OTHER, LETTER, NUMBER, SPACE = range(4)     # CharClass of unicode.h


def char_class(code):
    if code in SPACES:
        return SPACE
    return {"L": LETTER, "N": NUMBER}.get(unicodedata.category(chr(code))[0], OTHER)


def encode(step):
    """Digits of base 32, the first ones from '^' on, the last one from '0' on."""
    return (encode_first(step // 32) if step >= 32 else "") + chr(ord("0") + step % 32)


def encode_first(step):
    return (encode_first(step // 32) if step >= 32 else "") + chr(ord("^") + step % 32)


def render(steps):
    text = "".join(encode(step) for step in steps)
    table = "\n".join('    "' + text[at:at + 114] + '"' for at in range(0, len(text), 114))
    return f"""// unicode.cpp -- the classes of all code points, Unicode {WANT}.
// Written by tools/make_unicode.py: change that.
#include "src/base/unicode.h"
#include <algorithm>

// Where the class changes: code points since the change before * 4 + the class from there on,
// in base 32; the digits are '^' to '}}' and, the last one of a number, '0' to 'O'.
static constexpr char steps[] =
{table};

struct Classes {{
    uint8_t of[0x110000] = {{}};              // by code point
    Classes() {{
        uint32_t number = 0;
        uint8_t *at = of, now = kOther;
        for (const char* c = steps; *c; c++) {{
            number = number * 32 + uint32_t(*c - (*c < '^' ? '0' : '^'));
            if (*c >= '^') continue;
            at = std::fill_n(at, number / 4, now);
            now = number % 4;
            number = 0;
        }}
    }}
}};

CharClass char_class(uint32_t code) {{
    static const Classes classes;
    return CharClass(classes.of[code]);
}}"""


def main():
    if unicodedata.unidata_version != WANT:
        got = unicodedata.unidata_version
        sys.exit(f"make_unicode.py: error: unicodedata: got Unicode {got}, want {WANT}; see the top of this file")
    steps, last, since = [], None, 0
    for code in range(0x110000):
        now = char_class(code)
        if now != last:
            steps.append((code - since) * 4 + now)
            last, since = now, code
    print(render(steps))


if __name__ == "__main__":
    main()
