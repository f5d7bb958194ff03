#!/usr/bin/env python3
"""make_unicode.py -- writes tools/text/unicode_tables.h: letters (L*), numbers (N*) and white space, and what NFC asks.

    python3 tools/make_unicode.py > tools/text/unicode_tables.h          (needs: pip install tokenizers==0.23.3)

Classes are Unicode 16.0's, by which tiktoken 0.14 and tokenizers 0.23 cut a text: all 1,112,064 code points agree with
both. Python 3.14 has it; for another Python: pip install unicodedata2==16.0.0. NFC is that of tokenizers 0.23, which
knows no mark and no composition younger than Unicode 9.0: what it leaves alone is left out here, too.
"""
import sys

from tokenizers import normalizers

try:
    import unicodedata2 as unicodedata
except ImportError:
    import unicodedata

WANT = "16.0.0"
# The White_Space property, what \s means in tiktoken's and tokenizers' regular expressions.
# U+FEFF and U+001C..1F are not in it.
SPACES = [*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000]
OTHER, LETTER, NUMBER, SPACE = range(4)     # CharClass of unicode.h


def char_class(code):
    if code in SPACES:
        return SPACE
    return {"L": LETTER, "N": NUMBER}.get(unicodedata.category(chr(code))[0], OTHER)


def nfc(text):
    return unicodedata.normalize("NFC", text)


def known(text):
    """Whether tokenizers composes the text as Unicode 16.0 has it."""
    return normalizers.NFC().normalize_str(text) == nfc(text)


def combining_classes():
    """By code point: the number of its class among all, in their order; 0 where there is none."""
    classes = {c: unicodedata.combining(chr(c)) for c in range(0x110000)}
    marks = [0x334, 0x327, 0x301, 0x345]    # of low and high classes: who knows a mark orders it among them
    for c in [c for c in classes if classes[c]]:
        if not all(known("a" + s) for m in marks for s in (chr(c) + chr(m), chr(m) + chr(c))):
            classes[c] = 0
    order = sorted(set(classes.values()))
    return [order.index(classes[c]) for c in range(0x110000)]


def decompositions():
    """Code points to what they are canonically: one or two others. Hangul's follow a rule and are not here."""
    for code in range(0x110000):
        text = unicodedata.decomposition(chr(code))
        if not text or text.startswith("<"):
            continue
        parts = [int(part, 16) for part in text.split()]
        if known(chr(code)) and known("".join(map(chr, parts))):
            if unicodedata.decomposition(chr(parts[-1])) and len(parts) == 2:
                sys.exit(f"make_unicode.py: error: U+{code:04X}: its second part has parts, which unicode.cpp ignores")
            yield code, parts


def encode(number):
    """Digits of base 18, '#' to '4', and a last one of base 74, '5' to '~'."""
    digits, last = "", number % 74
    number //= 74
    while number:
        digits = chr(ord("#") + number % 18) + digits
        number //= 18
    return digits + chr(ord("5") + last)


def encode_signed(number):
    return encode(2 * number if number >= 0 else -2 * number - 1)


def encode_steps(values, base):
    """Where the values change: entries since the change before * base + the value from there on."""
    text, last, since = "", 0, 0
    for at, value in enumerate(values):
        if value != last:
            text += encode((at - since) * base + value)
            last, since = value, at
    return text


def encode_decompositions():
    groups = {}     # those with the same second part; of single ones those that stand together
    for code, parts in decompositions():
        second = parts[1] if len(parts) == 2 else 0
        key = (second, nfc(chr(code)) != chr(code))
        if not second:
            before = next((k for k in groups if k[0] == 0 and groups[k][-1][0] == code - 1), None)
            key = before or (0, True, code)
        groups.setdefault(key, []).append((code, parts[0]))
    text = ""
    for key, group in sorted(groups.items()):
        text += encode(key[0]) + encode(2 * len(group) + key[1])
        last = (0, 0)
        for code, first in group:
            if key[0] or last == (0, 0):
                text += encode(code - last[0])
            text += encode_signed(first - last[1])
            last = (code, first)
    return text


def table(name, text):
    lines = [text[at:at + 119] for at in range(0, len(text), 119)]
    return f'static constexpr char {name}[] = R"(\n' + "\n".join(lines) + ')";'


def main():
    if unicodedata.unidata_version != WANT:
        got = unicodedata.unidata_version
        sys.exit(f"make_unicode.py: error: unicodedata: got Unicode {got}, want {WANT}; see the top of this file")
    print(f"""\
// unicode_tables.h -- what unicode.cpp knows of the code points: classes of Unicode {WANT}, and NFC's of 9.0.
// Written by tools/make_unicode.py: change that.
//
// Numbers have digits of base 18, '#' to '4', and a last one of base 74, '5' to '~'. Line feeds count for nothing.
#pragma once

// Where the class changes: code points since the change before * 4 + the class from there on.
{table("class_steps", encode_steps([char_class(c) for c in range(0x110000)], 4))}
// The same of the combining classes, * 64; they are numbered in their order.
{table("combining_steps", encode_steps(combining_classes(), 64))}
// What code points are composed of. A group: the second part, or 0 where there is none; 2 * the group's length, + 1 if
// NFC does not compose them again. Then of each the step from the last code point and from the last first part (2 * n,
// or -2 * n - 1). Without a second part they stand side by side, and only the first has a step.
{table("decompositions", encode_decompositions())}""")


if __name__ == "__main__":
    main()
