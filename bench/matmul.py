#!/usr/bin/env python3
"""The products of a training step beside torch.mm (MKL or oneDNN) on this machine's CPU, in turns in one run.

    bench/matmul.py [--models nano gpt2 ...] [--threads 1 2] [--dtypes fp32 bf16] [--turns 7]
    bench/matmul.py --peer numpy        beside numpy.matmul (OpenBLAS) instead: fp32, one thread
    bench/matmul.py --each [--only "forward 768"] [--program FILE]

One turn is 20 ms of ours in build/bench/matmul (build/bench/matmul16 for bf16), then as many of torch.mm(out=); its
time is that of the quickest product, because other programs on the machine only add. A ratio is the other's time over
ours, the median of the turns. The last line says how busy other programs kept the machine: OpenMP's threads wait for
each other, so that the ratios of several threads mean nothing on a busy one. On AMD's Zen 5 MKL stays below AVX2's
peak, while OpenBLAS uses AVX-512.

The table has a row for each model and product with the geometric mean of its layers' ratios, and the smallest of them;
--each prints a row for every shape instead. --only takes the shapes whose name contains that text; --program times
another build, as long as it is of one dtype. Needs torch: bench/peers.sh makes a Python that has it. bench/readme.sh
writes the table into docs/performance.md.
"""

import argparse
import datetime
import math
import os
import subprocess
import time

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # numpy reads these when it is imported, which torch does
for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    os.environ.pop(name, None)
import numpy
import torch

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# The layers of a block, then the head, as (rows, inputs, outputs); the head takes its rows of logits in parts. The rows
# are those of peers.py's batches; llama is our preset llama-124m with B 4, T 1024.
MODELS = {
    "nano": [(768, 128, 384), (768, 128, 128), (768, 128, 512), (768, 512, 128), (768, 128, 80)],
    "default": [(512, 128, 384), (512, 128, 128), (512, 128, 512), (512, 512, 128), (512, 128, 272)],
    "gpt2-t64": [(256, 768, 2304), (256, 768, 768), (256, 768, 3072), (256, 3072, 768), (256, 768, 50272)],
    "gpt2": [(4096, 768, 2304), (4096, 768, 768), (4096, 768, 3072), (4096, 3072, 768), (320, 768, 50272)],
    "llama": [(4096, 768, 1280), (4096, 768, 768), (4096, 768, 4864), (4096, 2432, 768), (320, 768, 50272)],
}
PRODUCTS = ("forward", "input", "params")
SECONDS = 0.02  # of each turn
PAUSE = 0.05  # in which PyTorch's threads, which wait awake after a product, fall asleep


