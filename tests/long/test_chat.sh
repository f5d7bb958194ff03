#!/bin/sh
# test_chat.sh -- conversations beside transformers (tokens, masks, losses and gradients) and llama.cpp (answers).
. tests/lib.sh
find_python "torch, transformers, jinja2" chat
chat="$python tests/check_chat.py"
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
same_as_transformers="build/tests/chat as_transformers"
for form in chatml llama3; do
    check "a model of $form" $train $small --data "$tmp/chat.jsonl" --val-data "$tmp/chat.jsonl" --tokenizer \
        bpe:300 --chat-template $form --steps 2 --save-every 2 --lr 1e-2 --out-dir "$tmp/$form"
done
base=$tmp/chatml/ckpt/step_00000002
for form in chatml llama3 system; do
    of=$base; [ $form != llama3 ] || of=$tmp/llama3/ckpt/step_00000002
    made "$form: cases" $chat cases "$of" "$tmp/cases/$form"
done
made "templates of many shapes" $chat templates "$base" "$tmp/cases"
for of in $(ls -d "$tmp"/cases/* 2>/dev/null); do
    check "the same tokens and masks by ${of##*/}" env LOCKSTEP_CHAT="$of" $same_as_transformers
done
[ -d "$tmp/cases/chatml" ] || skip_all "masks and answers" "transformers makes none"
# Negative control.
sed -i 's/"answer": "0/"answer": "1/' "$tmp/cases/chatml/cases.jsonl"
expect "a wrong mask is noticed" 1 'FAIL as_transformers' env LOCKSTEP_CHAT="$tmp/cases/chatml" $same_as_transformers

# All conversations are one step, so that their order is no matter: in 64 rows, or packed in 12. torch sees each alone.
for rows in "join --batch-size 4 --total-batch-size 16384" "documents --batch-size 1 --total-batch-size 3072"; do
    expect "five steps, --rows $rows" 0 '5[.]00 epochs' $train --init "$base" --rows $rows --data "$tmp/chat.jsonl" \
        --val-data "$tmp/chat.jsonl" --steps 5 --dtype fp32 --sample-every 0 --eval-every 0 --save-every 0 \
        --schedule constant --warmup-steps 0 --lr 1e-3 --out-dir "$tmp/steps" --force
    check "torch's losses and norms" $chat steps "$base" "$tmp/chat.jsonl" "$tmp/steps"
done
head -n 63 "$tmp/chat.jsonl" >"$tmp/fewer.jsonl"
control() { ! $chat steps "$base" "$tmp/fewer.jsonl" "$tmp/steps"; }
check "one conversation less is noticed" control

# Answers of a trained model, here and by llama.cpp.
for a in 0 1 2 3 4 5; do
    for b in 0 1 2 3 4 5; do echo "{\"instruction\": \"$a plus $b?\", \"output\": \"$a and $b make $((a + b)).\"}"; done
done >"$tmp/questions.jsonl"
check "a model that answers" $train --layers 2 --heads 2 --channels 64 --seq-len 64 --batch-size 6 --data \
    "$tmp/questions.jsonl" --val-data "$tmp/questions.jsonl" --total-batch-size 2304 --steps 150 --lr 1e-2 \
    --eval-every 0 --tokenizer bpe:280 --sample-every 0 --save-every 150 --dtype fp32 --out-dir "$tmp/sums"
check "as a GGUF file" build/export "$tmp/sums" --gguf "$tmp/sums.gguf" --type f32
for question in "1 plus 2?" "5 plus 5?" "0 plus 4?" "What?"; do
    printf '%s\t%s\n' "$question" "$(echo "$question" | $train chat "$tmp/sums" --temperature 0 --max-tokens 60)"
done >"$tmp/said"
expect "it answers" 0 '1 plus 2[?].1 and 2 make 3[.]' cat "$tmp/said"
made "llama.cpp's answers" $chat answers "$tmp/sums.gguf" "$tmp/said"
summary
