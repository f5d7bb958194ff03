#!/usr/bin/env python3
"""Lockstep beside PyTorch and llm.c on this machine's CPU: the same model, batch, threads and contents of a step, in
turns in one run. bench/peers.sh finds a Python for it, and llm.c.

    bench/peers.py [nano|64|1024|llama|llama-1024] [--rounds 3] [--steps 4] [--only eager] [--llmc DIR] [--quality]

nano is nanoGPT's recipe for characters on a CPU (4 layers, 4 heads, 128 channels, T 64, batch 12) on tinyshakespeare;
64 and 1024 are GPT-2 124M with B 4 and that T; llama is our preset llama-124m with B 4 and T 64, llama-1024 with T
1024. PyTorch's step is that of torch_step.py: scaled_dot_product_attention, fused AdamW, clipping, zero_grad; eager
and compiled, fp32 and bf16 autocast. Its GPT is there, too; Llama is transformers' LlamaForCausalLM. --llmc DIR: size
64 also has llm.c's train_gpt2 from that folder, which has no other size; it starts from weights that build/export
writes and neither clips nor decays. --quality trains nanoGPT's recipe (2,000 steps, or --steps) with both, in the last
of the ways, and prints seconds and the loss over the whole validation part.
"""

import argparse
import glob
import importlib.util
import json
import math
import os
import re
import struct
import subprocess
import sys
import tempfile
import time

import torch

import torch_step

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RECIPE = (
    "--tokenizer char --layers 4 --heads 4 --channels 128 --seq-len 64 --batch-size 12 --total-batch-size 768 "
    "--lr 1e-3 --beta2 0.99 "
    "--final-lr-frac 0.1 --weight-decay 0.1 --dropout 0 --grad-clip 1 --eval-every 0 --sample-every 0"
).split()
# layers, heads, channels, T, vocabulary, B
SIZES = {
    "nano": (4, 4, 128, 64, 65, 12),
    "64": (12, 12, 768, 64, 50304, 4),
    "1024": (12, 12, 768, 1024, 50304, 4),
    "llama": (12, 12, 768, 64, 50304, 4),
    "llama-1024": (12, 12, 768, 1024, 50304, 4),
}


def median(x):
    return sorted(x)[len(x) // 2]


def shakespeare():
    for path in glob.glob(os.path.join(ROOT, "../shared/data/tinyshakespeare.txt")) + glob.glob(
        os.path.join(ROOT, "data/tinyshakespeare.txt")
    ):
        return path
    sys.exit("peers.py: no tinyshakespeare.txt; data/get_tinyshakespeare.sh fetches it")


class Llama(torch.nn.Module):
    """transformers' model in the shape of the preset llama-124m, with torch_step.GPT's loss."""

    def __init__(self, layers, heads, C, T, V):
        super().__init__()
        from transformers import LlamaConfig, LlamaForCausalLM

        self.inner = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=V,
                hidden_size=C,
                intermediate_size=2432,
                num_hidden_layers=layers,
                num_attention_heads=heads,
                num_key_value_heads=4,
                max_position_embeddings=T,
                tie_word_embeddings=True,
                use_cache=False,
                attn_implementation="sdpa",
            )
        )

    def forward(self, tokens, targets):
        logits = self.inner(tokens).logits
        return torch.nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


class Torch:
    """One model and optimizer; eager and compiled, fp32 and bf16 are ways to run it."""

    def __init__(self, size, compiled):
        layers, heads, C, self.T, V, self.B = SIZES[size]
        torch.manual_seed(1)
        self.args = argparse.Namespace(device="cpu", bf16=False, weight_decay=0.1, lr=1e-3, beta1=0.9, beta2=0.99)
        self.model = (Llama if size.startswith("llama") else torch_step.GPT)(layers, heads, C, self.T, V)
        self.optimizer = torch_step.optimizer_of(self.model, self.args)
        self.ways = {"eager": self.model}
        if compiled:
            self.ways["compiled"] = torch.compile(self.model)

    def step(self, way, bf16, batch):
        self.args.bf16 = bf16
        return torch_step.one_step(self.ways[way], self.model, self.optimizer, [batch], self.args).item()

    def times(self, way, bf16, steps, tokens, limit=math.inf):
        """Seconds of each of so many steps, or of those that fit the limit: bf16 is emulated on CPUs without its
        instructions."""
        result = []
        while len(result) < steps and sum(result) < limit:
            at = torch.randint(0, len(tokens) - self.T - 1, (self.B,))
            x = torch.stack([tokens[i : i + self.T] for i in at])
            y = torch.stack([tokens[i + 1 : i + 1 + self.T] for i in at])
            start = time.perf_counter()
            loss = self.step(way, bf16, (x, y))
            result.append(time.perf_counter() - start)
            assert math.isfinite(loss)
        return result


