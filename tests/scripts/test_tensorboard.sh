#!/bin/sh
# test_tensorboard.sh -- build/tensorboard makes one event file beside metrics.jsonl, after kills and resumes too.
. tests/cases.sh
train=$faulty
shape="--layers 1 --heads 2 --channels 32 --seq-len 32 --batch-size 2 --total-batch-size 128 $on_lines"
job="$shape --eval-steps 2 --sample-every 0 --save-every 4 --steps 12 --out-dir $tmp/run"
files() { ls -s "$tmp/run" | grep -c '[1-9][0-9]* events.out.tfevents.[0-9]\{10\}\.lockstep'; }     # not empty
one_file() { [ "$(files)" -eq 1 ] && [ "$(ls "$tmp/run" | wc -l)" -eq "${1:-4}" ]; }   # with ckpt, config, metrics
# How often a text is in the file: each step has one train/loss, each evaluation one val/loss.
count() { grep -ao "$1" "$tmp/run"/events.* | wc -l; }

tensorboard=${TOOLS:-$PWD/build}/tensorboard

LOCKSTEP_FAULT="rank=0,step=9,at=bwd,do=kill" $train $job --force --eval-every 5 >"$tmp/log" 2>&1
check "of a run that was killed" "$tensorboard" "$tmp/run"
check "one file" one_file
check "with the steps it did" test "$(count train/loss) $(count val/loss)" = "9 1"
mkfifo "$tmp/input"
"$tensorboard" "$tmp/run" --follow <"$tmp/input" & follower=$!
exec 3>"$tmp/input"
expect "beside its resume" 0 '^done ' $train --resume "$tmp/run"
exec 3>&-
check "it ends" wait $follower
check "with one file more" one_file 5
check "which sorts behind an empty one" test ! -s "$(ls "$tmp/run"/events.* | head -n 1)"
check "each step is there once" test "$(count train/loss) $(count val/loss)" = "12 3"
expect "--force" 0 '^done ' $train $job --force
check "and the tool makes one of the new run alone" "$tensorboard" "$tmp/run"
check "each of its steps is there once" test "$(count train/loss)" = 12
summary
