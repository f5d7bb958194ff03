#!/bin/sh
# test_lists.sh -- everything in the lists keeps the promise: each model, optimizer, schedule and reduction trains to
# the same bits with 1, 2 and 4 ranks, and after a resume from the middle. A fork's own are in the lists, too.
. tests/lib.sh
listed() { grep -v '^#' "$1"; }
values() { $train --help --device cpu | sed -n "s/^ *--$1 \([a-z0-9_|-]*\).*/\1/p" | tr '|' ' '; }
small="--device cpu --dtype fp32 --threads 1 --data tests/golden/lines.txt --channels 64 --replicas 4 --seq-len 16
    --batch-size 2 --total-batch-size 256 --eval-every 0 --sample-every 0 --audit-every 3 --warmup-steps 2"
step8() { echo "$tmp/$1/ckpt/step_00000008"; }
# keeps NAME OPTIONS...: the checkpoints of one rank, of 2 and 4, and of a resume with 2 have the same bytes.
keeps() {
    name=$1; shift
    $train $small --steps 8 --save-every 4 "$@" --out-dir "$tmp/$name" >"$tmp/log" 2>&1 ||
        { tail -n 3 "$tmp/log"; return 1; }
    for np in 2 4; do
        $train $small --steps 8 --save-every 4 "$@" --np $np --out-dir "$tmp/$name$np" >"$tmp/log" 2>&1 ||
            { tail -n 3 "$tmp/log"; return 1; }
        diff -r "$(step8 "$name")" "$(step8 "$name$np")" -x state.json -x DONE || return 1
    done
    rm -rf "$(step8 "$name"4)"
    $train --resume "$tmp/${name}4" --np 2 >"$tmp/log" 2>&1 || { tail -n 3 "$tmp/log"; return 1; }
    diff -r "$(step8 "$name")" "$(step8 "$name"4)" -x state.json -x DONE
}
for model in $(listed models/list); do check "--model $model" keeps "$model" --model "$model"; done
for optimizer in $(listed optimizers/list); do
    check "--optimizer $optimizer" keeps "$optimizer" --optimizer "$optimizer"
done
schedules=$(values schedule)
check "--help lists the schedules" test "$(echo "$schedules" | wc -w)" -ge 4
for schedule in $schedules; do check "--schedule $schedule" keeps "$schedule" --schedule "$schedule"; done
for reduction in $(listed src/ddp/reductions/list | grep -vx nccl); do
    check "--reduce $reduction" keeps "$reduction" --reduce "$reduction"
done
# Negative control: another number of replicas is another sum.
other() { ! { $train $small --steps 8 --save-every 4 --replicas 2 --out-dir "$tmp/two" >"$tmp/log" 2>&1 &&
    diff -rq "$(step8 ordered)" "$(step8 two)" -x state.json -x DONE; }; }
check "other bits are noticed" other
summary
