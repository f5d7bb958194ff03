#!/bin/sh
# test_golden.sh -- 20 steps of the GPT-2 of tests/golden/make_gpt2.py are PyTorch's in double precision, to 1e-5.
. tests/lib.sh
golden_run() {      # NAME OPTIONS...
    name=$1; shift
    check "$name" as_pytorch "$name" 1e-5 1e-5 $train --dtype fp32 "$@"
    tail -n 1 "$tmp/check.log"
}
golden_run one_micro_batch --batch-size 4
golden_run four_replicas --batch-size 1
golden_run four_micro_batches_one_replica --batch-size 1 --replicas 1
golden_run two_ranks --batch-size 1 --np 2
# Negative control.
wrong_epsilon() {
    ! eps=1e-5 as_pytorch wrong 1e-5 1e-5 $train --dtype fp32 --batch-size 4 && losses "$tmp/wrong" | grep '^19 '
}
check "a wrong epsilon is noticed" wrong_epsilon
summary
