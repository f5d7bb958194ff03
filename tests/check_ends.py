#!/usr/bin/env python3
"""Which tokens begin and end a text, as transformers, tokenizers and llama.cpp read a model's folder.

    check_ends.py make FOLDER             writes FOLDER/docs.jsonl, pairs.jsonl, one.txt, and a folder for each variant
    check_ends.py tokens FOLDER DOCS N    documents have N tokens
    check_ends.py loss FOLDER DOCS LOSS   transformers' loss over windows of the documents' tokens is LOSS
    check_ends.py kept FOLDER RESULT      RESULT, a fine-tune of FOLDER, has its files
    check_ends.py stops FOLDER PROMPT TEXT     transformers' generate ends, with TEXT
    check_ends.py gguf FOLDER FILE PROMPT TEXT llama.cpp ends, with TEXT; the file names the folder's tokens
    check_ends.py same FOLDER OTHER       both name the same tokens that end a text
    check_ends.py always FOLDER OUT ID    writes a model like FOLDER that says the token ID alone

A folder's `ends` lists what is true: the token before a text, that behind a document, all that end an answer.
"""

import json
import os
import random
import shutil

import check_tokenizers
import hugging_face
import torch
from tokenizers import AddedToken, Tokenizer, processors

T = 64
SIZES = {"gpt2": dict(n_positions=T, n_embd=64, n_layer=2, n_head=4)}
SIZES["llama"] = SIZES["qwen2"] = dict(
    max_position_embeddings=T, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, tie_word_embeddings=False)
WORDS = "a boat waits at the pier while gulls count crumbs and the baker closes early because of rain".split()
OLD = ["<s>", "<pad>", "</s>", "<unk>"]
NEW = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
CHAT = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
# Each variant: model, split, control tokens (ids from 400), the token of a template before and behind a text; members
# of config.json, generation_config.json and tokenizer_config.json; and what is true.
VARIANTS = {
    "number": ("llama", "gpt2", OLD, "", "", {"eos_token_id": 402, "bos_token_id": 400}, None, None, (-1, [402])),
    "angle": ("llama", "gpt2", ["<bos>", "<eos>"], "", "", {"eos_token_id": 401}, None, {"eos_token": "<eos>"},
              (-1, [401])),
    "generation": ("qwen2", "qwen2", CHAT, "", "", {}, {"eos_token_id": [402, 400]}, None, (-1, [402, 400])),
    "object": ("llama", "gpt2", OLD, "", "", {}, None, {"eos_token": {"content": "</s>", "lstrip": False, "__type":
               "AddedToken", "rstrip": False, "single_word": False, "normalized": False}}, (-1, [402])),
    "instruct": ("llama", "llama3", NEW, NEW[0], "", {"eos_token_id": [401, 404], "bos_token_id": 400},
                 {"eos_token_id": [401, 404], "temperature": 0.6, "do_sample": True},
                 {"eos_token": NEW[4], "bos_token": NEW[0]}, (400, [404, 401])),
    "base": ("llama", "llama3", NEW, NEW[0], "", {"eos_token_id": 401, "bos_token_id": 400}, None,
             {"eos_token": NEW[1], "bos_token": NEW[0]}, (400, [401])),
    "qwen": ("qwen2", "qwen2", CHAT + ["<|pad|>"], "", "", {"eos_token_id": 402, "pad_token_id": 403},
             {"eos_token_id": [402, 400], "pad_token_id": 403, "top_p": 0.9, "do_sample": True},
             {"eos_token": CHAT[2], "pad_token": "<|pad|>", "padding_side": "left", "model_max_length": T,
              "add_bos_token": False}, (-1, [402, 400])),
    "null": ("llama", "smollm", OLD, "", "", {"eos_token_id": None}, {"eos_token_id": 402}, None, (-1, [402])),
    "behind": ("llama", "gpt2", OLD, "<s>", "</s>", {}, None, {"eos_token": "</s>"}, (400, [402])),
    "name": ("llama", "smollm", CHAT, "", "", {}, None, None, (-1, [400])),
    "ordinary": ("llama", "gpt2", OLD, "", "", {"eos_token_id": 5}, None, None, (-1, [5])),
    "gpt2": ("gpt2", "gpt2", CHAT[:1], "", "", {"eos_token_id": 400, "bos_token_id": 400}, None,
             {"eos_token": CHAT[0], "bos_token": CHAT[0], "unk_token": CHAT[0]}, (-1, [400])),
}


