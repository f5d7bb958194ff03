#!/usr/bin/env python3
"""Makes a Hugging Face folder, which --init takes, of a model that torch or PEFT has saved.

    torch_model.py out/ckpt.pt DIR                          nanoGPT
    torch_model.py last.ckpt DIR CONFIG                     Lightning, DeepSpeed's mp_rank_00_model_states.pt, or a
    torch_model.py pytorch_model.bin DIR [CONFIG]           state_dict, also in parts with an index
    torch_model.py ADAPTER DIR                              the base with a PEFT adapter of any kind merged into it

CONFIG: the folder with the model's config.json and tokenizer.json; if left out, that of the file.
"""
import glob
import json
import os
import pickle
import shutil
import sys


def rows_of(adapter):
    """How many rows the adapter's embedding has; 0: it brings none."""
    from safetensors import safe_open
    with safe_open(os.path.join(adapter, "adapter_model.safetensors"), "pt") as file:
        return max([file.get_slice(name).get_shape()[0] for name in file.keys()
                    if "lora_" not in name and ("embed_tokens" in name or "wte" in name)], default=0)


def merge(adapter, into):
    from peft import PeftConfig, PeftModel
    from transformers import AutoModelForCausalLM
    base = PeftConfig.from_pretrained(adapter).base_model_name_or_path
    model = AutoModelForCausalLM.from_pretrained(base).float()
    rows = rows_of(adapter)
    if rows and rows != model.get_input_embeddings().num_embeddings:
        model.resize_token_embeddings(rows)
    PeftModel.from_pretrained(model, adapter).merge_and_unload().save_pretrained(into)
    copy(base, into, texts)
    copy(adapter, into, texts)


texts = ("token*.json", "chat_template*", "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt")


def copy(folder, into, patterns):
    for pattern in patterns:
        for path in glob.glob(os.path.join(glob.escape(folder), pattern)):
            if not os.path.samefile(folder, into):
                shutil.copy(path, into)


def of_nanogpt(args, weights):
    """The config and the weights in GPT-2's form: Hugging Face has matrices transposed and always biases."""
    import torch
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_positions": args["block_size"],
              "activation_function": "gelu_new", **{key: args[key] for key in ("n_layer", "n_head", "n_embd",
                                                                             "vocab_size")}}
    print("nanoGPT's GELU is that of erf, and here it is that of tanh: losses differ by some 1e-4", file=sys.stderr)
    weights.pop("lm_head.weight", None)                         # is wte
    for name in [n for n in weights if n.endswith(".weight") and ".wte" not in n and ".wpe" not in n]:
        w = weights[name]
        weights.setdefault(name[:-len("weight")] + "bias", torch.zeros(w.shape[0]))
        if w.dim() == 2:
            weights[name] = w.t()
    return config, weights


def load(path):
    import torch
    if not os.path.exists(path) and os.path.exists(path + ".index.json"):
        path += ".index.json"
    if not path.endswith(".index.json"):
        try:
            return torch.load(path, map_location="cpu", weights_only=not trust)
        except pickle.UnpicklingError as error:
            sys.exit(f"{path}: {error}\n--trust reads it, and runs whatever code it holds")
    with open(path, encoding="utf-8") as file:
        parts = sorted(set(json.load(file)["weight_map"].values()))
    return {name: w for part in parts for name, w in load(os.path.join(os.path.dirname(path), part)).items()}


def convert(path, into, folder):
    from safetensors.torch import save_file
    saved = load(path)
    weights = saved
    for key in ("app", "state_dict", "module", "model"):
        weights = weights[key] if isinstance(weights.get(key), dict) else weights
    weights = {name.replace("_orig_mod.", "").replace("_fsdp_wrapped_module.", ""): w for name, w in weights.items()}
    ends = ("transformer.wte.weight", "model.embed_tokens.weight", "wte.weight", "embed_tokens.weight")
    before = next((name[:-len(end)] for end in ends for name in weights if name.endswith(end)), "")
    weights = {name.removeprefix(before): w for name, w in weights.items()}
    os.makedirs(into, exist_ok=True)
    if "model_args" in saved:
        config, weights = of_nanogpt(saved["model_args"], weights)
        with open(os.path.join(into, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file, indent=2)
    else:
        copy(folder or ".", into, ("config.json", "generation_config.json", *texts))
    save_file({name: w.clone().contiguous() for name, w in weights.items()},
              os.path.join(into, "model.safetensors"), {"format": "pt"})


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--trust"]
    trust = len(words) < len(sys.argv) - 1
    if len(words) not in (2, 3):
        sys.exit(__doc__)
    if os.path.isdir(words[0]):
        merge(*words[:2])
    else:
        convert(*words[:2], words[-1] if len(words) > 2 else os.path.dirname(words[0]))
