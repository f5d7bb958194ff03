#!/bin/sh
# test_tensorboard.sh -- --tensorboard: one event file beside metrics.jsonl, also after kills, resumes and --force.
# tests/unit/test_tensorboard.cpp reads its bytes; tests/long/test_tensorboard.sh has readers of others.
. tests/lib.sh
train=$faulty
job="--layers 1 --heads 2 --channels 32 --seq-len 32 --batch-size 2 --total-batch-size 128 --data tests/golden/lines.txt
    --eval-steps 2 --sample-every 0 --save-every 4 --steps 12 --out-dir $tmp/run"
files() { ls -s "$tmp/run" | grep -c '[1-9][0-9]* events.out.tfevents.[0-9]\{10\}\.lockstep'; }     # not empty
one_file() { [ "$(files)" -eq 1 ] && [ "$(ls "$tmp/run" | wc -l)" -eq "${1:-4}" ]; }   # with ckpt, config, metrics
# How often a text is in the file: each step has one train/loss, each evaluation one val/loss.
count() { grep -ao "$1" "$tmp/run"/events.* | wc -l; }

expect "a run without it" 0 '^done ' $train $job --force
check "has no event file" test "$(files)" -eq 0
LOCKSTEP_FAULT="rank=0,step=9,at=bwd,do=kill" $train $job --force --tensorboard --eval-every 5 >"$tmp/log" 2>&1
ended() { ! pgrep -f "build/[t]ensorboard .*$tmp/run"; }    # the tool ends by itself when its run was killed
check "nothing that a killed run has started stays" await ended
check "a run that was killed has one" one_file
check "with the steps it did" test "$(count train/loss) $(count val/loss)" = "9 1"
first=$(ls "$tmp/run" | grep '^events')
expect "its resume" 0 '^done ' $train --resume "$tmp/run"
check "has one as well" one_file 5
check "which sorts behind the first, now empty" test ! -s "$tmp/run/$first" -a \
    "$(ls "$tmp/run" | grep '^events' | head -n 1)" = "$first"
check "each step is there once" test "$(count train/loss) $(count val/loss)" = "12 3"
expect "a resume can leave it" 0 '^done ' $train --resume "$tmp/run" --tensorboard=off --steps 14
check "as it was" test "$(files) $(count train/loss)" = "1 12"
expect "and take it up" 0 '^done ' $train --resume "$tmp/run" --tensorboard --steps 16
check "from the first step on" test "$(files) $(count train/loss)" = "1 16"
check "one empty file is kept" one_file 5
expect "--force" 0 '^done ' $train $job --force
check "removes it" test "$(ls "$tmp/run" | grep -c '^events')" -eq 0
expect "two ranks" 0 '^done ' $train $job --force --tensorboard --np 2
check "write one" one_file
check "and nothing stays" ended
LOCKSTEP_FAULT="rank=0,step=3,at=bwd,do=sleep:2" $train $job --force --tensorboard >"$tmp/log" 2>&1 & job=$!
await pgrep -P $job -f tensorboard
pkill -KILL -P $job -f tensorboard
wait $job
check "a run whose tool is killed goes on" test $? -eq 0
check "and says so" grep -q 'warning: --tensorboard: .*signal 9; the run goes on' "$tmp/log"
mkdir "$tmp/alone" && cp "$train" "$tmp/alone/train_gpt"
expect "without the tool" 66 'tensorboard: .* build it with: ninja build/tensorboard' "$tmp/alone/train_gpt" \
    --tensorboard --data tests/golden/lines.txt --out-dir "$tmp/none"
check "no run begins" test ! -e "$tmp/none"
check "of a run that had none" "${TOOLS:-build}/tensorboard" "$tmp/run"
check "the tool makes one" test "$(count train/loss)" = 12
summary
