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
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
import torch
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

T = 64
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
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
    with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
        json.dump(value, f, indent=1)


def read(folder, name):
    path = os.path.join(folder, name)
    return json.load(open(path, encoding="utf-8")) if os.path.exists(path) else None


def make_tokenizer(path, split, specials, before, behind):
    t = Tokenizer(models.BPE(ignore_merges=split == "llama3"))
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split in ("gpt2", "smollm"))
    pattern = LLAMA3 if split == "llama3" else LLAMA3.replace("{1,3}", "")
    first = pre_tokenizers.Digits(individual_digits=True) if split == "smollm" else pre_tokenizers.Split(Regex(pattern),
                                                                                                     "isolated")
    t.pre_tokenizer = level if split == "gpt2" else pre_tokenizers.Sequence([first, level])
    if split == "qwen2":
        t.normalizer = normalizers.NFC()
    t.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    t.train_from_iterator([" ".join(text(i) for i in range(300))],
                          trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False))
    fill = [AddedToken(f"<filler{i}>", special=False, normalized=False) for i in range(400 - t.get_vocab_size())]
    t.add_tokens(fill)
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in specials])
    around = [(s, t.token_to_id(s)) for s in {before, behind} if s]
    if around:
        t.post_processor = processors.TemplateProcessing(single=" ".join([before, "$A", behind]).strip(),
                                                         pair="$A $B", special_tokens=around)
    t.save(path)
    return t


def make(folder):
    with open(folder + "/docs.jsonl", "w") as f:
        f.writelines(json.dumps({"text": text(1000 + i)}) + "\n" for i in range(40))
    with open(folder + "/one.txt", "w") as f:
        f.write(" ".join(text(2000 + i) for i in range(30)))
    with open(folder + "/pairs.jsonl", "w") as f:
        f.writelines(json.dumps({"prompt": f"{a}+{b}=", "completion": str(a + b)}) + "\n" for a in range(7) for b in
                     range(7))
    for name, (kind, split, specials, before, behind, config, generation, tokens, ends) in VARIANTS.items():
        own = os.path.join(folder, name)
        os.makedirs(own)
        t = make_tokenizer(own + "/tokenizer.json", split, specials, before, behind)
        torch.manual_seed(3)
        if kind == "gpt2":
            c = transformers.GPT2Config(vocab_size=t.get_vocab_size(), n_positions=T, n_embd=64, n_layer=2, n_head=4)
            m = transformers.GPT2LMHeadModel(c)
        else:
            form = kind.capitalize()
            c = getattr(transformers, form + "Config")(
                vocab_size=t.get_vocab_size(), max_position_embeddings=T, hidden_size=64, intermediate_size=96,
                num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False)
            m = getattr(transformers, form + "ForCausalLM")(c)
        m.save_pretrained(own)
        for left in ("generation_config.json",):
            os.remove(os.path.join(own, left))
        made = {k: v for k, v in read(own, "config.json").items() if k not in ("eos_token_id", "bos_token_id")}
        write(own, "config.json", made | config | {"_name_or_path": "made/" + name, "use_cache": True})
        if generation:
            write(own, "generation_config.json", generation)
        if tokens:
            write(own, "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"} | tokens)
            write(own, "special_tokens_map.json", {k: v for k, v in tokens.items() if k.endswith("_token") and k[:3] !=
                                                   "add"})
        write(own, "ends", {"begin": ends[0], "ends": ends[1]})
        print(name)


def stream(folder, docs):
    """The tokens of all documents: as tokenizer(text) gives them, and the token that ends a text."""
    tokenizer = Tokenizer.from_file(folder + "/tokenizer.json")
    true, all_ids = read(folder, "ends"), []
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
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    ids = torch.tensor(stream(folder, docs))
    total, n = 0.0, (len(ids) - 1) // T
    for i in range(n):
        with torch.no_grad():
            logits = model(ids[None, i * T:(i + 1) * T]).logits[0]
        total += torch.nn.functional.cross_entropy(logits, ids[i * T + 1:(i + 1) * T + 1]).item()
    print(f"transformers {total / n:.6f}, ours {ours}")
    return abs(total / n - float(ours)) < 2e-5 * total / n


