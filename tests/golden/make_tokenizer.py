#!/usr/bin/env python3
"""make_tokenizer.py -- writes tests/golden/tokenizer_unicode.txt: texts and their GPT-2 tokens, a JSON object per line.

    python3 tests/golden/make_tokenizer.py data/vocab.bpe > tests/golden/tokenizer_unicode.txt

The tokens are tiktoken's (0.14.0), and must be those of tokenizers (0.23.3) too. Neither needs a network for this.
"""

import json
import random
import sys
import unicodedata

import tiktoken
from tokenizers import Tokenizer, models, pre_tokenizers

PATTERN = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
ALPHABETS = {  # one line of each: letters, marks, numbers, symbols of many scripts
    "latin": "aéßøŁǅſÅfﬁ",
    "greek": "αβγΩϛ",
    "cyrillic": "жЩѢ",
    "hebrew": "שלוםֽ",
    "arabic": "مرحباًؐ٣",
    "devanagari": "नमस्ते०१",
    "thai": "สวัสดี๕",
    "cjk": "日本語漢字〆々〇㐀𠀀",
    "kana": "ひらがなカタカナｶﾞ",
    "hangul": "안녕하세요가",
    "numbers": "½²₃Ⅷ①፩৴𝟗㊿",
    "symbols": "€™→∑♥☃︎©®",
    "emoji": "😀👩‍👩‍👧👍🏽🇩🇪",
    "spaces": "\u00a0\u1680\u2003\u2028\u2029\u202f\u205f\u3000\u0085\u000b\u000c\u001c\u200b\ufeff",
    "marks": "e\u0301\u0308\u20dd",
    "new": "𞗐𐵀𐶌Ᲊ",
    "private": "\ue000\U0010fffd\ufffd\uffff",
    "ascii": " \t\r\n'\"!?-_0aZ",
}


def texts():
    rng = random.Random(1)
    everything = "".join(ALPHABETS.values())
    yield from [
        "", " ", "  ", "\n", " \n ", "a", "'", "'s", " 's", "'S", "''ll've're'm't'd", "don\u2019t",
        "I'Ll we'LL x'sy 's", "  a  b  ", "a \u00a0b\u3000\u3000c",
    ]
    yield from ALPHABETS.values()
    yield " ".join(ALPHABETS.values())
    for length in (3, 8, 20, 60, 150):
        for _ in range(4):
            yield "".join(rng.choice(everything + "  \n'std") for _ in range(length))
    planes = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cs",)]
    for _ in range(6):
        yield "".join(rng.choice(planes) + rng.choice(["", "", " ", "1", "a"]) for _ in range(25))


def main():
    order = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    shown = {b: chr(b) for b in order}
    for b in range(256):
        if b not in shown:
            shown[b] = chr(256 + len(order) - 188)
            order.append(b)
    of_char = {c: b for b, c in shown.items()}
    merges = [tuple(line.split(" ")) for line in open(sys.argv[1], encoding="utf-8").read().split("\n")[1:] if line]
    names = [shown[b] for b in order] + [a + b for a, b in merges]
    ranks = {bytes(of_char[c] for c in name): i for i, name in enumerate(names)}
    one = tiktoken.Encoding(
        "gpt2", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": len(names)}
    )
    two = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=merges))
    two.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    for text in texts():
        ids = one.encode_ordinary(text)
        if two.encode(text).ids != ids or one.decode_bytes(ids) != text.encode():
            sys.exit(f"make_tokenizer.py: error: {text!r}: tiktoken {ids}, tokenizers {two.encode(text).ids}")
        print(json.dumps({"text": text, "ids": ids}, separators=(",", ":")))


if __name__ == "__main__":
    main()
