#!/bin/sh
# test_transformers.sh -- transformers reads a checkpoint: weights, tokenizer, and the same loss.
. tests/lib.sh
find_python "torch, transformers" transformers
their="$python tests/check_transformers.py"
loss_of() { $train eval "$@" --dtype fp32 | sed 's/val loss \([0-9.]*\).*/\1/'; }
small="--layers 2 --heads 2 --channels 32 --seq-len 32 --batch-size 2 --total-batch-size 128 --steps 30 --warmup-steps 2
       --lr 3e-3 --sample-every 0 --eval-every 0"
for tokenizer in byte bpe:300 char; do
    out=$tmp/$tokenizer
    check "train $tokenizer" $train $small --data tests/golden/lines.txt --tokenizer $tokenizer --save-every 30 \
        --out-dir "$out"
    check "transformers reads the $tokenizer folder" $their folder "$out/ckpt/step_00000030"
    check "the same loss, $tokenizer" $their loss "$out/ckpt/step_00000030" tests/golden/lines.txt "$(loss_of "$out")"
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
folder=$tmp/bpe:300/ckpt/step_00000030
for stride in 1 16 31; do
    nats=$($train eval "$folder" --dtype fp32 --data README.md --perplexity --stride $stride |
        sed 's/.*nats per token \([0-9.]*\).*/\1/')
    check "the same perplexity, stride $stride" \
        $python tests/check_task.py perplexity "$folder" README.md $stride "$nats"
done

# The Llama family: transformers writes a model, we read it, train nothing, write it; and what we trained it reads.
for kind in llama mistral qwen2 qwen3 qwen2-window qwen3-window; do
    theirs=$tmp/$kind tokens=$tmp/$kind/tokens.npy
    mkdir "$theirs"
    made $kind $their make $kind "$theirs" || continue
    job="--init $theirs --data $tokens --val-data $tokens --dtype fp32 --batch-size 1 --total-batch-size 33
        --eval-every 0 --sample-every 0 --replicas 1"
    check "the same loss" $their loss "$theirs" "$tokens" "$(loss_of "$theirs" --data "$tokens")"
    check "a step that changes nothing" $train $job --steps 1 --save-every 1 --lr 1e-30 --out-dir "$tmp/$kind-kept"
    check "gives the same tensors back" $their same "$theirs" "$tmp/$kind-kept/ckpt/step_00000001"
    check "three steps" $train $job --steps 3 --save-every 3 --lr 1e-2 --out-dir "$tmp/$kind-trained"
    trained=$tmp/$kind-trained/ckpt/step_00000003
    check "and the same loss" $their loss "$trained" "$tokens" "$(loss_of "$trained" --data "$tokens")"
    control() { ! $their same "$theirs" "$trained"; }
    check "which is another model" control
done

# Documents that do not see each other: what transformers makes of each by itself. 5 steps take all of the text each.
$their documents "$tmp/documents.jsonl"
for model in gpt2 'mistral --kv-heads 1 --window 9'; do
    kind=${model%% *}
    sizes="--layers 2 --heads 2 --channels 32 --seq-len 32 --batch-size 2 --dtype fp32 --sample-every 0 --eval-every 0"
    check "train $kind" $train --model $model $sizes --total-batch-size 128 --steps 20 --lr 1e-2 --save-every 20 \
        --data "$tmp/documents.jsonl" --val-data "$tmp/documents.jsonl" --out-dir "$tmp/first-$kind"
    first=$tmp/first-$kind/ckpt/step_00000020
    for rows in masked join; do
        check "five steps of $kind, --rows $rows" $train --init "$first" --rows $rows --data "$tmp/documents.jsonl" \
            --val-data "$tmp/documents.jsonl" --batch-size 2 --total-batch-size 256 --steps 5 --dtype fp32 --lr 1e-3 \
            --schedule constant --warmup-steps 0 --sample-every 0 --eval-every 0 --out-dir "$tmp/$rows-$kind"
    done
    check "which are those of transformers" $their steps "$first" "$tmp/documents.jsonl" "$tmp/masked-$kind"
    joined() { ! $their steps "$first" "$tmp/documents.jsonl" "$tmp/join-$kind"; }
    check "and not those of joined documents" joined
done
summary
