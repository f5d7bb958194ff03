#!/usr/bin/env python3
"""tokenizer.py -- Lockstep's GPT-2 encoder against tiktoken, and its bpe:N against Hugging Face's tokenizers, on the
same texts.

usage: PYTHON bench/tokenizer.py [ROUNDS]      (bench/tokenizer.sh finds a Python that has both, builds, and calls this)

Both encode on one core. The programs take turns, ROUNDS times (5); the medians count, and the ratio of the medians.
Before any time is printed the tokens are compared one by one. Merges are learnt from pieces that are the same for
both: a text is handed over in parts cut where GPT-2's split cuts anyway. Of pairs equally frequent the two take
different ones, so their merges are compared as sets.
"""

import os, random, re, statistics, subprocess, sys, tempfile, time

if "--hf" in sys.argv:  # a process of its own, since the library reads its thread count once
    import tokenizers

    vocab, text, out = sys.argv[2:]
    parts = re.split(r"(?<=\S)(?=\n)", open(text, encoding="utf-8", newline="").read())
    parts = ["".join(parts[i : i + 200]) for i in range(0, len(parts), 200)]
    t = tokenizers.Tokenizer(tokenizers.models.BPE())
    t.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=int(vocab),
        special_tokens=["<|endoftext|>"],
        show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    start = time.perf_counter()
    t.train_from_iterator(parts, trainer)
    print(time.perf_counter() - start)
    t.save(out)
    sys.exit()

import json
import numpy as np
import tiktoken
from tiktoken.load import data_gym_to_mergeable_bpe_ranks

root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
shared = os.path.join(os.environ.get("LOCKSTEP_SHARED", os.path.join(root, "../shared")), "data")
program = os.path.join(root, "build/bench/tokenizer")
vocab = os.path.join(shared, "gpt2_vocab.bpe")
rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5


def mixed_text():
    """This repository's sources and documents, and as much again of seeded words in many scripts with numbers and
    emoji."""
    r, parts = random.Random(1), []
    for path in sorted(
        subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True).stdout.split()
    ):
        if re.search(r"\.(cpp|h|cu|cuh|py|sh|md)$", path):
            parts.append(open(os.path.join(root, path), encoding="utf-8", newline="").read())
    alphabets = [
        "abcdefghijklmnopqrstuvwxyzäöüßéèêñ",
        "абвгдежзийклмнопрстуфхцчшщъыьэюя",
        "αβγδεζηθικλμνξοπρστυφχψω",
        "的一是不了人我在有他这为之大来以个中上们",
        "あいうえおかきくけこさしすせそ",
        "אבגדהוזחטיכלמנ",
        "ابتثجحخدذرز",
        "हिन्दीकखगघ",
        "0123456789",
        "😀🎉🚀✨→≤∑½²",
    ]
    words = ["".join(r.choices(r.choice(alphabets), k=r.randint(1, 9))) for _ in range(20000)]
    weights = [1 / (i + 1) for i in range(len(words))]  # Zipf's law
    size, want = 0, sum(map(len, parts)) // 2
    while size < want:
        line = " ".join(r.choices(words, weights, k=r.randint(1, 20))) + r.choice(
            [".\n", "\n", "!\n\n", " \t\n", "\r\n"]
        )
        parts.append(line)
        size += len(line)
    return "".join(parts)


def encode_ours(text_file, out):
    cold, warm = subprocess.run(
        [program, "encode", vocab, text_file, out], capture_output=True, text=True, check=True
    ).stdout.split()
    return float(cold), float(warm)


def bench_encode(name, text, text_file, out):
    ranks = data_gym_to_mergeable_bpe_ranks(vocab, os.path.join(shared, "gpt2_encoder.json"))
    # As in tiktoken_ext/openai_public.py.
    pattern = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(encode_ours(text_file, out))
        theirs.append([])
        encoder = tiktoken.Encoding(
            "gpt2", pat_str=pattern, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256}
        )
        for _ in range(2):  # the first pass, and one more
            start = time.perf_counter()
            tokens = encoder.encode_ordinary(text)
            theirs[-1].append(time.perf_counter() - start)
        if not np.array_equal(np.fromfile(out, dtype=np.int32), np.array(tokens, dtype=np.int32)):
            sys.exit(f"bench: {name}: the tokens differ from tiktoken's")
    for k, which in enumerate(["first pass", "again"]):
        a, b = (statistics.median(x[k] for x in times) for times in (ours, theirs))
        mb = len(text.encode()) / 1e6
        print(
            f"bench: encode {name} ({mb:.1f} MB, {len(tokens):,} tokens, equal), {which}: {mb / a:.1f} MB/s, "
            f"tiktoken {tiktoken.__version__} {mb / b:.1f} MB/s, {b / a:.2f} times",
            flush=True,
        )


def bench_train(name, text_file, size, folder):
    ours, one, many = [], [], []
    files = [os.path.join(folder, f) for f in ("ours.json", "hf.json")]
    for _ in range(rounds):
        run = lambda command, **env: float(
            subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, check=True).stdout
        )
        ours.append(run([program, "train", str(size), text_file, files[0]]))
        hf = [sys.executable, __file__, "--hf", str(size), text_file, files[1]]
        one.append(run(hf, RAYON_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false"))
        many.append(run(hf, RAYON_NUM_THREADS=str(os.cpu_count()), TOKENIZERS_PARALLELISM="true"))
    merges = [
        {tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in json.load(open(f))["model"]["merges"]}
        for f in files
    ]
    a, b, c = map(statistics.median, (ours, one, many))
    print(
        f"bench: learn bpe:{size} of {name}: {a:.3f} s; Hugging Face tokenizers, one thread "
        f"{b:.3f} s, {b / a:.2f} times; "
        f"{os.cpu_count()} threads {c:.3f} s, {c / a:.2f} times; "
        f"{len(merges[0] & merges[1])} of {len(merges[0])} merges are the same",
        flush=True,
    )


with tempfile.TemporaryDirectory() as folder:
    prose, mixed, out = (os.path.join(folder, f) for f in ("prose.txt", "mixed.txt", "tokens"))
    shakespeare = open(os.path.join(shared, "tinyshakespeare.txt"), encoding="utf-8", newline="").read()
    for name, text, path in [
        ("tinyshakespeare x 4", shakespeare * 4, prose),
        ("code and many scripts", mixed_text(), mixed),
    ]:
        open(path, "w", encoding="utf-8", newline="").write(text)
        bench_encode(name, text, path, out)
    bench_train("tinyshakespeare", os.path.join(shared, "tinyshakespeare.txt"), 1024, folder)
    bench_train("tinyshakespeare", os.path.join(shared, "tinyshakespeare.txt"), 8192, folder)
    bench_train("code and many scripts", mixed, 8192, folder)
