#!/usr/bin/env python3
"""Models between transformers and train_gpt.

    check_transformers.py folder FOLDER           a checkpoint is loaded as a user would: no missing, unexpected or
                                                  mismatched weight, the shapes of config.json, a tokenizer that gives
                                                  a text back
    check_transformers.py make KIND FOLDER        writes a random model (gpt2, llama, mistral, qwen2, qwen3; or of
                                                  qwen2-window, qwen3-window) in bf16, in several files, and
                                                  FOLDER/tokens.npy, text for it; exit 77: transformers has no such kind
    check_transformers.py loss FOLDER DATA LOSS   transformers' loss over the windows of a file of tokens, or of the
                                                  last tenth of a text, is LOSS
    check_transformers.py documents FILE          writes documents of odd lengths: 8 windows of 32 tokens, if a byte is
                                                  a token and 256 stands in front of each
    check_transformers.py steps FOLDER DATA RUN   float64 and AdamW on all windows of DATA at once, each document of
                                                  theirs by itself, give the losses and norms of RUN's metrics.jsonl
    check_transformers.py same FOLDER OTHER       both have the same tensors, bit for bit
"""

import json
import os

import numpy

import hugging_face
import torch
import transformers
from torch.nn.functional import cross_entropy

T = 33
LLAMA = dict(hidden_size=56, num_attention_heads=7, num_hidden_layers=3, max_position_embeddings=T,
             intermediate_size=72)
KINDS = {"gpt2": dict(n_embd=48, n_head=3, n_layer=2, n_positions=T, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
         "llama": dict(num_key_value_heads=1, tie_word_embeddings=False, rope_scaling={
             "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
             "original_max_position_embeddings": 16}, **LLAMA),
         "qwen2": dict(num_key_value_heads=7, tie_word_embeddings=True, sliding_window=32, use_sliding_window=False,
                       **LLAMA),
         "qwen3": dict(num_key_value_heads=1, head_dim=24, tie_word_embeddings=True, **LLAMA),
         "mistral": dict(num_key_value_heads=1, tie_word_embeddings=False, sliding_window=8, **LLAMA)}
KINDS |= {kind + "-window": KINDS[kind] | dict(use_sliding_window=True, sliding_window=7, max_window_layers=layers)
          for kind, layers in (("qwen2", 2), ("qwen3", 1))}


def folder(path):
    model, info = transformers.GPT2LMHeadModel.from_pretrained(path, output_loading_info=True)
    assert not any(info.values()), info
    weight, config = model.transformer.wte.weight, model.config
    assert model.lm_head.weight.data_ptr() == weight.data_ptr(), "the head is not tied"
    assert weight.dtype == torch.float32, weight.dtype
    assert weight.shape == (config.vocab_size, config.n_embd), weight.shape
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    text = "Hello, world\n  two  spaces"
    if type(tokenizer.backend_tokenizer.model).__name__ == "WordLevel":     # char: knows only what its text had
        text = "".join(c for c in text if c in tokenizer.get_vocab())
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids) == text, tokenizer.decode(ids)
    assert max(ids) < len(tokenizer) == config.vocab_size, (ids, len(tokenizer))
    said = hugging_face.greedy(model.eval(), [1], config.n_positions - 1)
    assert said and max(said) < config.vocab_size, said


def make(kind, path):
    model = hugging_face.new_model(kind.split("-")[0], 3, vocab_size=317, bos_token_id=0, eos_token_id=0, **KINDS[kind])
    if kind.endswith("-window") and not hasattr(model.config, "layer_types"):       # it gave no layer or all a window
        hugging_face.skip(f"transformers {transformers.__version__} has no windows of single layers")
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn(p.shape) * 0.2)
    model.to(torch.bfloat16).save_pretrained(path, max_shard_size="60KB")
    numpy.save(path + "/tokens.npy", torch.randint(317, (T * 9 + 1,)).numpy().astype(numpy.uint16))
    assert os.path.exists(path + "/model.safetensors.index.json")


def loss(path, data, ours):
    if data.endswith(".npy"):
        ids = numpy.load(data).astype(numpy.int64)
    else:
        text = open(data, encoding="utf-8").read()
        ids = hugging_face.load_tokenizer(path)(text[int(len(text) * 0.9):])["input_ids"]
    return hugging_face.near(hugging_face.losses(hugging_face.load(path), torch.tensor(ids)).mean().item(), ours, 2e-5)


def documents(path):
    lengths = [3, 20, 40, 32, 2, 33, 64, 31, 32]                # 8 * 32 + 1 together
    text = open("README.md", encoding="utf-8").read().encode("ascii", "replace").decode()
    with open(path, "w") as out:
        for n in lengths:
            out.write(json.dumps({"text": text[n:2 * n - 1].replace("\n", " ")}) + "\n")


def steps(path, data, run):
    ids = [token for line in open(data) for token in [256, *json.loads(line)["text"].encode()]]
    assert len(ids) == 8 * 32 + 1, len(ids)
    model = hugging_face.load(path).double()
    starts = sorted({n for n, token in enumerate(ids[:-1]) if token == 256} | set(range(0, len(ids), 32)))
    pieces = [torch.tensor([ids[a:b + 1]]) for a, b in zip(starts, starts[1:])]

    def loss_of():
        nats = [cross_entropy(model(x[:, :-1]).logits[0], x[0, 1:], reduction="sum") for x in pieces]
        return sum(nats) / (len(ids) - 1)

    return hugging_face.same_steps(run, model.parameters(), loss_of, 1e-4)


def same(path, other):
    one, two = (hugging_face.load(f).state_dict() for f in (path, other))
    assert one.keys() == two.keys()
    return all(torch.equal(x, two[name]) for name, x in one.items())


hugging_face.run({"folder": folder, "make": make, "loss": loss, "documents": documents, "steps": steps, "same": same})
