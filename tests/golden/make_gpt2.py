#!/usr/bin/env python3
"""Writes tests/golden/gpt2_tiny/: a small GPT-2 as Hugging Face's library saves it, and what PyTorch makes of it in
20 steps.

    config.json, model.safetensors   random weights in bf16, scaled up so that 20 steps cross interesting values
    batch.bin                        the fixed batch: a shard of B*T+1 uint16 tokens (header: 20240520, 1, count)
    losses.txt                       "step loss grad_norm", before each AdamW step; fp64 arithmetic, so that it is the
                                     truth, not a rounding

Needs torch, transformers, numpy. Run from the repository's root; the files are committed, the tests need no Python.
"""

import os
import struct

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

OUT = os.path.join(os.path.dirname(__file__), "gpt2_tiny")
B, T, STEPS = 4, 24, 20
LR, WARMUP, FINAL, BETAS, EPS, DECAY, CLIP = 3e-3, 2, 0.1, (0.9, 0.95), 1e-8, 0.1, 1.0

torch.manual_seed(7)
config = GPT2Config(
    vocab_size=67, n_positions=T, n_embd=32, n_layer=2, n_head=4, activation_function="gelu_new", resid_pdrop=0.0,
    embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=66, eos_token_id=66,
)
model = GPT2LMHeadModel(config)
with torch.no_grad():
    for name, p in model.named_parameters():
        p.mul_(3.0 if p.dim() > 1 else 1.0)
        if p.dim() == 1:
            p.add_(0.1 * torch.randn_like(p))
os.makedirs(OUT, exist_ok=True)
model = model.bfloat16()
model.save_pretrained(OUT)

tokens = torch.randint(0, 67, (B * T + 1,), generator=torch.Generator().manual_seed(11))
with open(os.path.join(OUT, "batch.bin"), "wb") as f:
    f.write(struct.pack("<3i", 20240520, 1, len(tokens)) + bytes(4 * 253))
    f.write(tokens.numpy().astype("<u2").tobytes())

model = model.double()
x, y = tokens[:-1].view(B, T), tokens[1:].view(B, T)
groups = [
    {"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": DECAY},
    {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
]
optimizer = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS)
lines = []
for step in range(STEPS):
    if step < WARMUP:
        lr = LR * (step + 1) / WARMUP
    else:
        u = (step + 1 - WARMUP) / (STEPS - WARMUP)
        lr = LR * (FINAL + (1 - FINAL) * 0.5 * (1 + np.cos(np.pi * u)))
    for group in optimizer.param_groups:
        group["lr"] = lr
    logits = model(x).logits
    loss = torch.nn.functional.cross_entropy(logits.view(-1, 67), y.reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    optimizer.step()
    lines.append(f"{step} {loss.item():.12g} {norm.item():.12g}")
with open(os.path.join(OUT, "losses.txt"), "w") as f:
    f.write("\n".join(lines) + "\n")