def text(seed):
    r = random.Random(seed)
    return " ".join(r.choice(WORDS) for _ in range(r.randint(4, 11))).capitalize() + "."


def write(folder, name, value):
    with open(f"{folder}/{name}", "w", encoding="utf-8") as f:
        json.dump(value, f, indent=1)


def read(folder, name):
    path = f"{folder}/{name}"
    return json.load(open(path, encoding="utf-8")) if os.path.exists(path) else {}


def load_tokenizer(folder):
    return Tokenizer.from_file(folder + "/tokenizer.json")


def make_tokenizer(folder, split, specials, before, behind):
    t = check_tokenizers.learn(split, [" ".join(text(i) for i in range(300))], 400, [])
    t.add_tokens([AddedToken(f"<filler{i}>", normalized=False) for i in range(400 - t.get_vocab_size())])
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in specials])
    around = [(s, t.token_to_id(s)) for s in {before, behind} if s]
    if around:
        t.post_processor = processors.TemplateProcessing(single=" ".join([before, "$A", behind]).strip(),
                                                         pair="$A $B", special_tokens=around)
    t.save(folder + "/tokenizer.json")
    return t.get_vocab_size()


def make(folder):
    with open(folder + "/docs.jsonl", "w") as f:
        f.writelines(json.dumps({"text": text(1000 + i)}) + "\n" for i in range(40))
    with open(folder + "/one.txt", "w") as f:
        f.write(" ".join(text(2000 + i) for i in range(30)))
    with open(folder + "/pairs.jsonl", "w") as f:
        f.writelines(json.dumps({"prompt": f"{a}+{b}=", "completion": str(a + b)}) + "\n" for a in range(7) for b in
                     range(7))
    for name, (kind, split, specials, before, behind, config, generation, tokens, ends) in VARIANTS.items():
        own = f"{folder}/{name}"
        os.makedirs(own)
        size = make_tokenizer(own, split, specials, before, behind)
        hugging_face.new_model(kind, 3, vocab_size=size, **SIZES[kind]).save_pretrained(own)
        os.remove(own + "/generation_config.json")
        made = {k: v for k, v in read(own, "config.json").items() if k not in ("eos_token_id", "bos_token_id")}
        write(own, "config.json", made | config | {"_name_or_path": "made/" + name, "use_cache": True})
        if generation:
            write(own, "generation_config.json", generation)
        if tokens:
            write(own, "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"} | tokens)
            names = {k: v for k, v in tokens.items() if k.endswith("_token") and k != "add_bos_token"}
            write(own, "special_tokens_map.json", names)
        write(own, "ends", {"begin": ends[0], "ends": ends[1]})
        print(name)


def stream(folder, docs):
    """The tokens of all documents: as tokenizer(text) gives them, and the token that ends a text."""
    tokenizer, true, all_ids = load_tokenizer(folder), read(folder, "ends"), []
    if docs.endswith(".txt"):  # one text, which does not end
        ids = tokenizer.encode(open(docs, encoding="utf-8").read()).ids
        return ids[:-1] if ids[-1] == true["ends"][0] else ids
    for line in open(docs, encoding="utf-8"):
        ids = tokenizer.encode(json.loads(line)["text"]).ids
        assert (ids[0] == true["begin"]) == (true["begin"] >= 0)
        all_ids += ids if ids[-1] == true["ends"][0] else ids + [true["ends"][0]]
    return all_ids


