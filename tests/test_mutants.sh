#!/bin/sh
# test_mutants.sh -- every barrier of the CUDA kernels is needed, and the tests would see it missing: each is taken out in turn
# (SIMT_SKIP_BARRIER=FILE:LINE of the emulator), and the kernel's tests must then fail in one of a few random orders.
. tests/lib.sh
program=${TOOLS:-$PWD/build}/tests/kernels_emu
orders="1 2 3 4 5 6"
tests_of() {
    case $1 in
        matmul) echo "matmul_backward_params_bias matmul_gelu_forward" ;;
        update) echo clip_scale adamw_check ;;
        classifier) echo classifier sum_in_order ;;
        *) echo "$1" ;;
    esac
}
seen() {        # FILE:LINE TEST...
    where=$1; shift
    for seed in $orders; do
        SIMT_SKIP_BARRIER=$where SIMT_SEED=$seed SIMT_EAGER_MS=0 timeout 120 "$program" "$@" >"$tmp/mutant.log" 2>&1 || return 0
    done
    echo "passes without it, in the random orders $orders"
    return 1
}
for file in layernorm classifier matmul attention embedding update; do
    for line in $(grep -nE '^[^/]*(__syncthreads|__syncwarp|bar_sync)\(' "kernels/$file.cu" | cut -d: -f1); do
        check "$file.cu:$line" seen "$file.cu:$line" $(tests_of $file)
    done
done
# Negative control: a line without a barrier changes nothing.
untouched() { SIMT_SKIP_BARRIER=layernorm.cu:1 "$program" layernorm_forward; }
check "the tests pass where nothing is taken out" untouched
summary
