#!/bin/sh
# test_golden.sh -- 20 AdamW steps of a small GPT-2 from a Hugging Face folder against PyTorch, by the whole program.
# tests/golden/make_gpt2.py wrote the folder, the batch and PyTorch's values (double precision).
. tests/lib.sh
golden=tests/golden/gpt2_tiny

# near OUT TOLERANCE: relative difference of every loss and gradient norm.
near() {
    losses "$1" >"$tmp/got"
    awk -v tol="$2" 'function off(a, b) { d = (a - b) / b; return d < 0 ? -d : d }
        NR == FNR { loss[$1] = $2; norm[$1] = $3; n++; next }
        { seen++
          if (off($2, loss[$1]) > worst) worst = off($2, loss[$1])
          if (off($3, norm[$1]) > worst) worst = off($3, norm[$1])
          if (!(off($2, loss[$1]) <= tol) || !(off($3, norm[$1]) <= tol)) {
              print "step " $0 ", want " loss[$1], norm[$1]
              bad = 1
          } }
        END {
            printf "largest relative difference %.2g of %d steps\n", worst, seen
            exit bad || seen != n || n != 20
        }' $golden/losses.txt "$tmp/got"
}
# golden NAME OPTIONS...: the recipe of make_gpt2.py; 1e-5 is the promise, fp32 rounding reaches about 1e-6.
golden_run() {
    name=$1; shift
    if ! $train --init $golden --data $golden/batch.bin --val-data $golden/batch.bin --steps 20 --lr 3e-3 \
        --warmup-steps 2 --final-lr-frac 0.1 --beta1 0.9 --beta2 0.95 --eps 1e-8 --weight-decay 0.1 --grad-clip 1 \
        --dropout 0 --dtype fp32 --eval-every 0 --sample-every 0 --save-every 20 \
        --out-dir "$tmp/$name" "$@" >"$tmp/log" 2>&1; then
        fail "$name" "$(tail -n 2 "$tmp/log")"
        return
    fi
    check "$name" near "$tmp/$name" 1e-5
    tail -n 1 "$tmp/check.log"
}
golden_run one_micro_batch --batch-size 4 --total-batch-size 96
golden_run four_replicas --batch-size 1 --total-batch-size 96
golden_run four_micro_batches_one_replica --batch-size 1 --total-batch-size 96 --replicas 1
golden_run two_ranks --batch-size 1 --total-batch-size 96 --np 2

# Negative control: another epsilon must be seen.
golden_run wrong_control --batch-size 4 --total-batch-size 96 --eps 1e-5 >"$tmp/control"
if grep -q '^FAIL wrong_control' "$tmp/control"; then failed=$((failed - 1)); ok "a wrong epsilon is noticed"
else fail "a wrong epsilon is noticed" "$(cat "$tmp/control")"; fi
summary
