#!/bin/sh
# races.sh -- the CUDA kernels under the thread sanitizer. Each CUDA thread is a thread to it, so a race between two
# threads of a block shows in any order. A block of 256 threads takes milliseconds: only the smallest cases run.
. tests/lib.sh
program=${TOOLS:-$PWD/build/tsan}/tests/kernels_emu
for test in embedding_forward embedding_backward layernorm_forward layernorm_backward dropout_backward \
    matmul_backward_params_bias gelu_forward attention_forward_large attention_cached classifier sum_in_order \
    tree_reduce clip_scale update update_steps \
    matrix_polynomial muon_matrix hash_floats; do
    portable=
    [ "$test" != attention_cached ] || portable=SIMT_ARCH=80        # it is compared with attention_forward
    check "no race in $test" env SIMT_SEED=0 $portable "$program" "$test"
done
summary
