#!/bin/sh
# test_transformers.sh -- transformers reads a checkpoint: weights, tokenizer, and the same loss.
. tests/lib.sh
find_python "torch, transformers" transformers
small="--layers 2 --heads 2 --channels 32 --seq-len 32 --batch-size 2 --total-batch-size 128 --steps 30 --warmup-steps 2
       --lr 3e-3 --sample-every 0 --eval-every 0"
for tokenizer in byte bpe:300 char; do
    out=$tmp/$tokenizer
    check "train $tokenizer" $train $small --data tests/golden/lines.txt --tokenizer $tokenizer --save-every 30 \
        --out-dir "$out"
    ours=$($train eval "$out" --dtype fp32 | sed 's/val loss \([0-9.]*\).*/\1/')
    check "transformers reads the $tokenizer folder" $python tests/check_transformers.py "$out/ckpt/step_00000030"
    check "the same loss, $tokenizer" $python - "$out/ckpt/step_00000030" "$ours" <<'PY'
import sys, torch
from transformers import GPT2LMHeadModel
from transformers import PreTrainedTokenizerFast
folder, ours = sys.argv[1], float(sys.argv[2])
model = GPT2LMHeadModel.from_pretrained(folder).eval()
text = open("tests/golden/lines.txt", encoding="utf-8").read()
text = text[int(len(text) * 0.9):]
tokens = torch.tensor(PreTrainedTokenizerFast(tokenizer_file=folder + "/tokenizer.json")(text)["input_ids"])
T, total, n = 32, 0.0, (len(tokens) - 1) // 32
for i in range(n):
    x, y = tokens[i * T:(i + 1) * T], tokens[i * T + 1:(i + 1) * T + 1]
    with torch.no_grad():
        total += torch.nn.functional.cross_entropy(model(x[None]).logits[0], y).item()
print(f"transformers {total / n:.6f}, ours {ours:.6f}")
sys.exit(abs(total / n - ours) > 2e-5)
PY
done

# Questions: which line comes next?
$python tests/check_task.py make README.md "$tmp/questions.jsonl"
answered() {        # FOLDER: eval answers as transformers does
    ours=$($train eval "$1" --dtype fp32 --task "$tmp/questions.jsonl" | sed 's/^questions \(.*\) +- .*/\1/')
    theirs=$($python tests/check_task.py score "$1" "$tmp/questions.jsonl")
    echo "$ours, transformers $theirs"
    [ "$ours" = "$theirs" ]
}
check "the same answers" answered "$tmp/bpe:300/ckpt/step_00000030"

# Perplexity by a sliding window.
for stride in 1 16 31; do
    folder=$tmp/bpe:300/ckpt/step_00000030
    nats=$($train eval "$folder" --dtype fp32 --data README.md --perplexity --stride $stride |
        sed 's/.*nats per token \([0-9.]*\).*/\1/')
    check "the same perplexity, stride $stride" \
        $python tests/check_task.py perplexity "$folder" README.md $stride "$nats"
done

# The Llama family: transformers writes a model, we read it, train nothing, write it; and what we trained it reads.
for kind in llama qwen2 qwen3; do
    theirs=$tmp/$kind
    mkdir "$theirs"
    made $kind $python tests/check_family.py make $kind "$theirs" || continue
    job="--init $theirs --data $theirs/tokens.npy --dtype fp32 --batch-size 1 --total-batch-size 33 --eval-every 0
        --sample-every 0 --replicas 1 --val-data $theirs/tokens.npy"
    ours=$($train eval "$theirs" --dtype fp32 --data "$theirs/tokens.npy" | sed 's/val loss \([0-9.]*\).*/\1/')
    check "the same loss" $python tests/check_family.py loss "$theirs" "$ours"
    check "a step that changes nothing" $train $job --steps 1 --save-every 1 --lr 1e-30 --out-dir "$tmp/$kind-kept"
    kept=$tmp/$kind-kept/ckpt/step_00000001
    check "gives the same tensors back" $python tests/check_family.py same "$theirs" "$kept"
    check "three steps" $train $job --steps 3 --save-every 3 --lr 1e-2 --out-dir "$tmp/$kind-trained"
    trained=$tmp/$kind-trained/ckpt/step_00000003
    cp "$theirs/tokens.npy" "$trained"
    ours=$($train eval "$trained" --dtype fp32 --data "$theirs/tokens.npy" | sed 's/val loss \([0-9.]*\).*/\1/')
    check "and the same loss" $python tests/check_family.py loss "$trained" "$ours"
    control() { ! $python tests/check_family.py same "$theirs" "$trained"; }
    check "which is another model" control
done
summary
