#!/usr/bin/env python3
"""Writes tests/golden/muon.txt: what torch.optim.Muon makes of each matrix of small models.

    python3 tests/golden/make_muon.py       (needs torch 2.9; the tests read only the text file)

PyTorch's iteration runs in bfloat16; here it runs in float64. Shapes are those of tests/models/small_shape.h. A line is
a tensor's name, the numbers of its rows in one, and for each row, after 1 and after 4 updates, the products of what has
been added to the weights and of `look`.
"""

import os
import torch

torch.bfloat16 = torch.float64          # what torch.optim.Muon converts to
TENSORS = {
    "transformer.h.0.attn.c_attn.weight": [(16, 16)] * 3,
    "transformer.h.0.attn.c_proj.weight": [(16, 16)],
    "transformer.h.0.mlp.c_fc.weight": [(64, 16)],
    "transformer.h.0.mlp.c_proj.weight": [(16, 64)],
    "lstm.weight_ih_l0": [(64, 16)],
    "lstm.weight_hh_l0": [(64, 16)],
    "model.layers.0.self_attn.qkv.weight": [(16, 16), (8, 16), (8, 16)],
    "model.layers.0.self_attn.o_proj.weight": [(16, 16)],
    "model.layers.0.mlp.gate_up.weight": [(24, 16)] * 2,
    "model.layers.0.mlp.down_proj.weight": [(16, 24)],
}


def numbers():
    x = 1
    while True:
        x = (x * 1664525 + 1013904223) % 2**32
        yield ((x >> 16) % 129 - 64) / 64


def read(source, shape):
    return torch.tensor([next(source) for _ in range(shape[0] * shape[1])], dtype=torch.float64).reshape(shape)


with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "muon.txt"), "w") as out:
    for name, shapes in TENSORS.items():
        source, stack = numbers(), (sum(rows for rows, _ in shapes), shapes[0][1])
        heights = [rows for rows, _ in shapes]
        look, start = read(source, (stack[1], 1)), read(source, stack)
        weights = [torch.nn.Parameter(w.clone()) for w in start.split(heights)]
        muon = torch.optim.Muon(weights, lr=0.02, weight_decay=0.1, momentum=0.95)
        line = [name, stack[0]]
        for update in range(1, 5):
            for w, grad in zip(weights, read(source, stack).split(heights)):
                w.grad = grad.clone()
            muon.step()
            if update in (1, 4):
                line += [f"{x:.7f}" for x in ((torch.cat(weights).detach() - start) @ look).flatten().tolist()]
        print(*line, file=out)
