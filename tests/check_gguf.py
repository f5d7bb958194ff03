#!/usr/bin/env python3
"""Compares a GGUF file with the Hugging Face folder of the same model, and llama.cpp with what train_gpt says.

    check_gguf.py model FOLDER FILE TYPE TOKENS LOSS TOLERANCE
                                                every matrix has the bytes that the package gguf makes of the folder's;
                                                LOSS, train_gpt's over windows of the tokens, is that of transformers,
                                                and llama.cpp's differs by at most TOLERANCE
    check_gguf.py text FOLDER FILE PROMPT SAID  60 greedy tokens by transformers and llama.cpp: those in the file SAID
    check_gguf.py tokens FOLDER TEXT OUT        the first 513 tokens of a text, as uint16
    check_gguf.py known FOLDER                  77 if this version of transformers is too old for the model

Exit 0 or 1; 77 (skipped) with the reason.
"""

import inspect
import json
import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is fetched
try:
    import gguf
    import numpy
    import torch
    import transformers
    import llama_cpp
except ImportError as error:
    print(f"SKIP {error}")
    sys.exit(77)


def load_folder(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder).eval()


def check_known(folder):
    config = json.load(open(folder + "/config.json"))
    name = {"gpt2": "GPT2", "llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}[config["model_type"]] + "Config"
    wide = config.get("head_dim", 0) * config.get("num_attention_heads", 0) not in (0, config.get("hidden_size"))
    known = hasattr(transformers, name)
    if known and wide:
        known = "head_dim" in inspect.signature(getattr(transformers, name).__init__).parameters
    if not known:
        print(f"transformers {transformers.__version__} does not know {name} with these heads")
        sys.exit(77)


class Llama:
    """llama.cpp with the file, all in fp32."""

    def __init__(self, path):
        self.server = llama_cpp.server(path)

    def complete(self, prompt, tokens, probabilities=0):
        reply = self.server.handle_completions(
            {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "n_probs": probabilities}
        )
        if "choices" not in reply:
            sys.exit(f"llama.cpp: {reply}")
        return reply["choices"][0]

    def text(self, prompt, tokens):
        return self.complete(prompt, tokens)["text"]

    def log_probability(self, prompt, target, vocabulary):
        """Of the token `target` behind a prompt."""
        first = self.complete(prompt, 1, vocabulary)["logprobs"]["content"][0]["top_logprobs"]
        return next(one["logprob"] for one in first if one["id"] == target)


# Of the package's converter: what is stored in rows other than transformers' own.
def permuted(name, tensor, config):
    if config.model_type != "llama" or not ("attn_q." in name or "attn_k." in name):
        return tensor
    heads = config.num_attention_heads if "attn_q." in name else config.num_key_value_heads
    return tensor.reshape(heads, 2, -1, *tensor.shape[1:]).swapaxes(1, 2).reshape(tensor.shape)


def check_bytes(model, path, kind):
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH_NAMES and arch_of(model.config), model.config.num_hidden_layers)
    want_type = gguf.GGMLQuantizationType[kind.upper()]
    stored = {t.name: t for t in gguf.GGUFReader(path).tensors}
    compared = 0
    for name, weight in model.state_dict().items():
        found = names.get_name(name, (".weight", ".bias"))
        if found is None or (found == "output.weight" and model.config.tie_word_embeddings):
            continue
        tensor = stored[found]
        values = weight.float().numpy()
        if model.config.model_type == "gpt2" and any(part in name for part in (".c_attn.w", ".c_proj.w", ".c_fc.w")):
            values = values.T
        values = numpy.ascontiguousarray(permuted(found, values, model.config))
        vector = values.ndim == 1 or found == "position_embd.weight"
        type_ = gguf.GGMLQuantizationType.F32 if vector else want_type
        if type_ == gguf.GGMLQuantizationType.Q8_0 and values.shape[1] % 32:
            type_ = gguf.GGMLQuantizationType.F16
        want = gguf.quants.quantize(values, type_) if type_ != 0 else values
        if tensor.tensor_type != type_ or tensor.data.tobytes() != want.tobytes():
            sys.exit(f"{found}: other bytes than {type_.name} has")
        compared += 1
    rest = set(stored) - {names.get_name(n, (".weight", ".bias")) for n in model.state_dict()} - {"rope_freqs.weight"}
    if rest or compared == 0:
        sys.exit(f"{compared} tensors compared, left: {rest}")
    print(f"{compared} tensors")


def arch_of(config):
    return next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == config.model_type)


def check_text(folder, path, prompt, said):
    want = open(said, encoding="utf-8", newline="").read().removesuffix("\n")
    model, tokenizer = load_folder(folder), transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=60, do_sample=False,
                             pad_token_id=0)
    theirs = prompt + tokenizer.decode(out[0, ids.shape[1]:], skip_special_tokens=True)
    llama = Llama(path)
    other = prompt + llama.text(prompt, 60)
    print(f"train_gpt    {want!r}\ntransformers {theirs!r}\nllama.cpp    {other!r}")
    if not want == theirs == other:
        sys.exit("other texts")
    # Negative control: with another first token, or without one, the text is another.
    plain = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    begins = len(plain) < ids.shape[1]
    changed = prompt + llama.text(plain if begins else [0] + plain, 60)
    if changed == want:
        sys.exit("the first token does not change the text: this shows nothing")


def write_tokens(folder, text, out):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(open(text, encoding="utf-8").read())["input_ids"][:513]
    numpy.array(ids, dtype=numpy.uint16).tofile(out)


def check_loss(model, path, tokens, ours, tolerance):
    ids = torch.tensor(numpy.fromfile(tokens, dtype=numpy.uint16).astype(numpy.int64))
    llama = Llama(path)
    window, vocabulary = model.config.max_position_embeddings, model.config.vocab_size
    theirs, sums, count = [], [0.0, 0.0], 0
    for begin in range(0, len(ids) - window, window):
        inputs, targets = ids[begin:begin + window], ids[begin + 1:begin + window + 1]
        with torch.no_grad():
            losses = torch.nn.functional.cross_entropy(model(inputs[None]).logits[0], targets, reduction="none")
        theirs += losses.tolist()
        for i in range(window - 1):  # llama.cpp takes no prompt of a whole context
            sums[0] += losses[i].item()
            sums[1] -= llama.log_probability(inputs[:i + 1].tolist(), int(targets[i]), vocabulary)
            count += 1
    whole, theirs, other = sum(theirs) / len(theirs), sums[0] / count, sums[1] / count
    print(f"all tokens: transformers {whole:.6f}, train_gpt {ours}; {count} of them: transformers {theirs:.6f}, "
          f"llama.cpp {other:.6f}: difference {abs(theirs - other):.1e}, tolerance {tolerance}")
    if count < 500 or not abs(whole - float(ours)) <= 1e-5 or not abs(theirs - other) <= float(tolerance):
        sys.exit("another loss")


def check_model(folder, path, kind, tokens, ours, tolerance):
    model = load_folder(folder)
    check_bytes(model, path, kind)
    check_loss(model, path, tokens, ours, tolerance)


commands = {"model": check_model, "text": check_text, "tokens": write_tokens, "known": check_known}
if len(sys.argv) < 2 or sys.argv[1] not in commands:
    print(__doc__)
    sys.exit(2)
commands[sys.argv[1]](*sys.argv[2:])