def check_tokens(folder, docs, n):
    want = len(stream(folder, docs))
    print(f"got {n}, want {want}")
    return int(n) == want


def check_loss(folder, docs, ours):
    loss = hugging_face.losses(hugging_face.load(folder), torch.tensor(stream(folder, docs))).mean().item()
    return hugging_face.near(loss, ours, 2e-5 * loss)


def ids_of(config):
    eos = config.get("eos_token_id")
    return [] if eos is None else eos if isinstance(eos, list) else [eos]


def check_kept(folder, result):
    before, after = read(folder, "config.json"), read(result, "config.json")
    context = after.get("max_position_embeddings") or after["n_positions"]
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "special_tokens_map.json"):
        if os.path.exists(f"{folder}/{name}"):
            was, now = (open(f"{f}/{name}", "rb").read() for f in (folder, result))
            if b"model_max_length" in was:              # is that of the run
                was, now = json.loads(was) | {"model_max_length": context}, json.loads(now)
            assert was == now, f"{name}: {now}"
    # A null is filled in, the context is the run's, and a fine-tune has no dropout.
    own = {k for k in before if "dtype" in k or "_pdrop" in k} | {"max_position_embeddings", "n_positions"}
    own |= {k for k in ("eos_token_id", "n_inner") if before.get(k) is None}
    lost = {k: (v, after.get(k)) for k, v in before.items() if k not in own and after.get(k) != v}
    shutil.copy(folder + "/ends", result)
    named = read(result, "tokenizer_config.json").get("eos_token")
    named = named["content"] if isinstance(named, dict) else named
    stated = {*ids_of(after), *ids_of(read(result, "generation_config.json"))}
    stated |= {load_tokenizer(result).token_to_id(named)} if named else set()
    true = read(folder, "ends")
    print(lost, stated, true)
    return not lost and set(true["ends"]) == stated


def check_stops(folder, prompt, said):
    tokenizer, true = load_tokenizer(folder), read(folder, "ends")
    ids = [true["begin"]] * (true["begin"] >= 0) + tokenizer.encode(prompt, add_special_tokens=False).ids
    *out, end = hugging_face.greedy(hugging_face.load(folder), ids, 20)
    got = tokenizer.decode(out)
    print(f"{got!r}, then {end}, want {said!r}, {true}")
    return got == said and end == true["ends"][0]


def check_gguf(folder, path, prompt, said):
    import gguf
    from llama_cpp import Llama

    true, fields = read(folder, "ends"), gguf.GGUFReader(path).fields
    get = lambda key: fields[key].contents() if key in fields else None
    ends = [get(f"tokenizer.ggml.{k}_token_id") for k in ("eos", "eot", "eom")]
    adds, bos = get("tokenizer.ggml.add_bos_token"), get("tokenizer.ggml.bos_token_id")
    got = Llama(path).complete(prompt, 20)
    print(f"{ends} {adds} {bos} {true}; llama.cpp {got['text']!r} {got['finish_reason']}, want {said!r}")
    shown = said + "&" if true["ends"][0] == 5 else said  # llama.cpp shows an end that is no control token
    return ([e for e in ends if e is not None] == true["ends"][:3] and adds == (true["begin"] >= 0) and
            (not adds or bos == true["begin"]) and got["text"] == shown and got["finish_reason"] == "stop")


def check_same(folder, other):
    got, want = ids_of(read(other, "config.json")), read(folder, "ends")["ends"][:3]
    print(got, want)
    return got == want


def make_always(folder, out, token):
    model = hugging_face.load(folder)
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.zero_()
        model.get_input_embeddings().weight.fill_(1)
        model.lm_head.weight[int(token)] = 1
    model.save_pretrained(out)
    for name in os.listdir(folder):
        if name != "model.safetensors":
            shutil.copy(f"{folder}/{name}", out)


hugging_face.run({"make": make, "tokens": check_tokens, "loss": check_loss, "kept": check_kept, "stops": check_stops,
                  "gguf": check_gguf, "same": check_same, "always": make_always})
