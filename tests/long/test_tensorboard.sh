#!/bin/sh
# test_tensorboard.sh -- tbparse and TensorBoard's own reader show what metrics.jsonl says, after a kill and a resume.
. tests/lib.sh
find_python "tbparse, tensorboard" tensorboard
train=$faulty
job="--layers 1 --heads 2 --channels 32 --seq-len 32 --batch-size 2 --total-batch-size 128 --data tests/golden/lines.txt
    --eval-every 5 --eval-steps 2 --sample-every 6 --max-tokens 24 --save-every 4 --steps 30"
tensorboard=${TOOLS:-$PWD/build}/tensorboard
LOCKSTEP_FAULT="rank=0,step=22,at=bwd,do=kill" $train $job --out-dir "$tmp/run" >"$tmp/log" 2>&1
check "a run that is killed" test "$(grep -c '"event":"train"' "$tmp/run/metrics.jsonl")" -eq 22
check "its event file" "$tensorboard" "$tmp/run"
check "is whole" $python tests/check_tensorboard.py "$tmp/run" 22
check "resume" $train --resume "$tmp/run"
check "its event file" "$tensorboard" "$tmp/run"
check "after the resume" $python tests/check_tensorboard.py "$tmp/run" 30
# Negative controls: a value that is another, a step that is there twice.
cp -r "$tmp/run" "$tmp/other"
sed -i '/"step":3,/s/"lr":/"lr":1/' "$tmp/other/metrics.jsonl"
refused() { ! $python tests/check_tensorboard.py "$tmp/other" 30; }
check "another value is noticed" refused
cp "$tmp/run/metrics.jsonl" "$tmp/other"
for f in "$tmp/run"/events.*; do cp "$f" "$tmp/other/${f##*/}.9"; done
check "a step that is there twice is noticed" refused
summary
