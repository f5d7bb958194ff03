#!/usr/bin/env python3
"""The same model and step in PyTorch, for bench/gpu.sh and bench/peers.py to compare with: GPT-2 with bf16 autocast,
torch.compile, scaled_dot_product_attention, a fused AdamW and gradient accumulation. Needs torch; nothing else.

    bench/torch_step.py attention
    bench/torch_step.py speed   --preset gpt2-124m --batch-size 16 --total-batch-size 65536 524288 --steps 10
    bench/torch_step.py init    --out DIR --seed 1 --layers 8 --heads 8 --channels 512 --seq-len 512 --vocab-size 256
    bench/torch_step.py train   --init DIR --data FILE.bin --seed 1 --steps 500 --out losses.txt ...

speed prints "tok_s TOKENS_PER_STEP TOKENS_PER_SECOND MEMORY_MB" for each size of step: the median of the steps after
the compiler's.
attention times scaled_dot_product_attention, causal, with every backend that takes the shape, forward and backward
by the same, and prints "HEAD_SIZE T B BACKEND FORWARD_TFLOP/S BACKWARD_TFLOP/S": medians of calls without pauses
between them, so that the GPU does not wait for Python; the causal half counted, 2 products forward and 5 backward.
init writes weights as Hugging Face's library does, for ./train_gpt --init DIR and for train. train reads raw uint16
tokens in the order of ./train_gpt --sampler torch --replicas 1 and writes "step loss" lines. --tiny and --device cpu
are for trying the script itself.
"""

import argparse
import json
import math
import os
import struct
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PRESETS = {
    "gpt2-124m": (12, 12, 768),
    "gpt2-350m": (24, 16, 1024),
    "gpt2-774m": (36, 20, 1280),
    "gpt2-1558m": (48, 25, 1600),
}


