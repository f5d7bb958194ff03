#!/bin/sh
# test_mutants.sh -- every barrier, wait and fence of the CUDA kernels is needed, and the tests would see it missing.
#   tests/long/test_mutants.sh [FILE...]     (all files with kernels)
# Each is taken out in turn (SIMT_SKIP_BARRIER=FILE:LINE of the emulator), and the kernel's tests must then fail in one
# of a few random orders.
. tests/lib.sh
programs=${TOOLS:-$PWD/build}/tests
orders="1 2 3 4 5 6"
tests_of() {
    case $1 in
        attention*) echo attention_forward attention_backward attention_cached ;;
        matmul*) echo matmul_by_tile gelu_forward ;;
        update) echo tree_reduce clip_scale update matrix_polynomial hash_floats ;;
        classifier) echo classifier sum_in_order ;;
        common) echo sum_in_order clip_scale matmul_by_tile attention_forward attention_backward ;;
        elements) echo cell rows_are_transposed ;;
        *) echo "$1" ;;
    esac
}
program_of() { case $1 in elements) echo "$programs/lstm_emu" ;; *) echo "$programs/kernels_emu" ;; esac; }
seen() {        # PROGRAM FILE:LINE TEST...
    program=$1 where=$2; shift 2
    for seed in $orders; do
        SIMT_SKIP_BARRIER=$where SIMT_SEED=$seed SIMT_EAGER_MS=0 timeout 120 "$program" "$@" >"$tmp/mutant.log" 2>&1 ||
            return 0
    done
    echo "passes without it, in the random orders $orders"
    return 1
}
SIMT_SMS=2; export SIMT_SMS         # so that a persistent block has more than one tile
waits='__syncthreads|__syncwarp|async_fence|grid_dependency_sync|mbar_wait|(bar_sync|wgmma_wait)(<[^>]*>)?'
all="layernorm.cu classifier.cu matmul.cu matmul_sm90.cu attention.cu attention.cuh attention_sm90.cu dropout.cu
     embedding.cu update.cu common.cuh elements.h"
for file in ${*:-$all}; do
    path=kernels/cuda/$file
    [ -e "$path" ] || path=kernels/$file
    for line in $(grep -nE "^[^/]*($waits)\(" "$path" | grep -v 'only TSan sees' | cut -d: -f1); do
        check "$file:$line" seen "$(program_of "${file%.*}")" "$file:$line" $(tests_of "${file%.*}")
    done
done
# Negative control: a line without a barrier changes nothing.
untouched() { SIMT_SKIP_BARRIER=layernorm.cu:1 "$programs/kernels_emu" layernorm_forward; }
check "the tests pass where nothing is taken out" untouched
summary
