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

import hugging_face
import torch
import transformers

# Templates of the shapes in which models are published. The tokens between the marks are trained on; without the marks
# each is a model's own template. SYSTEM: a turn for conversations without one.
ON, OFF = "{% generation %}", "{% endgeneration %}"
SYSTEM = ("{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nYou are an assistant.<|im_end|>\\n' }}"
          "{% endif %}")
PROMPT = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
TURN = ("{{ '<|im_start|>' + message['role'] + '\n' }}{% if message['role'] == 'assistant' %}" + ON +
        "{{ message['content'] + '<|im_end|>' }}" + OFF + "{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}"
        "{{ '\n' }}")
TURNS = "{% for message in messages %}" + TURN + "{% endfor %}"
LOOP = TURNS + PROMPT
CHATML = TURNS.replace("\n", "\\n")
LLAMA3 = ("{{ '<|begin_of_text|>' }}{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + "
          "'<|end_header_id|>\\n\\n' }}{% if message['role'] == 'assistant' %}" + ON +
          "{{ message['content'] | trim + '<|eot_id|>' }}" + OFF + "{% else %}"
          "{{ message['content'] | trim + '<|eot_id|>' }}{% endif %}{% endfor %}")
TEMPLATES = {
    "real-line-feeds": LOOP,
    "default-system": "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
        "{{ '<|im_start|>system\nYou are the mate.<|im_end|>\n' }}{% endif %}" + TURN + "{% endfor %}" + PROMPT,
    "default-in-variable": "{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}"
        "{% set system = messages[0]['content'] %}{% else %}{% set rest = messages %}"
        "{% set system = \"The mate's helper.\" %}{% endif %}{{ '<|im_start|>system\n' ~ system ~ '<|im_end|>\n' }}" +
        LOOP.replace("in messages", "in rest"),
    "bos-in-front": "{{- bos_token -}}\n" + LOOP,
    "separator": LOOP.replace("+ '\n' }}{% if message", "+ '<|im_sep|>' }}{% if message")
        .replace("assistant\n'", "assistant<|im_sep|>'").replace("{{ '\n' }}", ""),
    "trims": LOOP.replace("message['content']", "message['content'] | trim"),
    "strips": LOOP.replace("message['content']", "message.content.strip()"),
    "renames": "{%- for message in messages %}\n    {%- if message.role == 'assistant' %}\n"
        "        {%- set role = 'model' %}\n    {%- else %}\n        {%- set role = message.role %}\n    {%- endif %}\n"
        "    {{- '<start_of_turn>' + role + '\n' }}\n    {%- if message.role == 'assistant' %}" + ON +
        "{{- message.content | trim }}{{- '<end_of_turn>' }}" + OFF +
        "{%- else %}{{- message.content | trim + '<end_of_turn>' }}{%- endif %}\n    {{- '\n' }}\n{%- endfor %}\n"
        "{%- if add_generation_prompt %}{{- '<start_of_turn>model\n' }}{%- endif %}\n",
    "eos-ends": "{% for message in messages %}\n{% if message['role'] == 'user' %}\n"
        "{{ '<|user|>\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'system' %}\n"
        "{{ '<|system|>\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'assistant' %}\n"
        "{{ '<|assistant|>\n' }}" + ON + "{{ message['content'] + eos_token }}" + OFF + "{{ '\n' }}\n{% endif %}\n"
        "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}",
    "brackets": "{{ bos_token }}{%- set ns = namespace(system='') -%}{%- for message in messages -%}"
        "{%- if message['role'] == 'system' -%}{%- set ns.system = message['content'] + '\n\n' -%}"
        "{%- elif message['role'] == 'user' -%}{{ '[INST] ' + ns.system + message['content'] + ' [/INST]' }}"
        "{%- set ns.system = '' -%}{%- else -%}" + ON + "{{ ' ' + message['content'] + eos_token }}" + OFF +
        "{%- endif -%}{%- endfor -%}",
    "thoughts": "{%- set ns = namespace(last=0) %}\n{%- for message in messages %}\n{%- if message.role == 'user' %}"
        "{%- set ns.last = loop.index0 %}{%- endif %}\n{%- endfor %}\n{%- for message in messages %}\n"
        "{%- if message.role == 'assistant' %}\n{{- '<|im_start|>assistant\n' }}" + ON +
        "{%- if loop.index0 > ns.last %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}"
        "{{- message.content.split('</think>')[-1].lstrip('\n') + '<|im_end|>' }}" + OFF +
        "\n{%- else %}\n{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' }}\n{%- endif %}"
        "{{- '\n' }}\n{%- endfor %}\n{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}",
    "tools-unused": "{%- if tools %}{{- '<|im_start|>system\n' }}{%- for tool in tools %}{{- tool | tojson }}"
        "{%- endfor %}{%- endif %}" +
        LOOP.replace("message['content']", "(message.content if message.content is string else '')")}