def median(x):
    return sorted(x)[len(x) // 2]


def geometric_mean(x):
    return math.exp(sum(map(math.log, x)) / len(x))


def machine():
    return subprocess.run(os.path.join(ROOT, "bench/machine.sh"), capture_output=True, text=True).stdout.strip()


def cpu_seconds():
    """What all programs took since the start of the machine, and what this one and its finished children did."""
    with open("/proc/stat") as f:
        user, nice, system, _, _, irq, softirq = map(int, f.readline().split()[1:8])
    everything = (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
    return everything, sum(os.times()[:4])


class Ours:
    def __init__(self, program, threads):
        self.child = subprocess.Popen(
            [program, str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def time(self, which, shape):
        print(which, *shape, SECONDS, file=self.child.stdin)
        return float(self.child.stdout.readline())

    def close(self):
        self.child.stdin.close()
        self.child.wait()


class Theirs:
    def __init__(self, peer, shape, dtype):
        N, C, OC = shape
        inp, weight, dout = (torch.rand(s).sub_(0.5).to(dtype) for s in ((N, C), (OC, C), (N, OC)))
        out, dinp, dweight = (torch.empty_like(x) for x in (dout, inp, weight))
        operands = {
            "forward": (inp, weight.t(), out),
            "input": (dout, weight, dinp),
            "params": (dout.t(), inp, dweight),
        }
        multiply = torch.mm
        if peer == "numpy":
            multiply = numpy.matmul
            operands = {which: [x.numpy() for x in product] for which, product in operands.items()}
        self.products = {which: lambda a=a, b=b, c=c: multiply(a, b, out=c) for which, (a, b, c) in operands.items()}

    def time(self, which):
        quickest, start = math.inf, time.perf_counter()
        while quickest == math.inf or time.perf_counter() - start < SECONDS:
            begin = time.perf_counter()
            self.products[which]()
            quickest = min(quickest, time.perf_counter() - begin)
        return quickest


def measure(args, dtype, threads, model):
    """Yields (product, shape, our time, the other's, ratio) of every product of the model."""
    torch.set_num_threads(threads)
    ours = Ours(args.program or os.path.join(ROOT, "build/bench/matmul" + ("16" if dtype == "bf16" else "")), threads)
    for shape in MODELS[model]:
        theirs = Theirs(args.peer, shape, torch.bfloat16 if dtype == "bf16" else torch.float32)
        for which in PRODUCTS:
            if args.only not in f"{which} {' x '.join(map(str, shape))}":
                continue
            pairs = []
            for _ in range(args.turns + 1):
                time.sleep(PAUSE)
                pairs.append((ours.time(which, shape), theirs.time(which)))
            pairs = pairs[1:]  # the first warms up
            yield which, shape, *(median(x) for x in zip(*pairs)), median([t / o for o, t in pairs])
    ours.close()


def print_each(args):
    print("| model | product N x C x OC | dtype | threads | GFLOP/s | the other's | ratio |")
    print("|---|---|---|---:|---:|---:|---:|")
    ratios = []
    for dtype in args.dtypes:
        for threads in args.threads:
            for model in args.models:
                for which, shape, o, t, ratio in measure(args, dtype, threads, model):
                    rates = (2e-9 * math.prod(shape) / x for x in (o, t))
                    name = f"{which} {' x '.join(map(str, shape))}"
                    print(f"| {model} | {name} | {dtype} | {threads} |", *(f"{r:.0f} |" for r in rates), end="")
                    print(f" {ratio:.2f} |", flush=True)
                    ratios.append(ratio)
    if ratios:
        print(f"geometric mean of {len(ratios)} ratios {geometric_mean(ratios):.3f}, smallest {min(ratios):.2f}")


def print_table(args):
    columns = [(dtype, threads) for dtype in args.dtypes for threads in args.threads]
    titles = [f"{dtype}, {threads} thread{'s'[: threads > 1]}" for dtype, threads in columns]
    print("| model | product |", *(f"{title} |" for title in titles), "smallest |")
    print("|---|---|" + "---:|" * (len(columns) + 1))
    for model in args.models:
        ratios = {which: [[] for _ in columns] for which in PRODUCTS}
        for i, (dtype, threads) in enumerate(columns):
            for which, _, _, _, ratio in measure(args, dtype, threads, model):
                ratios[which][i].append(ratio)
        for which, cells in ratios.items():
            if all(cells):
                means = (f"{geometric_mean(cell):.2f} |" for cell in cells)
                print(f"| {model} | {which} |", *means, f"{min(map(min, cells)):.2f} |", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    p.add_argument("--threads", nargs="+", type=int)
    p.add_argument("--dtypes", nargs="+", choices=["fp32", "bf16"])
    p.add_argument("--turns", type=int, default=7)
    p.add_argument("--each", action="store_true")
    p.add_argument("--only", default="")
    p.add_argument("--program")
    p.add_argument("--peer", choices=["torch", "numpy"], default="torch")
    args = p.parse_args()
    other = f"torch.mm's time over Lockstep's, PyTorch {torch.__version__}"
    args.threads = args.threads or ([1] if args.peer == "numpy" else sorted({1, len(os.sched_getaffinity(0))}))
    args.dtypes = args.dtypes or (["fp32"] if args.peer == "numpy" else ["fp32", "bf16"])
    if args.peer == "numpy":
        if args.threads != [1] or args.dtypes != ["fp32"]:
            p.error("--peer numpy has fp32 and one thread only")
        other = f"numpy.matmul's time over Lockstep's, NumPy {numpy.__version__}"
    if args.program and len(args.dtypes) > 1:
        p.error("--program is of one dtype: give --dtypes fp32 or --dtypes bf16 with it")
    print(
        f"{other}, {machine()}, {datetime.date.today()}, {' and '.join(args.dtypes)}:\n",
        flush=True,
    )
    start, before = time.monotonic(), cpu_seconds()
    (print_each if args.each else print_table)(args)
    everything, own = (b - a for a, b in zip(before, cpu_seconds()))
    share = (everything - own) / (time.monotonic() - start) / os.cpu_count()
    print(f"\nOther programs took {100 * max(0, share):.0f} % of the machine meanwhile.")


main()