class Block(nn.Module):
    def __init__(self, heads, C):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.qkv, self.attproj = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.fc, self.fcproj = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (
            t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in self.qkv(self.ln_1(x)).split(C, dim=2)
        )
        x = x + self.attproj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C))
        return x + self.fcproj(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, layers, heads, C, T, V):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(V, C), nn.Embedding(T, C)
        self.blocks = nn.ModuleList(Block(heads, C) for _ in range(layers))
        self.ln_f = nn.LayerNorm(C)
        for name, p in self.named_parameters():  # GPT-2's: 0.02, less for projections into the residual stream
            if p.dim() >= 2:
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * layers) if "proj" in name else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)  # tied
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def optimizer_of(model, args):
    groups = [
        {"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": args.weight_decay},
        {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=args.lr, betas=(args.beta1, args.beta2), eps=1e-8, fused=True)


def one_step(step_model, model, optimizer, batches, args):
    """Gradients of all micro-batches, the norm, the update. Returns the mean loss, on the device."""
    loss_sum = 0
    for tokens, targets in batches:
        with torch.autocast(args.device, dtype=torch.bfloat16, enabled=args.bf16):
            loss = step_model(tokens, targets) / len(batches)
        loss.backward()
        loss_sum = loss_sum + loss.detach()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss_sum


def sync(args):
    if args.device == "cuda":
        torch.cuda.synchronize()


def speed(args):
    layers, heads, C = (2, 2, 32) if args.tiny else PRESETS[args.preset]
    T, V = (16, 67) if args.tiny else (1024, 50304)  # padded, as is usual; ours pads to 50,272
    torch.manual_seed(1)
    model = GPT(layers, heads, C, T, V).to(args.device)
    optimizer = optimizer_of(model, args)
    step_model = torch.compile(model) if args.compile else model
    for total in args.total_batch_size:
        count = max(1, total // (args.batch_size * T))
        times = []
        for step in range(args.steps + 2):
            batches = [
                tuple(torch.randint(0, min(V, 50257), (args.batch_size, T), device=args.device) for _ in range(2))
                for _ in range(count)
            ]
            sync(args)
            start = time.perf_counter()
            loss = one_step(step_model, model, optimizer, batches, args).item()
            sync(args)
            times.append(time.perf_counter() - start)
        assert math.isfinite(loss)
        middle = sorted(times[2:])[len(times[2:]) // 2]
        memory = torch.cuda.max_memory_allocated() / 1e6 if args.device == "cuda" else 0
        print(
            f"tok_s {count * args.batch_size * T} {count * args.batch_size * T / middle:.0f} {memory:.0f}", flush=True
        )


def median_seconds(run, args):
    calls, times = 1 if args.tiny else 16, []
    for _ in range(6):
        sync(args)
        start = time.perf_counter()
        if args.device == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
        for _ in range(calls):
            run()
        if args.device == "cuda":
            end.record()
        sync(args)
        whole = begin.elapsed_time(end) * 1e-3 if args.device == "cuda" else time.perf_counter() - start
        times.append(whole / calls)
    return sorted(times[1:])[2]


def attention(args):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    shapes = (
        [(2, 2, 64, 40), (1, 1, 128, 40)]
        if args.tiny
        else [(16, 12, 64, 1024), (64, 12, 64, 1024), (4, 25, 64, 1024), (2, 16, 128, 8192)]
    )
    backends = {
        "flash": SDPBackend.FLASH_ATTENTION,
        "cudnn": SDPBackend.CUDNN_ATTENTION,
        "efficient": SDPBackend.EFFICIENT_ATTENTION,
    }
    for B, heads, size, T in shapes:
        qkv = torch.randn(
            B, T, 3, heads, size, device=args.device, dtype=torch.bfloat16, requires_grad=True
        )  # packed, as ours
        q, k, v = (x.transpose(1, 2) for x in qkv.unbind(2))
        product = 2.0 * B * heads * size * T * (T + 1) / 2
        for name, backend in backends.items():
            try:
                with sdpa_kernel(backend):
                    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                    dout = torch.randn_like(out)
                    node = type(out.grad_fn).__name__  # a backward that is not the backend's would be named here
                    forward = median_seconds(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True), args)
                    backward = median_seconds(
                        lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True), args
                    )
            except RuntimeError as error:
                print(f"{name} refuses {size} x {T}: {str(error).splitlines()[0]}", file=sys.stderr)
                continue
            print(
                f"{size} {T} {B} {name} {2e-12 * product / forward:.3g} {5e-12 * product / backward:.3g} {node}",
                flush=True,
            )


# --------------------------------------------------------------------------------------------- the comparison of losses


# Our name of a tensor -> Hugging Face's, and whether it is transposed there (Conv1D).
def names(layers):
    yield "wte.weight", "wte.weight", False
    yield "wpe.weight", "wpe.weight", False
    inner = {
        "ln_1": ("ln_1", False),
        "ln_2": ("ln_2", False),
        "qkv": ("attn.c_attn", True),
        "attproj": ("attn.c_proj", True),
        "fc": ("mlp.c_fc", True),
        "fcproj": ("mlp.c_proj", True),
    }
    for l in range(layers):
        for ours, (theirs, transposed) in inner.items():
            yield f"blocks.{l}.{ours}.weight", f"h.{l}.{theirs}.weight", transposed
            yield f"blocks.{l}.{ours}.bias", f"h.{l}.{theirs}.bias", False
    yield "ln_f.weight", "ln_f.weight", False
    yield "ln_f.bias", "ln_f.bias", False


def init(args):
    torch.manual_seed(args.seed)
    model = GPT(args.layers, args.heads, args.channels, args.seq_len, args.vocab_size)
    state, header, data, at = model.state_dict(), {}, [], 0
    for ours, theirs, transposed in names(args.layers):
        x = state[ours].t().contiguous() if transposed else state[ours]
        raw = struct.pack(f"<{x.numel()}f", *x.flatten().tolist())
        header["transformer." + theirs] = {"dtype": "F32", "shape": list(x.shape), "data_offsets": [at, at + len(raw)]}
        at += len(raw)
        data.append(raw)
    os.makedirs(args.out, exist_ok=True)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(args.out, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(data))
    with open(os.path.join(args.out, "config.json"), "w") as f:
        json.dump(
            {
                "model_type": "gpt2",
                "architectures": ["GPT2LMHeadModel"],
                "vocab_size": args.vocab_size,
                "n_positions": args.seq_len,
                "n_ctx": args.seq_len,
                "n_embd": args.channels,
                "n_layer": args.layers,
                "n_head": args.heads,
                "activation_function": "gelu_new",
                "layer_norm_epsilon": 1e-5,
                "resid_pdrop": 0.0,
                "embd_pdrop": 0.0,
                "attn_pdrop": 0.0,
                "tie_word_embeddings": True,
            },
            f,
        )


def load(folder):
    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)
    model = GPT(config["n_layer"], config["n_head"], config["n_embd"], config["n_positions"], config["vocab_size"])
    with open(os.path.join(folder, "model.safetensors"), "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = bytearray(f.read())
    state = {}
    for ours, theirs, transposed in names(config["n_layer"]):
        entry = header["transformer." + theirs]
        x = torch.frombuffer(
            data, dtype=torch.float32, count=math.prod(entry["shape"]), offset=entry["data_offsets"][0]
        ).view(entry["shape"])
        state[ours] = x.t().contiguous() if transposed else x.clone()
    model.load_state_dict(state)
    return model, config["n_positions"]


def train(args):
    model, T = load(args.init)
    model.to(args.device)
    with open(args.data, "rb") as f:
        tokens = torch.frombuffer(bytearray(f.read()), dtype=torch.uint16).long()
    samples, B = (len(tokens) - 1) // T, args.batch_size
    count = args.total_batch_size[0] // (B * T)
    optimizer = optimizer_of(model, args)
    step_model = torch.compile(model) if args.compile else model
    order, epoch = None, -1

    def sample(q):  # number q of the run: DistributedSampler with one replica
        nonlocal order, epoch
        if q // samples != epoch:
            epoch = q // samples
            order = torch.randperm(samples, generator=torch.Generator().manual_seed(args.seed + epoch)).tolist()
        i = order[q % samples] * T
        return tokens[i : i + T], tokens[i + 1 : i + T + 1]

    with open(args.out, "w") as out:
        for step in range(args.steps):
            u = (step + 1 - args.warmup_steps) / (args.steps - args.warmup_steps)
            lr = args.lr * (
                (step + 1) / args.warmup_steps
                if step < args.warmup_steps
                else 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * u))
            )
            for group in optimizer.param_groups:
                group["lr"] = lr
            batches = []
            for k in range(count):
                pairs = [sample((step * count + k) * B + b) for b in range(B)]
                batches.append(tuple(torch.stack([p[i] for p in pairs]).to(args.device) for i in range(2)))
            print(step, f"{one_step(step_model, model, optimizer, batches, args).item():.7g}", file=out, flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=["speed", "attention", "init", "train"])
    p.add_argument("--preset", choices=PRESETS, default="gpt2-124m")
    for name, default in (
        ("layers", 8),
        ("heads", 8),
        ("channels", 512),
        ("seq-len", 512),
        ("vocab-size", 256),
        ("batch-size", 16),
        ("steps", 10),
        ("warmup-steps", 50),
        ("seed", 1),
    ):
        p.add_argument("--" + name, type=int, default=default)
    for name, default in (("lr", 6e-4), ("beta1", 0.9), ("beta2", 0.95), ("weight-decay", 0.1)):
        p.add_argument("--" + name, type=float, default=default)
    p.add_argument("--total-batch-size", type=int, nargs="+", default=[65536])
    for name in ("out", "init", "data"):
        p.add_argument("--" + name)
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--no-compile", dest="compile", action="store_false")
    p.add_argument("--tiny", action="store_true")
    p.add_argument("--fp32", dest="bf16", action="store_false")
    args = p.parse_args()
    if args.what != "init" and args.device == "cuda" and not torch.cuda.is_available():
        print("torch_step.py: no GPU answers torch", file=sys.stderr)
        sys.exit(66)
    torch.set_float32_matmul_precision("high")
    {"speed": speed, "attention": attention, "init": init, "train": train}[args.what](args)


if __name__ == "__main__":
    main()
