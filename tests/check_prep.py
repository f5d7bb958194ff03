#!/usr/bin/env python3
"""check_prep.py VOCAB_BPE SHARDS TEXT -- the tokens that prep made of a text with GPT-2's tokenizer are tiktoken's.

tiktoken gets its ranks from the same vocab.bpe, so that nothing is fetched. A text is one document: its training part
and, behind it, its validation part follow an end-of-text token each, where there is one. exit 1: they differ
"""

import glob
import sys

import numpy
import tiktoken

PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def encoding(path):
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in shown]
    byte_of = {chr(b): b for b in shown} | {chr(256 + i): b for i, b in enumerate(others)}
    ranks = {bytes([b]): i for i, b in enumerate(shown + others)}
    for line in open(path, encoding="utf-8").read().split("\n")[1:]:
        if line:
            ranks[bytes(byte_of[c] for c in line.replace(" ", ""))] = len(ranks)
    return tiktoken.Encoding("gpt2", pat_str=PATTERN, mergeable_ranks=ranks,
                             special_tokens={"<|endoftext|>": len(ranks)})


def tokens(folder, part):
    files = sorted(glob.glob(f"{folder}/*{part}*.bin"))
    return [int(t) for f in files for t in numpy.fromfile(f, "<u2")[512:]]


vocab, folder, path = sys.argv[1:]
gpt2 = encoding(vocab)
train, val = ([t for t in tokens(folder, part) if t != gpt2.eot_token] for part in ("train", "val"))
data, cut = open(path, "rb").read(), len(gpt2.decode_bytes(train))
theirs = [t for part in (data[:cut], data[cut:]) for t in gpt2.encode_ordinary(part.decode(errors="replace"))]
verdict = "the same" if train + val == theirs else "others"
print(f"{path}: {len(data)} bytes, {len(train + val)} tokens, tiktoken's {len(theirs)}: {verdict}")
sys.exit(verdict == "others" or len(theirs) < 1000)
