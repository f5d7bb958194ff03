#!/bin/sh
# test_shakespeare.sh -- nanoGPT's CPU recipe for characters: 4 layers, 4 heads, 128 channels, T 64, batch 12, 2000
# steps. PyTorch
# reaches 1.898 to 1.911 over the whole validation part (four seeds, the same recipe); this must reach 1.92.
# inputs: cxx train_gpt.cu kernels/*.h kernels/cpu models/gpt2.* models/model.* optimizers src/data
. tests/lib.sh
text=$shared/data/tinyshakespeare.txt
[ -r "$text" ] || text=data/tinyshakespeare.txt
[ -r "$text" ] || \
    skip_all shakespeare "no tinyshakespeare.txt; data/get_tinyshakespeare.sh fetches it where there is a network"
start=$(date +%s)
check train $train --data "$text" --tokenizer char --layers 4 --heads 4 --channels 128 --seq-len 64 --batch-size 12 \
    --total-batch-size 768 --steps 2000 --lr 1e-3 --beta2 0.99 --warmup-steps 100 --final-lr-frac 0.1 \
    --weight-decay 0.1 --dropout 0 --grad-clip 1 \
    --eval-every 0 --sample-every 0 --save-every 2000 --out-dir "$tmp/run"
seconds=$(($(date +%s) - start))
loss=$($train eval "$tmp/run" | sed 's/val loss \([0-9.]*\).*/\1/')
echo "bench: shakespeare: val loss $loss over the whole validation part, trained in $seconds s"
check "val loss $loss, at most 1.92" awk "BEGIN { exit !($loss <= 1.92 && $loss > 1.5) }"
summary
