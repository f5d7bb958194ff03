#!/bin/sh
# test_mutants.sh -- every barrier, wait and fence of the CUDA kernels is needed, and the tests would see it missing: each is taken out in turn
# (SIMT_SKIP_BARRIER=FILE:LINE of the emulator), and the kernel's tests must then fail in one of a few random orders.
. tests/lib.sh
program=${TOOLS:-$PWD/build}/tests/kernels_emu
orders="1 2 3 4 5 6"
tests_of() {
    case $1 in
        attention*) echo attention_forward attention_backward attention_cached ;;
        matmul*) echo matmul_by_tile gelu_forward ;;
        update) echo fold clip_scale adamw_check hash_floats ;;
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
SIMT_SMS=2; export SIMT_SMS         # so that a persistent block has more than one tile
for file in layernorm.cu classifier.cu matmul.cu matmul_sm90.cu attention.cu attention.cuh attention_sm90.cu dropout.cu embedding.cu update.cu; do
    for line in $(grep -nE '^[^/]*(__syncthreads|__syncwarp|bar_sync|cluster_sync|async_fence|grid_dependency_sync|mbar_wait|(wgmma|tma_store)_wait(<[^>]*>)?)\(' "kernels/$file" | grep -v 'only TSan sees' | cut -d: -f1); do
        check "$file:$line" seen "$file:$line" $(tests_of ${file%.*})
    done
done
# Negative control: a line without a barrier changes nothing.
untouched() { SIMT_SKIP_BARRIER=layernorm.cu:1 "$program" layernorm_forward; }
check "the tests pass where nothing is taken out" untouched
summary
