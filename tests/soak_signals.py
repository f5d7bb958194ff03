#!/usr/bin/env python3
"""soak_signals.py -- random configurations for SOAK_SECONDS (an hour unless said). Each is trained straight by one
rank, and again with signals at random moments to a rank or to the supervisor; after each the run is resumed with
another number of ranks and threads. Both must end with the same bits: weights, the optimizer's state, losses, norms,
scores and the best checkpoint. No process may be left, nor a temporary file.

    SOAK_SECONDS=300 SEED=1 tests/soak_signals.py
    ROUNDS=1 SEED=N tests/soak_signals.py           repeats a round, but for the signals' instants
"""
import contextlib, glob, json, os, random, shutil, signal, subprocess, sys, tempfile, time

os.chdir(os.path.dirname(os.path.abspath(__file__)) + "/..")
train = os.environ.get("TRAIN_GPT", os.getcwd() + "/train_gpt")
patience = 150                                  # seconds for an event that is waited for

models = {
    "gpt2": "--layers 2 --heads 2 --channels 32",
    "llama": "--layers 2 --heads 4 --kv-heads 2 --channels 32 --mlp-size 48",
    "qwen3": "--layers 1 --heads 4 --kv-heads 2 --channels 32 --mlp-size 64",
    "lstm": "--layers 2 --channels 32",
}
# What a start may be given. A stopped process ends the run when its peers miss it, or goes on after SIGCONT.
signals = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGKILL, signal.SIGSTOP]
stops = [-s for s in signals if s != signal.SIGSTOP]      # ended by it before it was caught
good_codes = [0, 1, 69, 75]                     # done; stopped by a second one; a peer is lost; stopped and saved


def write_data(folder):
    """Writes the data sets and returns a path for each."""
    r = random.Random(7)
    chat = [{"messages": [{"role": "user", "content": f"{a}+{b}"}, {"role": "assistant", "content": str(a + b)}]}
            for a, b in ((r.randrange(50), r.randrange(50)) for _ in range(200))]
    pairs = [{"prompt": f"say {a} ", "completion": "ha " * r.randrange(1, 20)} for a in range(150)]
    paths = {"text": "tests/golden/lines.txt"}
    for name, lines in [("chat", chat), ("pairs", pairs)]:
        paths[name] = f"{folder}/{name}.jsonl"
        with open(paths[name], "w") as f:
            f.writelines(json.dumps(line) + "\n" for line in lines)
    return paths


def configuration(r, data, tmp):
    """Returns the options of a run on which its bits depend, its number of replicas and of levels of --recompute."""
    model, of = r.choice(list(models)), r.choice(list(data))
    job, length, replicas = f"--data {data[of]} --batch-size 1".split(), r.choice([33, 50, 64]), r.choice([1, 2, 4, 8])
    shape = f"--model {model} {models[model]}".split()
    if r.random() < 0.4:
        base = f"{tmp}/{model}-{of}"
        if not os.path.exists(base):
            few = "--seq-len 64 --steps 2 --save-every 2 --total-batch-size 128 --sample-every 0 --threads 1 --out-dir"
            run([train, *job, *shape, *few.split(), base], f"{tmp}/base.log")
        shape = ["--init", base] + (["--lora", "8"] if r.random() < 0.5 else [])
    job += shape + f"""
        --seq-len {length} --replicas {replicas} --total-batch-size {length * replicas * r.choice([1, 2, 3])}
        --sample-every {r.choice([0, 4])} --max-tokens 8 --seed {r.randrange(9)} --steps {r.randrange(8, 40)}
        --save-every {r.randrange(1, 9)} --eval-every {r.randrange(0, 9)} --eval-steps 2 --keep {r.choice([0, 1, 2])}
        --lr {r.choice(['1e-3', '1e-2'])} --dtype {r.choice(['fp32', 'bf16'])} --warmup-steps {r.randrange(4)}
        --sampler {r.choice(['lockstep', 'torch'])} --grad-clip {r.choice([0, 0.1, 1])}
        --schedule {r.choice(['cosine', 'linear', 'constant', 'wsd'])}
        --optimizer {r.choice(['adamw', 'sgd', 'muon'])}""".split()
    job += ["--dropout", "0.1"] if model == "gpt2" and r.random() < 0.5 else []
    return job, (replicas, 1 if model == "lstm" else 4)


def start_options(r, limits):
    """Returns options on which no bits depend: another choice for each start."""
    replicas, levels = limits
    np = 2 ** r.randrange(replicas.bit_length())
    options = f"--threads {r.choice([1, 2])} --audit-every {r.choice([0, 1, 3])}".split()
    options += ["--recompute", str(r.randrange(levels))]
    options += ["--overlap", r.choice(["on", "off"]), "--timeout", "4"]
    if np > 1 or r.random() < 0.5:
        options += ["--np", str(np), "--max-restarts", "3"] + (["--elastic"] if r.random() < 0.3 else [])
    return options


def run(command, log):
    with open(log, "w") as out:
        code = subprocess.run(command, stdout=out, stderr=out, timeout=patience).returncode
    if code:
        raise Fault(f"exit code {code} of {' '.join(command)}: {open(log).read()[-500:]}")


class Fault(Exception):
    """What is wrong in a round."""


def wait_for(what, event):
    deadline = time.monotonic() + patience
    while not (result := event()):
        if time.monotonic() > deadline:
            raise Fault(f"not in {patience} s: {what}")
        time.sleep(0.005)
    return result


def read(path):
    """Returns what is in a file; nothing where it is gone, as it may be at any moment."""
    try:
        return open(path, "rb").read()
    except OSError:
        return b""


def children(pid):
    return [int(p) for p in read(f"/proc/{pid}/task/{pid}/children").split()]