TOKENS = ["<|im_start|>", "<|im_end|>", "<|im_sep|>", "<|user|>", "<|assistant|>", "<|system|>", "<start_of_turn>",
          "<end_of_turn>", "<s>", "</s>"]
WORDS = ["Hi", " there", "\n", "\n\n", " ", "é", "🙂", "ü?", "the sum of", " 12345", "\t",
         "don't", "x = y;", "。", "A", "  ", "user", "\nassistant\n", "\u3000", "\u00a0", "\x1f", "\u2028"]


def load_tokenizer(folder):
    if tuple(int(n) for n in transformers.__version__.split(".")[:2]) < (4, 43):
        hugging_face.skip(f"transformers {transformers.__version__} has no mask of the assistant's tokens")
    return transformers.PreTrainedTokenizerFast.from_pretrained(folder)


def masked(tokenizer, messages, template):
    """The tokens, and which of them are trained on."""
    got = tokenizer.apply_chat_template(messages, chat_template=template, tokenize=True, return_dict=True,
                                        return_assistant_tokens_mask=True)
    return got["input_ids"], got["assistant_masks"]


def conversation(tries):
    turns = ["system"] if tries.random() < 0.3 else []
    turns += ["user", "assistant"] * tries.randint(1, 3)
    text = lambda: "".join(tries.choice(WORDS) for _ in range(tries.randint(0, 8)))
    return [{"role": role, "content": text()} for role in turns]


def write_cases(tokenizer, own, marked, out, count):
    tries = random.Random(4)
    with open(out + "/cases.jsonl", "w") as file:
        for _ in range(count):
            messages = conversation(tries)
            ids, mask = masked(tokenizer, messages, marked)
            assert tokenizer.apply_chat_template(messages, chat_template=own, tokenize=True) == ids
            file.write(json.dumps({"messages": messages, "ids": "".join(f"{i} " for i in ids),
                                   "answer": "".join(map(str, mask))}) + "\n")


def cases(folder, out):
    tokenizer = load_tokenizer(folder)
    own = tokenizer.chat_template
    system = SYSTEM if os.path.basename(out).startswith("system") else ""
    os.makedirs(out)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(f"{folder}/{name}", out)
    with open(out + "/chat_template.jinja", "w") as file:
        file.write(system + own)
    write_cases(tokenizer, system + own, system + (LLAMA3 if "eot_id" in own else CHATML), out, 500)


def templates(folder, out):
    tokenizer = load_tokenizer(folder)
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
    tokenizer = load_tokenizer(base)
    rows = [masked(tokenizer, json.loads(line)["messages"], CHATML) for line in open(data)]
    pad = lambda lists, value: torch.nn.utils.rnn.pad_sequence([torch.tensor(x) for x in lists], True, value)
    tokens, mask = pad([ids for ids, _ in rows], 0), pad([mask for _, mask in rows], 0)
    labels = torch.where(mask > 0, tokens, -100)
    model = hugging_face.load(base).double()
    loss_of = lambda: hugging_face.cross_entropy(model(tokens).logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    return hugging_face.same_steps(run, model.parameters(), loss_of, 1e-5)


def answers(path, said):
    try:
        from llama_cpp import Llama
    except ImportError as error:
        hugging_face.skip(error)
    llama, wrong = Llama(path), 0
    for line in open(said):
        question, want = line.rstrip("\n").split("\t")
        got = llama.answer(question)
        print(f"{question!r}: llama.cpp {got!r}, train_gpt {want!r}")
        wrong += got != want
    return wrong == 0


hugging_face.run({"cases": cases, "templates": templates, "steps": steps, "answers": answers})
