"""What the tests that compare with Hugging Face's library share. Nothing is fetched: a folder is all it takes."""

import json
import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
import torch
import transformers
from torch.nn.functional import cross_entropy


def run(commands):
    """The command that the program is given; exit 1 if it returns False."""
    sys.exit(0 if commands[sys.argv[1]](*sys.argv[2:]) in (None, True) else 1)


def skip(why):
    """Ends with what `made` of tests/lib.sh takes as a skip."""
    print(why)
    sys.exit(77)


def config_class(kind):
    name = ("GPT2" if kind == "gpt2" else kind.capitalize()) + "Config"
    return getattr(transformers, name, None) or skip(f"transformers {transformers.__version__} has no {name}")


def new_model(kind, seed, **config):
    """A model with random weights."""
    torch.manual_seed(seed)
    return transformers.AutoModelForCausalLM.from_config(config_class(kind)(**config))


def load(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder).float().eval()


def load_tokenizer(folder):
    return transformers.PreTrainedTokenizerFast(tokenizer_file=folder + "/tokenizer.json")


def losses(model, ids):
    """The loss of each token but the first: a row for each window as long as the model's context."""
    T = model.config.max_position_embeddings
    n = (len(ids) - 1) // T
    inputs, targets = (ids[k:k + n * T].view(n, T) for k in (0, 1))
    with torch.no_grad():
        return cross_entropy(model(inputs).logits.transpose(1, 2), targets, reduction="none").double()


def near(theirs, ours, tolerance):
    print(f"transformers {theirs:.7f}, ours {ours}")
    return abs(theirs - float(ours)) <= tolerance


def greedy(model, ids, tokens):
    """What the model says behind these tokens."""
    x = torch.tensor([ids])
    said = model.generate(x, attention_mask=torch.ones_like(x), max_new_tokens=tokens, do_sample=False, pad_token_id=0)
    return said[0, len(ids):].tolist()


def same_steps(run, parameters, loss_of, of_norms):
    """AdamW by a run's options gives the losses and, with the tolerance of_norms, the norms of its metrics.jsonl."""
    options = json.load(open(run + "/config.json"))
    parameters = list(parameters)
    groups = [{"params": [p for p in parameters if p.dim() > 1], "weight_decay": options["weight_decay"]},
              {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0}]
    optimizer = torch.optim.AdamW(groups, lr=options["lr"], betas=(options["beta1"], options["beta2"]),
                                  eps=options["eps"])
    lines = [line for line in map(json.loads, open(run + "/metrics.jsonl")) if line["event"] == "train"]
    assert len(lines) == options["steps"], len(lines)
    wrong = 0
    for line in lines:
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters, options["grad_clip"] or float("inf"))
        optimizer.step()
        for name, want, tolerance in (("loss", loss.item(), 1e-5), ("grad_norm", norm.item(), of_norms)):
            difference = abs(line[name] / want - 1)
            print(f"step {line['step']}: {name} {line[name]:.9g}, torch {want:.9g}: {difference:.1e}")
            wrong += not difference < tolerance
    return wrong == 0
