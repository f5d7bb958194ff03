#!/usr/bin/env python3
"""The products of a training step beside torch.matmul (MKL or oneDNN) on this machine's CPU, in turns.

    bench/matmul.py [--models nano gpt2-t64 gpt2 llama] [--threads 1 2] [--bf16] [--turns 7] [--program FILE]

One turn is some milliseconds of ours in build/bench/matmul, then as many of torch.mm(out=). A ratio is PyTorch's time
over ours, the median of the turns; the last line has the geometric mean of all ratios and the smallest. PYTHON names a
Python with torch for bench/peers.sh, which runs this, too.
"""

import argparse
import math
import os
import subprocess
import time

import torch

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# name: rows, (inputs, outputs) of each layer; a head has its own rows of logits at a time
MODELS = {
    "nano": [(768, 128, 384), (768, 128, 128), (768, 128, 512), (768, 512, 128), (768, 128, 80)],
    "default": [(512, 128, 384), (512, 128, 128), (512, 128, 512), (512, 512, 128), (512, 128, 272)],
    "gpt2-t64": [(256, 768, 2304), (256, 768, 768), (256, 768, 3072), (256, 3072, 768), (256, 768, 50272)],
    "gpt2": [(4096, 768, 2304), (4096, 768, 768), (4096, 768, 3072), (4096, 3072, 768), (320, 768, 50272)],
    "llama": [(1024, 768, 1536), (1024, 768, 768), (1024, 768, 4096), (1024, 2048, 768), (512, 768, 32000)],
}


def median(x):
    return sorted(x)[len(x) // 2]


class Ours:
    def __init__(self, program, threads):
        self.child = subprocess.Popen(
            [program, str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def time(self, which, shape, seconds):
        self.child.stdin.write(f"{which} {shape[0]} {shape[1]} {shape[2]} {seconds}\n")
        self.child.stdin.flush()
        return float(self.child.stdout.readline())


def theirs(which, shape, seconds, arrays):
    N, C, OC = shape
    if shape not in arrays:
        dtype = arrays["dtype"]
        arrays[shape] = [torch.rand(s).sub_(0.5).to(dtype) for s in ((N, C), (OC, C), (N, OC))]
    inp, weight, out = arrays[shape]
    once = {
        "forward": lambda: torch.mm(inp, weight.t(), out=out),
        "input": lambda: torch.mm(out, weight, out=inp),
        "params": lambda: torch.mm(out.t(), inp, out=weight),
    }[which]
    times, start = [], time.perf_counter()
    while not times or time.perf_counter() - start < seconds:
        begin = time.perf_counter()
        once()
        times.append(time.perf_counter() - begin)
    if not math.isfinite(float(out[0, 0])) or abs(float(out[0, 0])) > 1e4:
        arrays.pop(shape)
    return median(times)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    p.add_argument("--threads", nargs="+", type=int, default=[1, len(os.sched_getaffinity(0))])
    p.add_argument("--bf16", action="store_true")
    p.add_argument("--turns", type=int, default=7)
    p.add_argument("--program", default=None)
    p.add_argument("--only", default="")
    args = p.parse_args()
    program = args.program or os.path.join(ROOT, "build/bench/matmul16" if args.bf16 else "build/bench/matmul")
    all_ratios = []
    print("| model | product N x C x OC | threads | GFLOP/s | PyTorch | ratio |\n|---|---|---:|---:|---:|---:|")
    for threads in args.threads:
        torch.set_num_threads(threads)
        ours = Ours(program, threads)
        arrays = {"dtype": torch.bfloat16 if args.bf16 else torch.float32}
        for model in args.models:
            for shape in MODELS[model]:
                for which in ("forward", "input", "params"):
                    name = f"{which} {' x '.join(map(str, shape))}"
                    if args.only not in name:
                        continue
                    flops = 2.0 * shape[0] * shape[1] * shape[2]
                    seconds = 0.02
                    pairs = []
                    for turn in range(args.turns + 1):
                        pair = ours.time(which, shape, seconds), theirs(which, shape, seconds, arrays)
                        if turn:  # the first warms up
                            pairs.append(pair)
                    ratio = median([t / o for o, t in pairs])
                    all_ratios.append(ratio)
                    o, t = (flops / median(x) / 1e9 for x in zip(*pairs))
                    print(f"| {model} | {name} | {threads} | {o:.0f} | {t:.0f} | {ratio:.2f} |", flush=True)
            arrays = {"dtype": arrays["dtype"]}
        ours.child.stdin.close()
    mean = math.exp(sum(map(math.log, all_ratios)) / len(all_ratios))
    print(f"geometric mean of {len(all_ratios)} ratios {mean:.3f}, smallest {min(all_ratios):.2f}")


main()
