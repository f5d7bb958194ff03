#!/usr/bin/env python3
"""make_unicode.py -- writes src/unicode.cpp: which code points are letters (L*), numbers (N*) and white space.

    python3 tools/make_unicode.py > src/unicode.cpp

Unicode 16.0, the version that tiktoken 0.14 and tokenizers 0.23 classify by: all 1,112,064 code points agree with both. Python 3.14
has it; for another Python: pip install unicodedata2==16.0.0.
"""
import sys

try:
    import unicodedata2 as unicodedata
except ImportError:
    import unicodedata

WANT = "16.0.0"
# The White_Space property, what \\s means in tiktoken's and tokenizers' regular expressions. Not U+FEFF, not U+001C..1F.
SPACES = [*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000]
OTHER, LETTER, NUMBER, SPACE = range(4)     # CharClass of unicode.h


def char_class(code):
    if code in SPACES:
        return SPACE
    return {"L": LETTER, "N": NUMBER}.get(unicodedata.category(chr(code))[0], OTHER)


def render(steps):
    lines, line = [], "   "
    for step in steps:
        if len(line) + len(step) + 2 > 120:
            lines.append(line)
            line = "   "
        line += " " + step + ","
    table = "\n".join(lines + [line])
    return f"""// unicode.cpp -- the classes of all code points, Unicode {WANT}. Written by tools/make_unicode.py: change that, not this.
#include "unicode.h"
#include <algorithm>
#include <iterator>

// Where the class changes: code points since the change before * 4 + class from there on; {len(steps)} runs cover all code points.
static constexpr uint32_t steps[] = {{
{table}
}};

// The same as code point * 4 + class, ascending.
struct Runs {{
    uint32_t at[std::size(steps)] = {{}};
    constexpr Runs() {{
        for (uint32_t i = 0, code = 0; i < std::size(steps); i++) at[i] = (code += steps[i] / 4) * 4 + steps[i] % 4;
    }}
}};
static constexpr Runs runs;

CharClass char_class(uint32_t code) {{
    return CharClass(*(std::upper_bound(std::begin(runs.at), std::end(runs.at), code * 4 + 3) - 1) & 3);
}}"""


def main():
    if unicodedata.unidata_version != WANT:
        sys.exit(f"make_unicode.py: error: unicodedata: got Unicode {unicodedata.unidata_version}, want {WANT}; see the top of this file")
    steps, last, since = [], None, 0
    for code in range(0x110000):
        now = char_class(code)
        if now != last:
            steps.append(f"{(code - since) * 4 + now}")
            last, since = now, code
    print(render(steps))


if __name__ == "__main__":
    main()
