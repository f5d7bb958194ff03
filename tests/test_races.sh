#!/bin/sh
# test_races.sh -- the CUDA kernels under the thread sanitizer: each CUDA thread is a thread to it, so a race between two of a block shows
# whatever the order was. A block of 256 threads takes some milliseconds here, so each kernel's smallest cases must do.
. tests/lib.sh
program=${TOOLS:-$PWD/build/tsan}/tests/kernels_emu
for test in embedding_forward embedding_backward layernorm_forward layernorm_backward dropout_backward matmul_backward_params_bias gelu_forward \
    attention_forward_large attention_cached classifier sum_in_order fold clip_scale adamw_update hash_floats; do
    portable= ; [ "$test" != attention_cached ] || portable=LOCKSTEP_PORTABLE=1          # beside which it runs attention_forward
    check "no race in $test" env SIMT_SEED=0 $portable "$program" "$test"
done
summary
