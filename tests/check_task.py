#!/usr/bin/env python3
"""Multiple-choice questions by transformers, after the rules of the lm-evaluation-harness; perplexity of a text.

    check_task.py make TEXT FILE            questions from lines of a text: which line comes next?
    check_task.py score FOLDER FILE         prints "acc A acc_norm B" as `train_gpt eval --task` does
    check_task.py perplexity FOLDER TEXT STRIDE NATS        NATS is the mean loss by windows STRIDE tokens apart
"""

import json
import os
import random
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")


def make(text, file):
    lines = [line.strip() for line in open(text, encoding="utf-8") if len(line.split()) > 3]
    rng = random.Random(3)
    with open(file, "w", encoding="utf-8") as out:
        for i in range(120):
            at = rng.randrange(9, len(lines) - 1)
            label = rng.randrange(4)
            endings = [rng.choice(lines) for _ in range(4)]
            endings[label] = lines[at + 1]
            if i % 7 == 0:
                endings.pop() if label < 3 else endings.pop(0)
                label = endings.index(lines[at + 1])
            context = "\n".join(lines[at - i % 9:at + 1]) + ("  " if i % 5 == 0 else "")
            item = {"ctx": context, "endings": endings, "label": str(label) if i % 3 else label}
            out.write(json.dumps(item, ensure_ascii=i % 2 == 0) + "\n")


def score(folder, file):
    import torch
    import transformers
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=folder + "/tokenizer.json")
    config = json.load(open(folder + "/config.json"))
    T, eot = config.get("n_positions") or config["max_position_embeddings"], config["eos_token_id"]
    right = norm = count = 0
    for line in open(file, encoding="utf-8"):
        item = json.loads(line)
        context = item["ctx"].rstrip()
        scores = []
        for ending in item["endings"]:
            continuation = item["ctx"][len(context):] + item.get("delimiter", " ") + ending
            begin = [eot] if eot is not None else []
            ids = begin + tokenizer.encode(context + continuation, add_special_tokens=False)
            n = len(ids) - len(begin + tokenizer.encode(context, add_special_tokens=False))
            ids = ids[-(T + 1):]
            with torch.no_grad():
                p = torch.log_softmax(model(torch.tensor([ids[:-1]])).logits[0].double(), -1)
            n = min(n, len(ids) - 1)
            scores.append(sum(p[-n + k, ids[-n + k]].item() for k in range(n)))
        lengths = [len(e) for e in item["endings"]]
        right += max(range(len(scores)), key=lambda i: scores[i]) == int(item["label"])
        norm += max(range(len(scores)), key=lambda i: scores[i] / lengths[i]) == int(item["label"])
        count += 1
    print(f"acc {right / count:.3f} acc_norm {norm / count:.3f}")


def perplexity(folder, text, stride, nats):
    """As in transformers' guide "Perplexity of fixed-length models", but each loss counts once."""
    import torch
    import transformers
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=folder + "/tokenizer.json")
    ids = torch.tensor([tokenizer.encode(open(text, encoding="utf-8").read(), add_special_tokens=False)])
    T, total, count, previous = model.config.n_positions, 0.0, 0, 0
    for begin in range(0, ids.size(1), int(stride)):
        end = min(begin + T, ids.size(1))
        window = ids[:, begin:end]
        targets = window.clone()
        targets[:, :-(end - previous)] = -100
        scored = (targets[:, 1:] != -100).sum().item()
        with torch.no_grad():
            total += model(window, labels=targets).loss.item() * scored
        count += scored
        previous = end
        if end == ids.size(1):
            break
    print(f"{total / count:.7f}, {count} tokens; ours {nats}")
    sys.exit(abs(total / count - float(nats)) > 1e-5)


{"make": make, "score": score, "perplexity": perplexity}[sys.argv[1]](*sys.argv[2:])
