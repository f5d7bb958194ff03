#!/usr/bin/env python3
"""Conversations: train_gpt beside transformers and llama.cpp.

    check_chat.py cases FOLDER OUT         500 random conversations with the tokens and the mask that transformers gives
                                           them by the template of FOLDER, in OUT/cases.jsonl, and its tokenizer
    check_chat.py templates FOLDER OUT     the same for a dozen templates of published shapes, in OUT/NAME
    check_chat.py steps BASE DATA RUN      float64 and AdamW on all lines of DATA at once, -100 where nothing is
                                           trained, give the losses and norms of RUN's metrics.jsonl
    check_chat.py answers FILE SAID        llama.cpp's chat completions of a GGUF file are the answers in SAID, lines
                                           of "question<TAB>answer"
exit 77: a package is missing, or too old
"""

import json
import os
import random
import shutil
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")

# What the templates render, with the part that is trained on marked. SYSTEM: a turn for those without one.
SYSTEM = ("{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nYou are an assistant.<|im_end|>\\n' }}"
          "{% endif %}")
CHATML = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}"
          "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|im_end|>' }}"
          "{% endgeneration %}{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}{{ '\\n' }}{% endfor %}")
LLAMA3 = ("{{ '<|begin_of_text|>' }}{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + "
          "'<|end_header_id|>\\n\\n' }}{% if message['role'] == 'assistant' %}{% generation %}"
          "{{ message['content'] | trim + '<|eot_id|>' }}{% endgeneration %}{% else %}"
          "{{ message['content'] | trim + '<|eot_id|>' }}{% endif %}{% endfor %}")
# Templates of the shapes in which models are published. The tokens between the marks are trained on; without the marks
# each is a model's own template.
ON, OFF = "{% generation %}", "{% endgeneration %}"
PROMPT = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
TURN = ("{{ '<|im_start|>' + message['role'] + '\n' }}{% if message['role'] == 'assistant' %}" + ON +
        "{{ message['content'] + '<|im_end|>' }}" + OFF + "{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}"
        "{{ '\n' }}")
LOOP = "{% for message in messages %}" + TURN + "{% endfor %}" + PROMPT
TEMPLATES = {
    "real-line-feeds": LOOP,
    "default-system": "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
        "{{ '<|im_start|>system\nYou are the mate.<|im_end|>\n' }}{% endif %}" + TURN + "{% endfor %}" + PROMPT,
    "default-in-variable": "{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set system = "
        "messages[0]['content'] %}{% else %}{% set rest = messages %}{% set system = \"The mate's helper.\" "
        "%}{% endif %}"
        "{{ '<|im_start|>system\n' ~ system ~ '<|im_end|>\n' }}" + LOOP.replace("in messages", "in rest"),
    "bos-in-front": "{{- bos_token -}}\n" + LOOP,
    "separator": LOOP.replace("+ '\n' }}{% if message", "+ '<|im_sep|>' }}{% if message")
        .replace("assistant\n'", "assistant<|im_sep|>'").replace("{{ '\n' }}", ""),
    "trims": LOOP.replace("message['content']", "message['content'] | trim"),
    "strips": LOOP.replace("message['content']", "message.content.strip()"),
    "renames": "{%- for message in messages %}\n    {%- if message.role == 'assistant' %}\n        {%- set role "
        "= 'model' %}\n"
        "    {%- else %}\n        {%- set role = message.role %}\n    {%- endif %}\n    {{- '<start_of_turn>' + "
        "role + '\n' "
        "}}\n    {%- if message.role == 'assistant' %}" + ON + "{{- message.content | trim }}{{- "
        "'<end_of_turn>' }}" + OFF +
        "{%- else %}{{- message.content | trim + '<end_of_turn>' }}{%- endif %}\n    {{- '\n' }}\n{%- endfor %}\n"
        "{%- if add_generation_prompt %}{{- '<start_of_turn>model\n' }}{%- endif %}\n",
    "eos-ends": "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + "
        "message['content'] + "
        "eos_token }}\n{% elif message['role'] == 'system' %}\n{{ '<|system|>\n' + message['content'] + eos_token }}\n"
        "{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\n' }}" + ON + "{{ message['content'] + "
        "eos_token }}" +
        OFF + "{{ '\n' }}\n{% endif %}\n{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% "
        "endif %}\n"
        "{% endfor %}",
    "brackets": "{{ bos_token }}{%- set ns = namespace(system='') -%}{%- for message in messages -%}{%- if "
        "message['role'] == "
        "'system' -%}{%- set ns.system = message['content'] + '\n\n' -%}{%- elif message['role'] == 'user' "
        "-%}{{ '[INST] ' "
        "+ ns.system + message['content'] + ' [/INST]' }}{%- set ns.system = '' -%}{%- else -%}" + ON +
        "{{ ' ' + message['content'] + eos_token }}" + OFF + "{%- endif -%}{%- endfor -%}",
    "thoughts": "{%- set ns = namespace(last=0) %}\n{%- for message in messages %}\n{%- if message.role == 'user' %}"
        "{%- set ns.last = loop.index0 %}{%- endif %}\n{%- endfor %}\n{%- for message in messages %}\n{%- if "
        "message.role == "
        "'assistant' %}\n{{- '<|im_start|>assistant\n' }}" + ON + "{%- if loop.index0 > ns.last %}{{- "
        "'<think>\n\n</think>"
        "\n\n' }}{%- endif %}{{- message.content.split('</think>')[-1].lstrip('\n') + '<|im_end|>' }}" + OFF +
        "\n{%- else %}\n{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' }}\n{%- endif %}"
        "{{- '\n' }}\n{%- endfor %}\n{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}",
    "tools-unused": "{%- if tools %}{{- '<|im_start|>system\n' }}{%- for tool in tools %}{{- tool | tojson "
        "}}{%- endfor %}"
        "{%- endif %}" + LOOP.replace("message['content']", "(message.content if message.content is string else '')")}
