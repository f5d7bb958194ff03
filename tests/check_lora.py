#!/usr/bin/env python3
"""Adapters of --lora beside PEFT, with the models of check_transformers.py.

    check_lora.py steps BASE RUN              PEFT and AdamW in float64 give the losses and norms of RUN's metrics.jsonl
    check_lora.py logits BASE ADAPTER MERGED  PEFT's logits are those of the merged folder
    check_lora.py loss BASE ADAPTER LOSS      PEFT's loss over tokens.npy is LOSS
    check_lora.py theirs BASE FOLDER          writes an adapter as others do: two targets, rank 4, rsLoRA
"""

import os

import numpy

import hugging_face
import torch
from peft import LoraConfig, PeftModel, get_peft_model

T = 33
STACKS = [("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")]     # they share their A


def load(base, adapter=None, trainable=False):
    model = hugging_face.load(base).double()
    if adapter:
        model = PeftModel.from_pretrained(model, adapter, is_trainable=trainable).double()
    return model.eval()


def batch(base):
    tokens = torch.tensor(numpy.load(base + "/tokens.npy").astype(numpy.int64))
    return tokens[:-1].view(-1, T), tokens[1:].view(-1, T)


def loss_of(model, base):
    x, y = batch(base)
    return hugging_face.cross_entropy(model(x).logits.transpose(1, 2), y)


def steps(base, run):
    model = load(base, f"{run}/ckpt/step_00000001", trainable=True)     # B was zero, so A is as it began
    for name, module in model.named_modules():
        if not hasattr(module, "lora_A"):
            continue
        torch.nn.init.zeros_(module.lora_B["default"].weight)
        for stack in STACKS:
            if name.rsplit(".", 1)[-1] in stack[1:]:
                first = model.get_submodule(name.rsplit(".", 1)[0] + "." + stack[0])
                module.lora_A["default"].weight = first.lora_A["default"].weight
    trained, before = [p for p in model.parameters() if p.requires_grad], loss_of(model, base)
    same = hugging_face.same_steps(run, trained, lambda: loss_of(model, base), 1e-4)
    return same and loss_of(model, base) < before - 0.05


def logits(base, adapter, merged):
    x, _ = batch(base)
    with torch.no_grad():
        theirs, ours, plain = load(base, adapter)(x).logits, load(merged)(x).logits, load(base)(x).logits
        if not os.path.exists(adapter + "/config.json"):         # exported: transformers finds the model itself
            assert torch.equal(load(adapter)(x).logits, theirs)
    off, change = ((theirs - other).abs().max() / theirs.abs().max() for other in (ours, plain))
    print(f"logits differ by {off:.2g}, from the base's by {change:.2g}")
    return off < 1e-5 and change > 1e-2


def loss(base, adapter, ours):
    with torch.no_grad():
        theirs = loss_of(load(base, adapter), base).item()
    return hugging_face.near(theirs, ours, 2e-5 * theirs)


def theirs(base, folder):
    model = hugging_face.load(base)
    targets = ["c_attn"] if hasattr(model, "transformer") else ["q_proj", "v_proj"]
    torch.manual_seed(6)
    config = LoraConfig(r=4, lora_alpha=8, use_rslora=True, target_modules=targets, task_type="CAUSAL_LM")
    adapted = get_peft_model(model, config)
    with torch.no_grad():
        for name, p in adapted.named_parameters():
            if "lora_B" in name:
                p.normal_(0, 0.1)
    adapted.save_pretrained(folder)


hugging_face.run({"steps": steps, "logits": logits, "loss": loss, "theirs": theirs})
