#!/bin/sh
# test_chat.sh -- conversations beside transformers (tokens, masks, losses and gradients) and llama.cpp (answers).
. tests/lib.sh
find_python "torch, transformers, jinja2" chat
small="--layers 2 --heads 2 --channels 32 --seq-len 256 --batch-size 4 --total-batch-size 16384 --sample-every 0
       --eval-every 0 --dtype fp32"
$python - "$tmp/chat.jsonl" <<'PY'
import json, random, sys
tries = random.Random(2)
words = "the a sum of two and three is é not 🙂 hello\nworld because  we say so 12 345".split(" ")
with open(sys.argv[1], "w") as file:
    for _ in range(64):
        turns = []
        for _ in range(tries.randint(1, 3)):
            for role in ("user", "assistant"):
                turns.append({"role": role, "content": " ".join(tries.choices(words, k=tries.randint(0, 9)))})
        file.write(json.dumps({"messages": turns}) + "\n")
PY
for form in chatml llama3; do
    of=$tmp/$form
    check "a model of $form" $train $small --data "$tmp/chat.jsonl" --val-data "$tmp/chat.jsonl" --tokenizer \
        bpe:300 --chat-template $form --steps 2 --save-every 2 --lr 1e-2 --out-dir "$of"
    made "$form: cases" $python tests/check_chat.py cases "$of/ckpt/step_00000002" "$tmp/$form-cases" ||
        continue
    check "the same tokens and masks" env LOCKSTEP_CHAT="$tmp/$form-cases" build/tests/chat as_transformers
done
system=$tmp/system-cases
made "cases with a system turn" $python tests/check_chat.py cases "$tmp/chatml/ckpt/step_00000002" "$system" &&
    check "the same tokens and masks" env LOCKSTEP_CHAT="$system" build/tests/chat as_transformers
if made "templates of many shapes" $python tests/check_chat.py templates "$tmp/chatml/ckpt/step_00000002" "$tmp/shapes"
then
    for of in "$tmp"/shapes/*; do
        check "the same tokens and masks by ${of##*/}" env LOCKSTEP_CHAT="$of" build/tests/chat as_transformers
    done
fi
# Negative control.
sed 's/"answer": "0/"answer": "1/' "$tmp/chatml-cases/cases.jsonl" >"$tmp/cases" &&
    mv "$tmp/cases" "$tmp/chatml-cases/cases.jsonl"
expect "a wrong mask is noticed" 1 'FAIL as_transformers' env LOCKSTEP_CHAT="$tmp/chatml-cases" build/tests/chat \
    as_transformers

# All conversations are one step, so that their order is no matter.
base=$tmp/chatml/ckpt/step_00000002
check "five steps" $train --init "$base" --data "$tmp/chat.jsonl" --val-data "$tmp/chat.jsonl" --steps 5 --dtype fp32 \
    --batch-size 4 --total-batch-size 16384 --sample-every 0 --eval-every 0 --save-every 0 --schedule constant \
    --warmup-steps 0 --lr 1e-3 --out-dir "$tmp/steps"
check "torch's losses and norms" $python tests/check_chat.py steps "$base" "$tmp/chat.jsonl" "$tmp/steps"
head -n 63 "$tmp/chat.jsonl" >"$tmp/fewer.jsonl"
control() { ! $python tests/check_chat.py steps "$base" "$tmp/fewer.jsonl" "$tmp/steps"; }
check "one conversation less is noticed" control

# Answers of a trained model, here and by llama.cpp.
$python - >"$tmp/questions.jsonl" <<'PY'
import json
for a in range(6):
    for b in range(6):
        print(json.dumps({"instruction": f"{a} plus {b}?", "output": f"{a} and {b} make {a + b}."}))
PY
check "a model that answers" $train --layers 2 --heads 2 --channels 64 --seq-len 64 --batch-size 6 --data \
    "$tmp/questions.jsonl" --val-data "$tmp/questions.jsonl" --total-batch-size 2304 --steps 150 --lr 1e-2 \
    --eval-every 0 --tokenizer bpe:280 --sample-every 0 --save-every 150 --dtype fp32 --out-dir "$tmp/sums"
check "as a GGUF file" build/export "$tmp/sums" --gguf "$tmp/sums.gguf" --type f32
for question in "1 plus 2?" "5 plus 5?" "0 plus 4?" "What?"; do
    printf '%s\t%s\n' "$question" "$(echo "$question" | $train chat "$tmp/sums" --temperature 0 --max-tokens 60)"
done >"$tmp/said"
expect "it answers" 0 '1 plus 2[?].1 and 2 make 3[.]' cat "$tmp/said"
made "llama.cpp's answers" $python tests/check_chat.py answers "$tmp/sums.gguf" "$tmp/said"
summary