TOKENS = ["<|im_start|>", "<|im_end|>", "<|im_sep|>", "<|user|>", "<|assistant|>", "<|system|>", "<start_of_turn>",
          "<end_of_turn>", "<s>", "</s>"]
WORDS = ["Hi", " there", "\n", "\n\n", " ", "é", "🙂", "ü?", "the sum of", " 12345", "\t",
         "don't", "x = y;", "。", "A", "  ", "user", "\nassistant\n", "\u3000", "\u00a0", "\x1f", "\u2028"]


def transformers_tokenizer(folder):
    import transformers
    if tuple(int(n) for n in transformers.__version__.split(".")[:2]) < (4, 43):
        print(f"transformers {transformers.__version__} has no mask of the assistant's tokens")
        sys.exit(77)
    return transformers.PreTrainedTokenizerFast.from_pretrained(folder)


def conversation(tries):
    turns = []
    if tries.random() < 0.3:
        turns.append("system")
    for _ in range(tries.randint(1, 3)):
        turns += ["user", "assistant"]
    text = lambda: "".join(tries.choice(WORDS) for _ in range(tries.randint(0, 8)))
    return [{"role": role, "content": text()} for role in turns]


def cases(folder, out):
    tokenizer = transformers_tokenizer(folder)
    own = tokenizer.chat_template
    marked = LLAMA3 if "eot_id" in own else CHATML
    os.makedirs(out)
    shutil.copy(folder + "/tokenizer.json", out)
    with_system = os.path.basename(out).startswith("system")
    if with_system:
        marked = SYSTEM + marked
        own = SYSTEM + own
    with open(out + "/chat_template.jinja", "w") as file:
        file.write(own)
    shutil.copy(folder + "/tokenizer_config.json", out)
    write_cases(tokenizer, own, marked, out, 500)


def write_cases(tokenizer, own, marked, out, count):
    tries = random.Random(4)
    with open(out + "/cases.jsonl", "w") as file:
        for _ in range(count):
            messages = conversation(tries)
            got = tokenizer.apply_chat_template(messages, chat_template=marked, tokenize=True, return_dict=True,
                                                return_assistant_tokens_mask=True)
            plain = tokenizer.apply_chat_template(messages, chat_template=own, tokenize=True, return_dict=True)
            ids = got["input_ids"]
            assert plain["input_ids"] == ids
            mask = got.get("assistant_masks")
            file.write(json.dumps({"messages": messages, "ids": "".join(f"{i} " for i in ids),
                                   "answer": "".join(map(str, mask))}) + "\n")


def templates(folder, out):
    tokenizer = transformers_tokenizer(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": TOKENS, "bos_token": "<s>", "eos_token": "</s>"})
    for name, marked in TEMPLATES.items():
        to = f"{out}/{name}"
        os.makedirs(to)
        tokenizer.backend_tokenizer.save(to + "/tokenizer.json")
        own = marked.replace(ON, "").replace(OFF, "")
        with open(to + "/tokenizer_config.json", "w") as file:
            json.dump({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": own}, file)
        write_cases(tokenizer, own, marked, to, 200)


def steps(base, data, run):
    import torch
    import transformers
    tokenizer = transformers_tokenizer(base)
    rows = []
    for line in open(data):
        got = tokenizer.apply_chat_template(json.loads(line)["messages"], chat_template=CHATML, tokenize=True,
                                            return_dict=True, return_assistant_tokens_mask=True)
        rows.append((got["input_ids"], got["assistant_masks"]))
    longest = max(len(ids) for ids, _ in rows)
    tokens = torch.zeros(len(rows), longest, dtype=torch.long)
    labels = torch.full((len(rows), longest), -100)
    for i, (ids, mask) in enumerate(rows):
        tokens[i, :len(ids)] = torch.tensor(ids)
        labels[i, :len(ids)] = torch.where(torch.tensor(mask) > 0, torch.tensor(ids), torch.tensor(-100))
    options = json.load(open(run + "/config.json"))
    model = transformers.AutoModelForCausalLM.from_pretrained(base).double().eval()
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": options["weight_decay"]}, {"params": others, "weight_decay": 0}],
        lr=options["lr"], betas=(options["beta1"], options["beta2"]), eps=options["eps"])
    wrong = 0
    for line in open(run + "/metrics.jsonl"):
        ours = json.loads(line)
        if ours["event"] != "train":
            continue
        optimizer.zero_grad()
        logits = model(tokens).logits[:, :-1]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), options["grad_clip"])
        optimizer.step()
        for name, want in (("loss", loss.item()), ("grad_norm", norm.item())):
            difference = abs(ours[name] - want) / want
            print(f"step {ours['step']}: {name} {ours[name]:.9g}, torch {want:.9g}: {difference:.1e}")
            wrong += not difference < 1e-5
    return wrong == 0


def answers(path, said):
    try:
        import llama_cpp
    except ImportError as error:
        print(error)
        sys.exit(77)
    server = llama_cpp.server(path)
    wrong = 0
    for line in open(said):
        question, want = line.rstrip("\n").split("\t")
        reply = server.handle_chat_completions(
            {"messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": 60})
        got = reply["choices"][0]["message"]["content"] if "choices" in reply else reply
        print(f"{question!r}: llama.cpp {got!r}, train_gpt {want!r}")
        wrong += got != want
    return wrong == 0


COMMANDS = {"cases": cases, "templates": templates, "steps": steps, "answers": answers}
sys.exit(0 if COMMANDS[sys.argv[1]](*sys.argv[2:]) in (None, True) else 1)
