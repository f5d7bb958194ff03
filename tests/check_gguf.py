#!/usr/bin/env python3
"""Compares a GGUF file with the Hugging Face folder of the same model, and llama.cpp with what train_gpt says.

    check_gguf.py model FOLDER FILE TYPE TOKENS LOSS TOLERANCE
                                                every matrix has the bytes that the package gguf makes of the folder's;
                                                LOSS, train_gpt's over windows of the tokens, is that of transformers,
                                                and llama.cpp's differs by at most TOLERANCE
    check_gguf.py text FOLDER FILE PROMPT SAID  60 greedy tokens by transformers and llama.cpp: those in the file SAID
    check_gguf.py tokens FOLDER TEXT OUT        the first 513 tokens of a text, as uint16; exit 77 if this version of
                                                transformers is too old for the model
"""

import inspect
import json
import sys

import gguf
import numpy

import hugging_face
import torch
import transformers
from llama_cpp import Llama


# Of the package's converter: what is stored in rows other than transformers' own.
def permuted(name, tensor, config):
    if config.model_type not in ("llama", "mistral") or not ("attn_q." in name or "attn_k." in name):
        return tensor
    heads = config.num_attention_heads if "attn_q." in name else config.num_key_value_heads
    return tensor.reshape(heads, 2, -1, *tensor.shape[1:]).swapaxes(1, 2).reshape(tensor.shape)


def check_bytes(model, path, stored_as):
    kind = "llama" if model.config.model_type == "mistral" else model.config.model_type
    arch = next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == kind)
    names = gguf.get_tensor_name_map(arch, model.config.num_hidden_layers)
    stored = {t.name: t for t in gguf.GGUFReader(path).tensors}
    compared = {"rope_freqs.weight"}
    for name, weight in model.state_dict().items():
        found = names.get_name(name, (".weight", ".bias"))
        if found is None or (found == "output.weight" and model.config.tie_word_embeddings):
            continue
        values = weight.numpy()
        if arch == gguf.MODEL_ARCH.GPT2 and any(part in name for part in (".c_attn.w", ".c_proj.w", ".c_fc.w")):
            values = values.T
        values = numpy.ascontiguousarray(permuted(found, values, model.config))
        type_ = gguf.GGMLQuantizationType[stored_as.upper()]
        if values.ndim == 1 or found == "position_embd.weight":
            type_ = gguf.GGMLQuantizationType.F32
        elif type_ == gguf.GGMLQuantizationType.Q8_0 and values.shape[1] % 32:
            type_ = gguf.GGMLQuantizationType.F16
        want = gguf.quants.quantize(values, type_) if type_ != 0 else values
        if stored[found].tensor_type != type_ or stored[found].data.tobytes() != want.tobytes():
            sys.exit(f"{found}: other bytes than {type_.name} has")
        compared.add(found)
    if stored.keys() - compared or len(compared) == 1:
        sys.exit(f"{len(compared) - 1} tensors compared, left: {stored.keys() - compared}")


def check_loss(model, path, tokens, ours, tolerance):
    ids = torch.tensor(numpy.fromfile(tokens, dtype=numpy.uint16).astype(numpy.int64))
    losses, llama, theirs = hugging_face.losses(model, ids), Llama(path), []
    window, vocabulary = losses.size(1), model.config.vocab_size
    for begin in range(0, losses.numel(), window):
        for end in range(begin + 1, begin + window):        # llama.cpp takes no prompt of a whole context
            said = llama.complete(ids[begin:end].tolist(), 1, n_probs=vocabulary)["logprobs"]["content"][0]
            theirs += [-one["logprob"] for one in said["top_logprobs"] if one["id"] == ids[end]]
    difference = abs(losses[:, :-1].mean().item() - sum(theirs) / len(theirs))
    print(f"{len(theirs)} losses of llama.cpp: difference {difference:.1e}, tolerance {tolerance}")
    if len(theirs) != losses.numel() - len(losses) or len(theirs) < 500 or not difference <= float(tolerance):
        sys.exit("another loss")
    return hugging_face.near(losses.mean().item(), ours, 1e-5)


def check_model(folder, path, kind, tokens, ours, tolerance):
    model = hugging_face.load(folder)
    check_bytes(model, path, kind)
    return check_loss(model, path, tokens, ours, tolerance)


def check_text(folder, path, prompt, said):
    want = open(said, encoding="utf-8", newline="").read().removesuffix("\n")
    tokenizer, llama = transformers.AutoTokenizer.from_pretrained(folder), Llama(path)
    ids, plain = (tokenizer(prompt, add_special_tokens=special)["input_ids"] for special in (True, False))
    theirs = hugging_face.greedy(hugging_face.load(folder), ids, 60)
    theirs = prompt + tokenizer.decode(theirs, skip_special_tokens=True)
    other = prompt + llama.complete(prompt, 60)["text"]
    print(f"train_gpt    {want!r}\ntransformers {theirs!r}\nllama.cpp    {other!r}")
    if not want == theirs == other:
        sys.exit("other texts")
    # Negative control: with another first token, or without one, the text is another.
    changed = llama.complete(plain if len(plain) < len(ids) else [0] + plain, 60)["text"]
    if prompt + changed == want:
        sys.exit("the first token does not change the text: this shows nothing")


def write_tokens(folder, text, out):
    config = json.load(open(folder + "/config.json"))
    wide = config.get("head_dim", 0) * config.get("num_attention_heads", 0) not in (0, config.get("hidden_size"))
    kind = hugging_face.config_class(config["model_type"])
    if wide and "head_dim" not in inspect.signature(kind).parameters:
        hugging_face.skip(f"transformers {transformers.__version__} does not know these heads")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(open(text, encoding="utf-8").read())["input_ids"][:513]
    numpy.array(ids, dtype=numpy.uint16).tofile(out)


hugging_face.run({"model": check_model, "text": check_text, "tokens": write_tokens})
