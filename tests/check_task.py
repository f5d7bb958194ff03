#!/usr/bin/env python3
"""Multiple-choice questions by transformers, after the rules of the lm-evaluation-harness; perplexity of a text.

    check_task.py make TEXT FILE            questions from lines of a text: which line comes next?
    check_task.py score FOLDER FILE         prints "acc A acc_norm B" as `train_gpt eval --task` does
    check_task.py perplexity FOLDER TEXT STRIDE NATS        NATS is the mean loss by windows STRIDE tokens apart
"""

import json
import random

import hugging_face
import torch


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
    model, tokenizer = hugging_face.load(folder), hugging_face.load_tokenizer(folder)
    begin = [] if model.config.eos_token_id is None else [model.config.eos_token_id]
    tokens_of = lambda text: begin + tokenizer.encode(text, add_special_tokens=False)

    def log_probability(context, continuation):
        ids = tokens_of(context + continuation)
        n = len(ids) - len(tokens_of(context))
        ids = torch.tensor(ids[-(model.config.max_position_embeddings + 1):])
        with torch.no_grad():
            p = torch.log_softmax(model(ids[None, :-1]).logits[0].double(), -1)
        return p.gather(1, ids[1:, None])[-n:].sum().item()

    right = norm = 0
    items = [json.loads(line) for line in open(file, encoding="utf-8")]
    for item in items:
        context = item["ctx"].rstrip()
        scores = [log_probability(context, item["ctx"][len(context):] + " " + e) for e in item["endings"]]
        by_length = [s / len(e) for s, e in zip(scores, item["endings"])]
        right += scores.index(max(scores)) == int(item["label"])
        norm += by_length.index(max(by_length)) == int(item["label"])
    print(f"acc {right / len(items):.3f} acc_norm {norm / len(items):.3f}")


def perplexity(folder, text, stride, nats):
    """As in transformers' guide "Perplexity of fixed-length models", but each loss counts once."""
    model, tokenizer = hugging_face.load(folder), hugging_face.load_tokenizer(folder)
    ids = torch.tensor([tokenizer.encode(open(text, encoding="utf-8").read(), add_special_tokens=False)])
    total = count = end = 0
    for begin in range(0, ids.size(1), int(stride)):
        window = ids[:, begin:begin + model.config.max_position_embeddings]
        targets = window.clone()
        targets[:, :end - begin] = -100
        scored = (targets[:, 1:] != -100).sum().item()
        with torch.no_grad():
            total += model(window, labels=targets).loss.item() * scored
        count += scored
        end = begin + window.size(1)
        if end == ids.size(1):
            break
    return hugging_face.near(total / count, nats, 1e-5)


hugging_face.run({"make": make, "score": score, "perplexity": perplexity})
