#!/bin/sh
# test_sum.sh -- the audit finds and names a change of the sum of replicas, and none before it.
. tests/cases.sh
train=$faulty
steps="$eight --steps 6 --save-every 3 --timeout 30 $mute"
says='step 4\]: .*: rank [0-9]*: the sum of the replicas. gradients of [a-z0-9._]*: element [0-9]+ of the arena is .*, '
meets() { echo "LOCKSTEP_FAULT=rank=$1,step=$2,at=$3,do=$4"; }

job="$steps --audit-every 1"
check "a good run has nothing to say" run one $train --np 1
like_one on_hosts on_hosts 4 2 $train
job="$steps --audit-every 4"

for np in 1 2 4; do
    expect "--np $np: what rank 0 changes where ranks meet is named" 80 "$says" \
        env "$(meets 0 4 meet flip:77)" $train --np $np $job --out-dir "$tmp/meet$np"
done
expect "and what rank 1 does" 80 "$says" env "$(meets 1 4 meet big)" $train --np 2 $job --out-dir "$tmp/meet_1"
expect "with overlap, too" 80 "$says" env "$(meets 1 4 meet flip:4000)" \
    $train --np 4 --overlap on $job --out-dir "$tmp/meet_overlap"
check "nothing of that step was saved" test "$(cat "$tmp/meet2/ckpt/latest")" = step_00000003
# Controls: nobody looks in another step; a replica's own gradient may be anything; both give other bits than the run.
missed() { env "$1" $train --np 2 $job --out-dir "$tmp/$2" >"$tmp/$2.log" 2>&1 && grep -q 'FAULT fires' "$tmp/$2.log"; }
check "a step without an audit goes on" missed "$(meets 1 2 meet flip:77)" other_step
differs() { ! same "$tmp/one" "$tmp/$1" >"$tmp/differs"; }
check "to other bits" differs other_step
check "a replica's gradient that is changed before the tree goes on" missed "$(meets 1 4 bwd flip:77)" before
check "to other bits" differs before
summary
