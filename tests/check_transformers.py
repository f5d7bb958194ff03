#!/usr/bin/env python3
"""Loads a checkpoint folder with Hugging Face's transformers, as a user would, and compares.

    check_transformers.py STEP_FOLDER [GOLDEN]

GOLDEN is text: a line "tokens 1 2 3 ...", then one line of logits per position, V numbers each (any tolerance line
"tolerance 1e-4" before them). Without it only loading is checked: no missing, unexpected or mismatched weight, the
shapes of config.json, and a tokenizer that gives a text back. Prints OK or FAIL lines; exit 0, 1, or 77 (skipped)
with the reason.
"""

import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is fetched: a folder is all it takes
try:
    import torch
    import transformers
except ImportError as error:
    print(f"SKIP {error}")
    sys.exit(77)

failed = False


def check(ok, what):
    global failed
    failed |= not ok
    print("OK  " if ok else "FAIL", what)


def read_golden(path):
    tokens, logits, tolerance = [], [], 1e-4
    for line in open(path):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if words[0] == "tokens":
            tokens = [int(w) for w in words[1:]]
        elif words[0] == "tolerance":
            tolerance = float(words[1])
        else:
            logits.append([float(w) for w in words])
    return tokens, torch.tensor(logits), tolerance


def check_model(folder):
    model, info = transformers.GPT2LMHeadModel.from_pretrained(folder, output_loading_info=True)
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        check(not info.get(key), f"{key}: {sorted(info.get(key) or [])}")
    config = model.config
    check(model.lm_head.weight.data_ptr() == model.transformer.wte.weight.data_ptr(), "the head is tied")
    check(model.transformer.wte.weight.dtype == torch.float32, f"dtype {model.transformer.wte.weight.dtype}")
    check(
        tuple(model.transformer.wte.weight.shape) == (config.vocab_size, config.n_embd),
        "wte has vocab_size rows, no padding",
    )
    parameters = sum(p.numel() for p in model.parameters())
    print(f"     {config.n_layer} layers, {config.n_head} heads, {config.n_embd} channels, {parameters:,} parameters")
    return model.eval()


def check_tokenizer(folder, vocab_size):
    if not os.path.exists(os.path.join(folder, "tokenizer.json")):
        print("     no tokenizer.json")
        return
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    text = "Hello, world\n  two  spaces"
    if tokenizer.backend_tokenizer.model.__class__.__name__ == "WordLevel":  # char: knows only what its text had
        text = "".join(c for c in text if c in tokenizer.get_vocab())
    ids = tokenizer.encode(text, add_special_tokens=False)
    check(tokenizer.decode(ids) == text, f"tokenizer gives the text back: {len(ids)} tokens")
    check(all(0 <= i < vocab_size for i in ids), "token ids are below vocab_size")
    check(len(tokenizer) == vocab_size, f"tokenizer has {len(tokenizer)} tokens, the model {vocab_size}")
    print(f"     {type(tokenizer).__name__}, eos {tokenizer.eos_token!r} = {tokenizer.eos_token_id}")


def check_logits(model, path):
    tokens, want, tolerance = read_golden(path)
    with torch.no_grad():
        got = model(torch.tensor([tokens])).logits[0]
    check(got.shape == want.shape, f"logits: shape {tuple(got.shape)}, golden {tuple(want.shape)}")
    if got.shape == want.shape:
        worst = (got - want).abs().max().item()
        check(worst <= tolerance, f"logits: largest difference {worst:.3g}, tolerance {tolerance:.3g}")  # NaN fails


def main():
    if len(sys.argv) not in (2, 3):
        print(__doc__)
        sys.exit(2)
    model = check_model(sys.argv[1])
    check_tokenizer(sys.argv[1], model.config.vocab_size)
    with torch.no_grad():
        out = model.generate(
            torch.tensor([[1]]), attention_mask=torch.ones(1, 1, dtype=torch.long),
            max_new_tokens=model.config.n_positions - 1, do_sample=False, pad_token_id=0,
        )
    check(out.shape[1] > 1 and int(out.max()) < model.config.vocab_size, f"generate gives {out.shape[1] - 1} tokens")
    if len(sys.argv) == 3:
        check_logits(model, sys.argv[2])
    sys.exit(1 if failed else 0)


main()
