#!/usr/bin/env python3
"""Writes tests/golden/ops.txt: what PyTorch computes for the operations of kernels.h, forward and backward.

    python3 tests/golden/make_ops.py        (needs torch; the tests read only the text file)

PyTorch runs in float64 on the CPU, on inputs that are multiples of 1/64, which a float holds exactly. Each array is a
line "name count scale" and a line of whole numbers, the values times the scale: 64, or what gives the largest 9 digits.
"""

import math
import os
import torch
import torch.nn.functional as F

torch.manual_seed(1)
torch.set_default_dtype(torch.float64)
out = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "ops.txt"), "w")


def write(name, x):
    x = x.detach().double().flatten().tolist()
    exact = all((v * 64).is_integer() for v in x)
    scale = 64 if exact else 10 ** (8 - math.floor(math.log10(max(map(abs, x)))))
    out.write(f"{name} {len(x)} {scale}\n" + " ".join(str(round(v * scale)) for v in x) + "\n")


def inp(name, *shape, scale=1.0):
    x = (torch.randn(*shape) * scale * 64).round() / 64
    write(name, x)
    return x.requires_grad_()


def results(op, y, dy, **inputs):
    y.backward(dy)
    write(op + ".out", y)
    for name, x in inputs.items():
        write(f"{op}.{name}", x.grad)


def attention(op, T, NH, NK):
    qkv, dy = inp(op + ".qkv", 2, T, NH + 2 * NK, 8), inp(op + ".dout", 2, T, NH, 8)
    q, k, v = (x.transpose(1, 2) for x in qkv.split([NH, NK, NK], dim=2))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2)
    results(op, y, dy, dqkv=qkv)


out.write(f"# make_ops.py, torch {torch.__version__.split('+')[0]}, float64\n")

# LayerNorm (3, 24)
x, w, b, dy = inp("ln.inp", 3, 24), inp("ln.weight", 24), inp("ln.bias", 24), inp("ln.dout", 3, 24)
results("ln", F.layer_norm(x, (24,), w, b, eps=1e-5), dy, dinp=x, dweight=w, dbias=b)

# a GPT-2 MLP: proj(gelu(fc(x))), rows (5), channels 8 -> 32 -> 8
x, dy = inp("mlp.inp", 5, 8), inp("mlp.dout", 5, 8)
w1, b1 = inp("mlp.fcw", 32, 8, scale=0.5), inp("mlp.fcb", 32)
w2, b2 = inp("mlp.projw", 8, 32, scale=0.5), inp("mlp.projb", 8)
pre = F.linear(x, w1, b1)
pre.retain_grad()
act = F.gelu(pre, approximate="tanh")
write("mlp.pre", pre)
write("mlp.act", act)
results("mlp", F.linear(act, w2, b2), dy, dpre=pre, dinp=x, dfcw=w1, dfcb=b1, dprojw=w2, dprojb=b2)

attention("att", 7, 2, 2)

# cross entropy (4, 11)
x = inp("loss.logits", 4, 11, scale=3)
t = torch.tensor([0, 10, 3, 3])
y = F.cross_entropy(x, t, reduction="none")
y.sum().backward()
write("loss.targets", t)
write("loss.losses", y)
write("loss.dlogits", x.grad)

# embeddings: tokens (2, 3) of 5, positions of 4, channels 8
wte, wpe, dy = inp("emb.wte", 5, 8), inp("emb.wpe", 4, 8), inp("emb.dout", 2, 3, 8)
t = torch.tensor([[4, 0, 4], [4, 2, 0]])
write("emb.tokens", t)
results("emb", F.embedding(t, wte) + wpe[:3], dy, dwte=wte, dwpe=wpe)

# AdamW and SGD: 3 steps of 8 weights that decay and 8 that do not; gradients of the 16, a learning rate that changes
w = inp("adamw.start", 16)


def optimize(name, make, grads):
    decayed, other = w.detach()[:8].clone().requires_grad_(), w.detach()[8:].clone().requires_grad_()
    optimizer = make([{"params": [decayed], "weight_decay": 0.1}, {"params": [other], "weight_decay": 0.0}])
    for step in range(3):
        if step == len(grads):
            grads.append(inp(f"adamw.grad{step}", 16).detach())
        decayed.grad, other.grad = grads[step][:8].clone(), grads[step][8:].clone()
        for group in optimizer.param_groups:
            group["lr"] = (0.0625, 0.03125, 0.015625)[step]
        optimizer.step()
        write(f"{name}.weights{step}", torch.cat([decayed, other]))


grads = []
optimize("adamw", lambda groups: torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-8), grads)
optimize("sgd", lambda groups: torch.optim.SGD(groups, lr=1, momentum=0.9), grads)

# RMSNorm (3, 24)
x, w, dy = inp("rms.inp", 3, 24), inp("rms.weight", 24), inp("rms.dout", 3, 24)
results("rms", F.rms_norm(x, (24,), w, eps=0.125), dy, dinp=x, dweight=w)

attention("grouped", 5, 6, 2)
