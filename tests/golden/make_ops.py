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
    x = x.detach().flatten().tolist()
    exact = all((v * 64).is_integer() for v in x)
    scale = 64 if exact else 10 ** (8 - math.floor(math.log10(max(map(abs, x)))))
    out.write(f"{name} {len(x)} {scale}\n" + " ".join(str(round(v * scale)) for v in x) + "\n")


def inp(name, *shape, scale=1.0):
    x = (torch.randn(*shape) * scale * 64).round() / 64
    write(name, x)
    return x.requires_grad_()


out.write(f"# make_ops.py, torch {torch.__version__.split('+')[0]}, float64\n")

# LayerNorm (3, 24)
x, w, b, dy = inp("ln.inp", 3, 24), inp("ln.weight", 24), inp("ln.bias", 24), inp("ln.dout", 3, 24)
y = F.layer_norm(x, (24,), w, b, eps=1e-5)
y.backward(dy)
for name, v in [("out", y), ("dinp", x.grad), ("dweight", w.grad), ("dbias", b.grad)]:
    write("ln." + name, v)

# a GPT-2 MLP: proj(gelu(fc(x))), rows (5), channels 8 -> 32 -> 8
x, dy = inp("mlp.inp", 5, 8), inp("mlp.dout", 5, 8)
w1, b1 = inp("mlp.fcw", 32, 8, scale=0.5), inp("mlp.fcb", 32)
w2, b2 = inp("mlp.projw", 8, 32, scale=0.5), inp("mlp.projb", 8)
pre = F.linear(x, w1, b1)
pre.retain_grad()
act = F.gelu(pre, approximate="tanh")
y = F.linear(act, w2, b2)
y.backward(dy)
for name, v in [
    ("pre", pre), ("act", act), ("out", y), ("dpre", pre.grad), ("dinp", x.grad), ("dfcw", w1.grad),
    ("dfcb", b1.grad), ("dprojw", w2.grad), ("dprojb", b2.grad),
]:
    write("mlp." + name, v)

# causal attention, qkv (2, 7, 3, 2, 8)
qkv, dy = inp("att.qkv", 2, 7, 3, 2, 8), inp("att.dout", 2, 7, 2, 8)
q, k, v = (qkv[:, :, i].transpose(1, 2) for i in range(3))
y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
y.backward(dy)
write("att.out", y)
write("att.dqkv", qkv.grad)

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
y = F.embedding(t, wte) + wpe[:3]
y.backward(dy)
write("emb.tokens", t)
write("emb.out", y)
write("emb.dwte", wte.grad)
write("emb.dwpe", wpe.grad)

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
y = F.rms_norm(x, (24,), w, eps=0.125)
y.backward(dy)
for name, v in [("out", y), ("dinp", x.grad), ("dweight", w.grad)]:
    write("rms." + name, v)

# causal attention of 6 heads, three of which share keys and values: qkv (2, 5, 6 + 2 * 2, 8)
qkv, dy = inp("grouped.qkv", 2, 5, 10, 8), inp("grouped.dout", 2, 5, 6, 8)
q, k, v = (x.transpose(1, 2) for x in qkv.split([6, 2, 2], dim=2))
y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2)
y.backward(dy)
write("grouped.out", y)
write("grouped.dqkv", qkv.grad)