def lockstep(folder, steps, options, save_every=0):
    """Seconds of each step but the first."""
    command = [
        os.path.join(ROOT, "train_gpt"),
        "--steps",
        str(steps + 1),
        "--threads",
        str(torch.get_num_threads()),
        "--save-every",
        str(save_every),
        "--out-dir",
        os.path.join(folder, "run"),
        "--force",
    ]
    done = subprocess.run(command + options, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"peers.py: {' '.join(command + options)}: {done.stderr}")
    with open(os.path.join(folder, "run", "metrics.jsonl")) as f:
        events = [json.loads(line) for line in f]
    return [e["step_ms"] / 1000 for e in events if e["event"] == "train" and e["step"] > 0]


class Llmc:
    """llm.c's train_gpt2, which takes B 4, T 64, 41 steps and the names of its files as given."""

    def __init__(self, root, folder, tokens, options):
        self.program, self.folder = os.path.abspath(os.path.join(root, "train_gpt2")), folder
        lockstep(folder, 0, options, save_every=1)
        command = [os.path.join(ROOT, "build", "export"), os.path.join(folder, "run"), "--llmc"]
        subprocess.run(command + [os.path.join(folder, "gpt2_124M.bin")], check=True, stdout=subprocess.DEVNULL)
        data = os.path.join(folder, "dev/data/tinyshakespeare")
        os.makedirs(data)
        for part in ("train", "val"):
            os.symlink(tokens, os.path.join(data, f"tiny_shakespeare_{part}.bin"))

    def times(self, steps, limit):
        """Seconds of each step but the first."""
        result = []
        with subprocess.Popen(
            ["stdbuf", "-oL", self.program],
            cwd=self.folder,
            env=dict(os.environ, OMP_NUM_THREADS=str(torch.get_num_threads())),
            stdout=subprocess.PIPE,
            text=True,
        ) as child:
            for line in child.stdout:
                step = re.match(r"step (\d+): train loss \S+ \(took (\S+) ms\)", line)
                if step and int(step[1]) > 0:
                    result.append(float(step[2]) / 1000)
                if len(result) == steps or sum(result) >= limit:
                    break
            child.kill()
        if not result:
            sys.exit(f"peers.py: {self.program}: got no line of a step")
        return result


def write_tokens(path, tokens):
    """An llm.c token shard, which both programs read."""
    with open(path, "wb") as f:
        f.write(struct.pack("<256i", 20240520, 1, len(tokens), *[0] * 253))
        f.write(tokens.numpy().astype("<u2").tobytes())


