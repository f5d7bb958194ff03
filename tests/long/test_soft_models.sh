#!/bin/sh
# test_soft_models.sh -- whole runs of an LSTM, a Llama and adapters on GPUs in software: the same bytes for any number
# of ranks, and after a resume.
. tests/lib.sh
needs_nvcc "models on GPUs in software"
soft="env SOFT_GPU_DEVICES=4 timeout 900 ${TRAIN_GPT_PTX:-$PWD/build/train_gpt_ptx}"
common="--batch-size 2 --total-batch-size 256 --warmup-steps 2 --eval-every 4 --eval-steps 2 --audit-every 3
    --sample-every 0"
shape="--layers 2 --channels 32 --seq-len 16 --data tests/golden/lines.txt --lr 1e-2"
qwen="--heads 4 --kv-heads 2 --mlp-size 48"
job="$common $shape --device gpu"
all_of lstm 8 "$soft" --model lstm --replicas 4
all_of qwen2 4 "$soft" --model qwen2 $qwen --head-size 64 --replicas 8
check "a model to adapt" $train $common $shape --model qwen3 $qwen --steps 60 --save-every 60 --out-dir "$tmp/qwen3-run"
check "its folder" "${TOOLS:-build}/export" "$tmp/qwen3-run" --hf "$tmp/qwen3"
job="$common --device gpu --data tests/golden/layouts.txt --lr 5e-2"
all_of adapters 6 "$soft --init $tmp/qwen3 --lora 8" --replicas 8
summary
