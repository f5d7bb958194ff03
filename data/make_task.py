#!/usr/bin/env python3
"""Converts published multiple-choice questions to the lines that `eval --task` takes: {"ctx", "endings", "label"}.

    make_task.py hellaswag hellaswag_val.jsonl >hellaswag.jsonl
    make_task.py arc ARC-Easy-Test.jsonl >arc_easy.jsonl                    AI2's form or Hugging Face's
    make_task.py piqa valid.jsonl valid-labels.lst >piqa.jsonl              the labels may also be in the questions
    make_task.py mmlu college_biology_test.csv >college_biology.jsonl       a file per subject

Texts are put together as the lm-evaluation-harness 0.4 does, without examples in front. Where context and endings meet
in Chinese or Japanese, "delimiter": "" says that no blank stands between.
"""
import csv
import json
import os
import re
import sys
import unicodedata


def tidy(text):
    return re.sub(r"\[.*?\]", "", text.strip().replace(" [title]", ". ")).replace("  ", " ")


def hellaswag(q):
    context = q["activity_label"] + ": " + q["ctx_a"] + " " + q["ctx_b"].capitalize()
    return tidy(context), [tidy(e) for e in q["endings"]], q["label"]


def arc(q):
    stem, choices = q["question"], q.get("choices")
    if isinstance(stem, dict):                                  # AI2
        stem, choices = stem["stem"], {key: [c[key] for c in stem["choices"]] for key in ("text", "label")}
    return f"Question: {stem}\nAnswer:", choices["text"], choices["label"].index(q["answerKey"])


def piqa(q):
    return f"Question: {q['goal']}\nAnswer:", [q["sol1"], q["sol2"]], q["label"]


def mmlu(q):
    lines = [f"{letter}. {choice}" for letter, choice in zip("ABCD", q["choices"])]
    begin = f"The following are multiple choice questions (with answers) about {q['subject'].replace('_', ' ')}.\n\n"
    return begin + "\n".join([q["question"].strip()] + lines + ["Answer:"]), list("ABCD"), q["answer"]


def main(kind, path, labels=None):
    with open(path, encoding="utf-8", newline="") as file:
        if path.endswith(".csv"):
            subject = re.sub(r"_(test|val|dev)\.csv$", "", os.path.basename(path))
            questions = [{"question": row[0], "choices": row[1:5], "answer": "ABCD".index(row[5]), "subject": subject}
                         for row in csv.reader(file)]
        else:
            questions = [json.loads(line) for line in file if line.strip()]
    if labels:
        with open(labels, encoding="utf-8") as file:
            questions = [q | {"label": label} for q, label in zip(questions, file.read().split(), strict=True)]
    for q in questions:
        context, endings, label = {"hellaswag": hellaswag, "arc": arc, "piqa": piqa, "mmlu": mmlu}[kind](q)
        wide = all(unicodedata.east_asian_width(c) in "WF" and not "\uac00" <= c <= "\ud7a3"
                   for c in [context[-1:] or " "] + [e[:1] or " " for e in endings])
        line = {"ctx": context, "endings": endings, "label": int(label)} | ({"delimiter": ""} if wide else {})
        print(json.dumps(line, ensure_ascii=False))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