def speed(args, folder):
    layers, heads, C, T, V, B = SIZES[args.size]
    if args.size == "nano":
        with open(shakespeare()) as f:
            text = f.read()
        letters = sorted(set(text))
        tokens = torch.tensor([letters.index(c) for c in text[:200000]])
        options = RECIPE + ["--data", shakespeare(), "--warmup-steps", "1"]
    else:
        path = os.path.join(folder, "tokens.bin")
        tokens = torch.randint(0, 50257, (200000,), generator=torch.Generator().manual_seed(1))
        write_tokens(path, tokens)
        options = (
            f"--preset {'llama' if args.size.startswith('llama') else 'gpt2'}-124m --data {path} --batch-size {B} "
            f"--seq-len {T} --total-batch-size {B * T} --warmup-steps 1 --eval-every 0 --sample-every 0"
        ).split()
    peer = Torch(args.size, "compiled" in args.ways)
    llmc = Llmc(args.llmc, folder, path, options) if args.llmc and args.size == "64" else None
    times = {}

    def add(who, dtype, seconds):
        times.setdefault((who, dtype), []).extend(seconds)

    for way in args.ways:  # the compiler's time, first touch
        for bf16 in args.bf16:
            peer.times(way, bf16, 2, tokens)
    for _ in range(args.rounds):
        for dtype in ("fp32", "bf16"):
            add("Lockstep", dtype, lockstep(folder, args.steps, options + ["--dtype", dtype]))
        for way in args.ways:
            for bf16 in args.bf16:
                dtype = "bf16 autocast" if bf16 else "fp32"
                add(f"PyTorch {torch.__version__} {way}", dtype, peer.times(way, bf16, args.steps, tokens, 6))
        if llmc:
            add("llm.c train_gpt2", "fp32", llmc.times(args.steps, 6))
    base = {dtype: median(times["Lockstep", dtype]) for dtype in ("fp32", "bf16")}
    print(
        f"| {args.size}: {layers} layers, {C} channels, B {B}, T {T}, {torch.get_num_threads()} threads "
        "| | ms a step | tokens/s | over Lockstep fp32 | over Lockstep bf16 |\n"
        "|---|---|---|---|---|---|"
    )
    for (who, dtype), seconds in times.items():
        m = median(seconds)
        print(
            f"| {who} | {dtype} | {m * 1e3:.1f} | {B * T / m:.0f} | {m / base['fp32']:.2f} | {m / base['bf16']:.2f} |",
            flush=True,
        )


def quality(args, folder):
    """nanoGPT's steps: PyTorch's random windows and schedule as nanoGPT draws and sets them; the last tenth of the
    text is for validation."""
    with open(shakespeare()) as f:
        text = f.read()
    letters = {c: i for i, c in enumerate(sorted(set(text)))}
    tokens = torch.tensor([letters[c] for c in text])
    cut = int(len(tokens) * 0.9)
    train, val = tokens[:cut], tokens[cut:]
    steps, way, warmup = args.steps, args.ways[-1], min(100, args.steps // 10)
    Torch("nano", way == "compiled").times(way, False, 3, train)  # the compiler's time, which is kept for the next
    peer = Torch("nano", way == "compiled")
    start = time.perf_counter()
    for step in range(steps):
        for group in peer.optimizer.param_groups:
            group["lr"] = 1e-3 * (
                (step + 1) / warmup
                if step < warmup
                else 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))
            )
        peer.times(way, False, 1, train)
    theirs = time.perf_counter() - start
    with torch.no_grad():
        windows = [(val[i : i + 64], val[i + 1 : i + 65]) for i in range(0, len(val) - 64, 64)]
        losses = [
            peer.model(
                torch.stack([w[0] for w in windows[k : k + 64]]), torch.stack([w[1] for w in windows[k : k + 64]])
            ).item()
            * len(windows[k : k + 64])
            for k in range(0, len(windows), 64)
        ]
    start = time.perf_counter()
    lockstep(
        folder,
        steps - 1,
        RECIPE + ["--data", shakespeare(), "--dtype", "fp32", "--warmup-steps", str(warmup)],
        save_every=steps,
    )
    ours = time.perf_counter() - start
    out = subprocess.run(
        [os.path.join(ROOT, "train_gpt"), "eval", os.path.join(folder, "run")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    print(
        f"{steps} steps of nanoGPT's CPU recipe, fp32: Lockstep {ours:.0f} s with start and saving, {out.strip()}; "
        f"PyTorch {torch.__version__} {way} {theirs:.0f} s, val loss {sum(losses) / len(windows):.6f}; "
        f"{theirs / ours:.2f} x Lockstep's time"
    )


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("size", nargs="?", choices=SIZES, default="nano")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int)
    p.add_argument("--only", nargs="+", choices=["eager", "compiled"], dest="ways", default=["eager", "compiled"])
    p.add_argument("--fp32", action="store_const", const=[False], dest="bf16", default=[False, True])
    p.add_argument("--quality", action="store_true")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--llmc", metavar="DIR")
    args = p.parse_args()
    if args.size.startswith("llama") and not importlib.util.find_spec("transformers"):
        print(f"SKIP {args.size}: {sys.executable} has no transformers")
        return
    args.steps = args.steps or (2000 if args.quality else 4)
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as folder:
        (quality if args.quality else speed)(args, folder)


main()