def processes_in(out):
    """Returns the live processes that have this run folder in their command; a zombie has none."""
    return [int(p[6:]) for p in glob.glob("/proc/[0-9]*") if out.encode() in read(p + "/cmdline").split(b"\0")]


def send(pid, number):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def line_count(out):
    return read(out + "/metrics.jsonl").count(b"\n")


def interrupt(r, process, out):
    """Sends a signal some lines of the log later. A stopped supervisor always goes on, a rank half the time."""
    before, lines = line_count(out), r.choice([0, 0, 1, 2, 5, 15, 40])
    delay, number, to_rank, goes_on = r.random() * 0.3, r.choice(signals), r.random() < 0.5, r.random() < 0.5
    wait_for("a line", lambda: process.poll() is not None or line_count(out) >= before + lines)
    time.sleep(delay)
    ranks = children(process.pid)
    pid = r.choice(ranks) if ranks and to_rank else process.pid
    send(pid, number)
    if number == signal.SIGSTOP and (goes_on or pid == process.pid or len(ranks) == 1):     # nobody would miss it
        time.sleep(delay)
        send(pid, signal.SIGCONT)
    return f"{number.name} to {'the process' if pid == process.pid else 'a rank'} after {lines} lines"


def start(r, job, limits, out, log, faults):
    """Starts the run, with signals or until it is done. Returns the exit code."""
    command = [train, *job, *start_options(r, limits), "--resume", "auto", "--out-dir", out]
    log.write(" ".join(command) + "\n")
    process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        for _ in range(faults):
            log.write(interrupt(r, process, out) + "\n")
        wait_for(f"the end of {process.pid}", lambda: process.poll() is not None)
        wait_for("the end of the ranks", lambda: not processes_in(out))
    except Fault:
        for pid in processes_in(out):
            send(pid, signal.SIGKILL)
        process.wait()
        raise
    code = process.returncode
    if code not in ([0] if faults == 0 else good_codes + stops):
        raise Fault(f"exit code {code}")
    return code


def told(out):
    """Returns what metrics.jsonl says that must not depend on interruptions, the later line of two. Not
    samples: a stop cuts them short.
    """
    keys = {"train": ["loss", "lr", "grad_norm", "tokens"], "val": ["loss", "bpb"]}
    lines = {}
    for line in open(out + "/metrics.jsonl"):
        event = json.loads(line, parse_float=str)
        if event["event"] in keys:
            lines[event["step"], event["event"]] = [event.get(key) for key in keys[event["event"]]]
    return lines


def saved(out):
    """Returns the newest checkpoint's files, without the last start's options, and which one is the best."""
    newest = out + "/ckpt/" + open(out + "/ckpt/latest").read().strip()
    files = {name: open(f"{newest}/{name}", "rb").read() for name in os.listdir(newest) if name != "DONE"}
    state = json.loads(files["state.json"])
    files["state.json"] = {key: state[key] for key in state if key not in ["options", "run"]}
    return files | {"best": read(out + "/ckpt/best"), "latest": newest.rsplit("/", 1)[1]}


def compare(straight, out):
    want, got = told(straight) | saved(straight), told(out) | saved(out)
    differ = [key for key in want.keys() | got.keys() if want.get(key) != got.get(key)]
    score = max(key for key in want if "train" in key)[0] + 1, "val"
    if score in want and score not in got:      # a stop cut the last evaluation short: the best one is of those before
        differ = [key for key in differ if key not in [score, "best", "state.json"]]
    if differ:
        raise Fault(f"different: {sorted(differ, key=str)[:4]}")
    files = [f"{folder}/{name}" for folder, folders, names in os.walk(out) for name in folders + names]
    left = [f for f in files if ("/." in f or ".tmp" in f) and not f.endswith("/.lock")]
    if left:
        raise Fault(f"left behind: {left}")


def round_of(seed, data, tmp):
    """Returns how many starts and signals there were."""
    r = random.Random(seed)
    job, limits = configuration(r, data, tmp)
    straight, out, starts, sent = f"{tmp}/straight", f"{tmp}/run", 0, 0
    for folder in [straight, out]:
        shutil.rmtree(folder, ignore_errors=True)
    run([train, *job, "--threads", "1", "--out-dir", straight], f"{tmp}/straight.log")
    with open(f"{tmp}/log", "w", buffering=1) as log:
        for _ in range(r.randrange(1, 6)):
            faults = r.randrange(1, 3)
            starts, sent = starts + 1, sent + faults
            if start(r, job, limits, out, log, faults) == 0:
                break
        start(r, job, limits, out, log, 0)
    compare(straight, out)
    return starts + 1, sent


def main():
    seconds, rounds = int(os.environ.get("SOAK_SECONDS", 3600)), int(os.environ.get("ROUNDS", 0))
    first = seed = int(os.environ.get("SEED", time.time()))
    begin, starts, sent, failed = time.monotonic(), 0, 0, 0
    with tempfile.TemporaryDirectory() as tmp:
        data = write_data(tmp)
        while time.monotonic() - begin < seconds and (rounds == 0 or seed - first < rounds):
            try:
                more = round_of(seed, data, tmp)
                starts, sent = starts + more[0], sent + more[1]
            except Fault as fault:
                failed += 1
                print(f"FAIL seed {seed}: {fault}", flush=True)
                print(read(f"{tmp}/log").decode(errors="replace"), flush=True)
            seed += 1
    print(f"bench: signals: {seed - first} runs (seeds {first} to {seed - 1}), {sent} signals, {starts} starts in "
          f"{time.monotonic() - begin:.0f} s: {failed} failed")
    if not failed:
        print("ok   signals")
    print(f"tests: {int(not failed)} passed, {failed} failed, 0 skipped")
    return int(failed > 0)


sys.exit(main())
