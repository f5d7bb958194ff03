#!/usr/bin/env python3
"""Adapters of --lora beside PEFT.

    check_lora.py make KIND FOLDER            writes a random model (gpt2, llama, qwen2, qwen3) and FOLDER/tokens.npy
    check_lora.py steps BASE RUN STEPS        PEFT and AdamW in float64 give the losses and norms of RUN's metrics.jsonl
    check_lora.py logits BASE ADAPTER MERGED  PEFT's logits are those of the merged folder
    check_lora.py loss BASE ADAPTER LOSS      PEFT's loss over tokens.npy is LOSS
    check_lora.py theirs BASE FOLDER          writes an adapter as others do: two targets, rank 4, rsLoRA
exit 77: this transformers has no such model
"""

import json
import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import numpy
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model

T, WINDOWS, VOCABULARY = 33, 9, 317
STACKS = [("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")]     # they share their A
COMMON = dict(vocab_size=VOCABULARY, bos_token_id=0, eos_token_id=0)
LLAMA = dict(hidden_size=56, num_attention_heads=7, num_hidden_layers=2, max_position_embeddings=T,
             intermediate_size=72, **COMMON)
KINDS = {"gpt2": ("GPT2", dict(n_embd=48, n_head=3, n_layer=2, n_positions=T, resid_pdrop=0.0, embd_pdrop=0.0,
                               attn_pdrop=0.0, **COMMON)),
         "llama": ("Llama", dict(num_key_value_heads=1, tie_word_embeddings=False, **LLAMA)),
         "qwen2": ("Qwen2", dict(num_key_value_heads=7, tie_word_embeddings=True, **LLAMA)),
         "qwen3": ("Qwen3", dict(num_key_value_heads=1, head_dim=24, tie_word_embeddings=True, **LLAMA))}


def make(kind, folder):
    name, config = KINDS[kind]
    if not hasattr(transformers, name + "Config"):
        print(f"transformers {transformers.__version__} has no {name}")
        sys.exit(77)
    torch.manual_seed(5)
    config = getattr(transformers, name + "Config")(**config)
    model = getattr(transformers, name + ("LMHeadModel" if kind == "gpt2" else "ForCausalLM"))(config)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn(p.shape) * 0.1)
    model.save_pretrained(folder)
    numpy.save(folder + "/tokens.npy", torch.randint(VOCABULARY, (T * WINDOWS + 1,)).numpy().astype(numpy.uint16))


def load(base, adapter=None, trainable=False):
    model = transformers.AutoModelForCausalLM.from_pretrained(base).double()
    if adapter:
        model = PeftModel.from_pretrained(model, adapter, is_trainable=trainable).double()
    return model.eval()


def batch(base):
    tokens = torch.tensor(numpy.load(base + "/tokens.npy").astype(numpy.int64))
    return tokens[:-1].view(WINDOWS, T), tokens[1:].view(WINDOWS, T)


def loss_of(model, base):
    x, y = batch(base)
    return torch.nn.functional.cross_entropy(model(x).logits.view(-1, VOCABULARY), y.reshape(-1))


def steps(base, run, count):
    model = load(base, f"{run}/ckpt/step_00000001", trainable=True)     # B was zero, so A is as it began
    for name, module in model.named_modules():
        if not hasattr(module, "lora_A"):
            continue
        torch.nn.init.zeros_(module.lora_B["default"].weight)
        for stack in STACKS:
            if name.rsplit(".", 1)[-1] in stack[1:]:
                first = model.get_submodule(name.rsplit(".", 1)[0] + "." + stack[0])
                module.lora_A["default"].weight = first.lora_A["default"].weight
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)
    lines = [json.loads(line) for line in open(run + "/metrics.jsonl")]
    ours = [line for line in lines if line["event"] == "train"]
    assert len(ours) == int(count), len(ours)
    worst = [0.0, 0.0]
    for line in ours:
        optimizer.zero_grad()
        loss = loss_of(model, base)
        loss.backward()
        norm = torch.sqrt(sum((p.grad ** 2).sum() for p in trained)).item()
        optimizer.step()
        for i, (want, got) in enumerate([(loss.item(), line["loss"]), (norm, line["grad_norm"])]):
            worst[i] = max(worst[i], abs(got / want - 1))
    print(f"loss {ours[0]['loss']:.4f} to {ours[-1]['loss']:.4f}; relative difference of losses {worst[0]:.2g}, "
          f"of norms {worst[1]:.2g}")
    return ours[-1]["loss"] < ours[0]["loss"] - 0.05 and worst[0] < 1e-5 and worst[1] < 1e-4


def logits(base, adapter, merged):
    x, _ = batch(base)
    with torch.no_grad():
        theirs, ours, plain = load(base, adapter)(x).logits, load(merged)(x).logits, load(base)(x).logits
        if not os.path.exists(adapter + "/config.json"):         # exported: transformers finds the model itself
            whole = transformers.AutoModelForCausalLM.from_pretrained(adapter).double().eval()
            assert torch.equal(whole(x).logits, theirs)
    scale = theirs.abs().max()
    print(f"logits differ by {(theirs - ours).abs().max() / scale:.2g}, from the base's {(theirs - plain).abs().max()}")
    return (theirs - ours).abs().max() < 1e-5 * scale and (theirs - plain).abs().max() > 1e-2 * scale


def loss(base, adapter, ours):
    with torch.no_grad():
        theirs = loss_of(load(base, adapter), base).item()
    print(f"PEFT {theirs:.6f}, ours {ours}")
    return abs(theirs - float(ours)) < 2e-5 * theirs


def theirs(base, folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(base)
    targets = ["c_attn"] if hasattr(model, "transformer") else ["q_proj", "v_proj"]
    torch.manual_seed(6)
    config = LoraConfig(r=4, lora_alpha=8, use_rslora=True, target_modules=targets, task_type="CAUSAL_LM")
    adapted = get_peft_model(model, config)
    with torch.no_grad():
        for name, p in adapted.named_parameters():
            if "lora_B" in name:
                p.normal_(0, 0.1)
    adapted.save_pretrained(folder)


commands = {"make": make, "steps": steps, "logits": logits, "loss": loss, "theirs": theirs}
sys.exit(0 if commands[sys.argv[1]](*sys.argv[2:]) in (None, True) else 1)
