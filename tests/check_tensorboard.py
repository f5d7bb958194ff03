#!/usr/bin/env python3
"""Reads a run's event file by tbparse and by TensorBoard's EventAccumulator, and compares with metrics.jsonl.

    check_tensorboard.py RUN STEPS          exit 1 unless both show the same values, each step of STEPS once
"""

import json
import struct
import sys
from collections import Counter

from tbparse import SummaryReader
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def float32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def expected(path):
    """The lines that count: a resume drops those of its step and later, but what was done with its weights."""
    lines = []
    for line in map(json.loads, open(path, encoding="utf-8")):
        if line["event"] == "resume":
            lines = [e for e in lines if e["step"] < line["step"] + (e["event"] != "train")]
        lines.append(line)
    scalars, samples = {}, {}
    for e in lines:
        if e["event"] == "sample":
            samples[e["step"]] = e["prompt"] + e["text"]
        for key in {"train": ("loss", "lr", "grad_norm", "tokens"), "val": ("loss", "bpb")}.get(e["event"], ()):
            scalars[e["event"] + "/" + key, e["step"]] = float32(e[key])
        for key in {"train": ("step_ms", "tok_s", "compute_ms", "comm_ms", "exposed_ms")}.get(e["event"], ()):
            scalars["speed/" + key, e["step"]] = float32(e[key])
    return scalars, samples


def compare(reader, got, want):
    got, want = Counter(got), Counter(want)
    assert got == want, f"{reader}: too much: {list(got - want)[:3]}, missing: {list(want - got)[:3]}"


def main(run, steps):
    scalars, samples = expected(run + "/metrics.jsonl")
    assert [s for tag, s in scalars if tag == "train/loss"] == list(range(steps))
    want = [(tag, step, value) for (tag, step), value in scalars.items()]
    texts = [(step, "    " + text.replace("\n", "\n    ")) for step, text in samples.items()]
    assert len(texts) >= steps // 6

    table = SummaryReader(run)
    compare("tbparse", [(t, int(s), float32(v)) for s, t, v in table.scalars.values.tolist()], want)
    compare("tbparse, text", [(int(s), v) for s, t, v in table.text.values.tolist() if t == "sample"], texts)

    events = EventAccumulator(run, size_guidance={"scalars": 0, "tensors": 0, "images": 0})
    events.Reload()
    assert events.FirstEventTimestamp() > 1e9
    got = [(tag, e.step, e.value) for tag in events.Tags()["scalars"] for e in events.Scalars(tag)]
    compare("TensorBoard", got, want)
    got = [(e.step, e.tensor_proto.string_val[0].decode()) for e in events.Tensors("sample")]
    compare("TensorBoard, text", got, texts)
    print(f"{len(want)} values of {steps} steps, {len(texts)} samples")


main(sys.argv[1], int(sys.argv[2]))
