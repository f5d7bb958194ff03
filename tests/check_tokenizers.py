#!/usr/bin/env python3
"""check_tokenizers.py -- what the tokenizers library makes of many texts, for build/tests/tokenizer to compare with.

    python3 tests/check_tokenizers.py FOLDER [SHAKESPEARE]
    LOCKSTEP_TOKENIZERS=FOLDER build/tests/tokenizer as_the_library

Writes for each split NAME.json, a tokenizer that the library learnt, and NAME.cases. A case, of numbers of 4 bytes:
whether special tokens are found, how many bytes, the text, how many tokens, their ids.
"""
import glob
import random
import struct
import sys
import unicodedata

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
         r"\s+(?!\S)|\s+")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|im_end|>x", "[\u00e9]", "\u4e16\u754c"]
PLAIN = ["<tool_call>", "<tool_call><tool_call>", "</tool_call>", "<think>", "<", "\u00e9t\u00e9", "\u212b", " \t ",
         "\n\n\n", "\u200d"]
NEW = tuple(map(int, tokenizers.__version__.split(".")[:2])) >= (0, 23)
rng = random.Random(1)


def byte_level(regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=regex)


def sequence(first, regex):
    return pre_tokenizers.Sequence([first, byte_level(regex)])


SPLITS = {
    "gpt2": byte_level(True),
    "llama3": sequence(pre_tokenizers.Split(Regex(LLAMA % "{1,3}"), "isolated"), False),
    "qwen2": sequence(pre_tokenizers.Split(Regex(LLAMA % ""), "isolated"), False),
    "smollm": sequence(pre_tokenizers.Digits(individual_digits=True), True),
}


def learn(name, texts, size, special):
    t = Tokenizer(models.BPE(ignore_merges=name == "llama3"))
    t.pre_tokenizer = SPLITS[name]
    t.decoder = decoders.ByteLevel()
    if name == "qwen2":
        t.normalizer = normalizers.NFC()
    t.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def with_tokens(name, t):
    t.add_special_tokens(SPECIAL[1:])
    t.add_tokens([AddedToken(s, normalized=k % 2 == 0) for k, s in enumerate(PLAIN)])
    if name == "llama3":
        t.post_processor = processors.TemplateProcessing("<|im_start|> $A", None, [("<|im_start|>", 0)])
    return t


def is_known(code):
    """Older libraries know fewer letters than Unicode 16.0 has: of those, what every Python knows."""
    return NEW or unicodedata.category(chr(code)) != "Cn"


def texts(shakespeare):
    files = sorted(glob.glob("*/*.h") + glob.glob("src/*/*.cpp") + glob.glob("tools/*/*.cpp") + glob.glob("docs/*.md"))
    sources = [open(f, encoding="utf-8").read() for f in files]
    yield from sources
    for at in range(0, len(shakespeare), 100000):
        yield shakespeare[at:at + 100000]
    yield from ["", " ", "  ", "\n", "a", "'", "'S", "'\u017f", "'\u017fx", "1", "12345", "<|im_end|>", "\u0301"]
    yield "".join(f"{i} {i * 7919}.{i:03d}-{-i:x}e{i % 10}\u00bd\u0663\u2167\u4e00\n" for i in range(2000))
    everything = [chr(k) for k in range(0x110000) if not 0xD800 <= k < 0xE000 and is_known(k)]
    for at in range(0, len(everything), 10000):
        yield "".join(everything[at:at + 10000])
    assigned = [k for k in everything if unicodedata.category(k) not in ("Cn", "Co", "Lo")]
    for at in range(0, len(assigned), 2000):    # what each does between others
        yield "".join(f"a{k} {k}1{k}\u0301 e\u0327\u0301{k}'{k}\n" for k in assigned[at:at + 2000])
    for _ in range(100):                        # 10 MB
        yield "".join(rng.choices(everything, k=26000))
    pools = ["abcXYZ", "stmdSTMDrevlRVEL", "0123456789\u00b2\u0664\u2169" + "\U00011de3" * NEW,
             " \t\r\n\u00a0\u3000\u2028\u0085",
             "'\u017f'", "._-({!?\u20ac", "".join(map(chr, range(0x300, 0x370))), 
             "\u00e9\u00c5\u1e69\u0385\u0958\ufb1d\u2adc",
             "".join(map(chr, [*range(0x1100, 0x1113), *range(0x1161, 0x1176), *range(0x11A7, 0x11C3)])),
             "\uac00\uac01\ud7a3\u3042\u3099\u4e16\u754c\uf900\U0002f800", "\u0645\u0631\u062d\u0628\u0627\u064b",
             "\U0001f600\u200d\U0001f468\U0001f3fd\ufe0f", SPECIAL + PLAIN]
    for _ in range(3000):
        some = rng.sample(pools, rng.randint(1, 5))
        yield "".join(rng.choice(rng.choice(some)) for _ in range(rng.randint(1, 300)))


def main():
    folder = sys.argv[1]
    shakespeare = open(sys.argv[2], encoding="utf-8").read() if len(sys.argv) > 2 else ""
    every = list(texts(shakespeare))
    for name in SPLITS:
        t = with_tokens(name, learn(name, every[:60] + every[-300:], 3000, SPECIAL[:1]))
        t.save(f"{folder}/{name}.json")
        with open(f"{folder}/{name}.cases", "wb") as out:
            for as_text in (True, False):
                t.encode_special_tokens = as_text
                for text in every if as_text else every[:200] + every[-3000:]:
                    ids, data = t.encode(text, add_special_tokens=False).ids, text.encode()
                    out.write(struct.pack("<II", not as_text, len(data)) + data)
                    out.write(struct.pack(f"<I{len(ids)}I", len(ids), *ids))
        print(name, len(every), "texts")


if __name__ == "__main__":
    main()