def check_kept(folder, result):
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "special_tokens_map.json"):
        if os.path.exists(os.path.join(folder, name)):
            was, now = (open(os.path.join(f, name), "rb").read() for f in (folder, result))
            if b"model_max_length" in was:              # is that of the run
                config, wanted = read(result, "config.json"), json.loads(was)
                wanted["model_max_length"] = config.get("max_position_embeddings") or config["n_positions"]
                was, now = json.dumps(wanted).encode(), json.dumps(json.loads(now)).encode()
            if was != now:
                sys.exit(f"{name}: {now.decode()[:400]}")
    was, now = read(folder, "config.json"), read(result, "config.json")
    filled = [k for k in ("eos_token_id", "n_inner") if k in was and was[k] is None]
    filled += ["torch_dtype", "dtype"]
    lost = {k: (v, now.get(k)) for k, v in was.items() if k not in filled and now.get(k) != v}
    # The context is the run's; a fine-tune has no dropout.
    lost = {k: v for k, v in lost.items() if k not in ("max_position_embeddings", "n_positions") and "_pdrop" not in k}
    print(lost)
    shutil.copy(folder + "/ends", result)
    true = read(folder, "ends")
    eos = now["eos_token_id"]
    stated = set(eos if isinstance(eos, list) else [eos]) | set(ids_of(read(result, "generation_config.json")))
    named = (read(result, "tokenizer_config.json") or {}).get("eos_token")
    named = named["content"] if isinstance(named, dict) else named
    stated |= {Tokenizer.from_file(result + "/tokenizer.json").token_to_id(named)} if named else set()
    print(stated, true)
    return not lost and set(true["ends"]) == stated


def ids_of(config):
    eos = (config or {}).get("eos_token_id")
    return [] if eos is None else eos if isinstance(eos, list) else [eos]


def check_stops(folder, prompt, said):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer, true = Tokenizer.from_file(folder + "/tokenizer.json"), read(folder, "ends")
    ids = tokenizer.encode(prompt, add_special_tokens=False).ids
    ids = ([true["begin"]] if true["begin"] >= 0 else []) + ids
    x = torch.tensor([ids])
    with torch.no_grad():
        out = model.generate(x, attention_mask=torch.ones_like(x), max_new_tokens=20, do_sample=False,
                             pad_token_id=0)[0].tolist()
    got = tokenizer.decode(out[len(ids):-1])
    print(f"{got!r}, then {out[-1]}, want {said!r}, {true}")
    return got == said and out[-1] == true["ends"][0]


def check_gguf(folder, path, prompt, said):
    import gguf
    import llama_cpp

    true, fields = read(folder, "ends"), gguf.GGUFReader(path).fields
    get = lambda key: fields[key].contents() if key in fields else None
    ends = [get(f"tokenizer.ggml.{k}_token_id") for k in ("eos", "eot", "eom")]
    adds, bos = get("tokenizer.ggml.add_bos_token"), get("tokenizer.ggml.bos_token_id")
    print(ends, adds, bos, true)
    if [e for e in ends if e is not None] != true["ends"][:3] or adds != (true["begin"] >= 0):
        return False
    if adds and bos != true["begin"]:
        return False
    reply = llama_cpp.server(path).handle_completions({"prompt": prompt, "max_tokens": 20, "temperature": 0})
    got = reply["choices"][0]
    print(f"llama.cpp {got['text']!r} {got['finish_reason']}, want {said!r}")
    shown = said + "&" if true["ends"][0] == 5 else said  # llama.cpp shows an end that is no control token
    return got["text"] == shown and got["finish_reason"] == "stop"


def check_same(folder, other):
    of = [ids_of(read(f, "config.json")) for f in (folder, other)]
    true = read(folder, "ends")["ends"]
    print(of, true)
    return of[1] == true[:3]


def make_always(folder, out, token):
    shutil.copytree(folder, out)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.zero_() if p.dim() > 1 else None
        model.get_input_embeddings().weight.fill_(1)
        model.lm_head.weight[int(token)] = 1
    model.save_pretrained(out)
    for name in ("config.json", "generation_config.json"):
        if os.path.exists(os.path.join(folder, name)):
            shutil.copy(os.path.join(folder, name), out)


commands = {"make": make, "tokens": check_tokens, "loss": check_loss, "kept": check_kept, "stops": check_stops,
            "gguf": check_gguf, "same": check_same, "always": make_always}
sys.exit(0 if commands[sys.argv[1]](*sys.argv[2:]) in (None, True) else 1)
