#!/bin/sh
# test_lora.sh -- adapters beside PEFT: the same training, the same logits merged and not, and adapters of others.
. tests/lib.sh
tools=${TOOLS:-build}
find_python "torch, transformers, peft" lora
peft="$python tests/check_lora.py"

# The loss that eval prints.
loss_of() { $train eval "$1" --dtype fp32 --data "$base/tokens.npy" | sed 's/val loss \([0-9.]*\).*/\1/'; }

for kind in gpt2 llama qwen2 qwen3; do
    base=$tmp/$kind out=$tmp/$kind-run
    mkdir "$base"
    made $kind $python tests/check_transformers.py make $kind "$base" || continue
    sha256sum "$base"/* >"$tmp/before"
    check "20 steps" $train --init "$base" --lora 8 --data "$base/tokens.npy" --val-data "$base/tokens.npy" \
        --dtype fp32 --batch-size 1 --total-batch-size 297 --replicas 1 --steps 20 --lr 1e-2 --schedule constant \
        --warmup-steps 0 --beta2 0.95 --weight-decay 0 --grad-clip 0 --log-every 1 --save-every 1 --keep 0 \
        --eval-every 20 --eval-steps 0 --sample-every 0 --audit-every 0 --out-dir "$out"
    last=$out/ckpt/step_00000020
    check "the model is as it was" sha256sum -c --quiet "$tmp/before"
    check "PEFT's steps" $peft steps "$base" "$out"
    check "export --merge" $tools/export "$out" --merge --hf "$out-merged"
    check "logits" $peft logits "$base" "$last" "$out-merged"
    check "PEFT's loss by eval, which merges" $peft loss "$base" "$last" "$(loss_of "$out")"
    trained=$(sed -n 's/.*"event":"val".*"loss":\([0-9.]*\),.*/\1/p' "$out/metrics.jsonl" | tail -n 1)
    check "and by training, which does not" $peft loss "$base" "$last" "$trained"
    check "export" $tools/export "$out" --hf "$out-hf"
    check "is PEFT's folder" $peft logits "$base" "$out-hf" "$out-merged"
    check "PEFT makes an adapter" $peft theirs "$base" "$tmp/$kind-theirs"
    check "its loss" $peft loss "$base" "$tmp/$kind-theirs" "$(loss_of "$tmp/$kind-theirs")"
done
summary
