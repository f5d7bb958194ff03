#!/usr/bin/env python3
"""Random models of the Llama family, between transformers and train_gpt.

    check_family.py make KIND FOLDER      writes a model of KIND (llama, qwen2, qwen3) in bf16, in several files, and
                                          FOLDER/tokens.npy, text for it; exit 77 where transformers has no KIND
    check_family.py loss FOLDER LOSS      transformers' loss over the windows of tokens.npy is LOSS
    check_family.py same FOLDER OTHER     both have the same tensors, bit for bit
"""

import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import numpy
import torch
import transformers

T = 33
kinds = {"llama": ("Llama", dict(num_key_value_heads=1, tie_word_embeddings=False, rope_scaling={
             "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
             "original_max_position_embeddings": 16})),
         "qwen2": ("Qwen2", dict(num_key_value_heads=7, tie_word_embeddings=True, sliding_window=32,
                                 use_sliding_window=False)),
         "qwen3": ("Qwen3", dict(num_key_value_heads=1, head_dim=24, tie_word_embeddings=True))}


def make(kind, folder):
    name, more = kinds[kind]
    if not hasattr(transformers, name + "Config"):
        print(f"transformers {transformers.__version__} has no {name}")
        sys.exit(77)
    torch.manual_seed(3)
    config = getattr(transformers, name + "Config")(
        hidden_size=56, num_attention_heads=7, num_hidden_layers=3, vocab_size=317, max_position_embeddings=T,
        intermediate_size=72, bos_token_id=0, eos_token_id=0, **more)
    model = getattr(transformers, name + "ForCausalLM")(config)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn(p.shape) * 0.2)
    model.to(torch.bfloat16).save_pretrained(folder, max_shard_size="60KB")
    numpy.save(folder + "/tokens.npy", torch.randint(317, (T * 9 + 1,)).numpy().astype(numpy.uint16))
    assert os.path.exists(folder + "/model.safetensors.index.json")


def loss(folder, ours):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).float().eval()
    tokens = torch.tensor(numpy.load(folder + "/tokens.npy").astype(numpy.int64))
    total, n = 0.0, (len(tokens) - 1) // T
    for i in range(n):
        with torch.no_grad():
            logits = model(tokens[None, i * T:(i + 1) * T]).logits[0]
        total += torch.nn.functional.cross_entropy(logits.float(), tokens[i * T + 1:(i + 1) * T + 1]).item()
    print(f"transformers {total / n:.6f}, ours {ours}")
    return abs(total / n - float(ours)) < 2e-5 * (total / n)


def same(folder, other):
    of = [transformers.AutoModelForCausalLM.from_pretrained(f, torch_dtype=torch.float32).state_dict()
          for f in (folder, other)]
    assert of[0].keys() == of[1].keys()
    return all(torch.equal(x, of[1][name]) for name, x in of[0].items())


sys.exit(0 if {"make": make, "loss": loss, "same": same}[sys.argv[1]](*sys.argv[2:]) in (None, True) else 1)
