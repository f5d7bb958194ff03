#!/bin/sh
# test_exercises_cuda.sh -- learn/check and the CUDA exercises on the software GPU tells right, slow and wrong apart.
# inputs: cxx nvcc learn/check learn/cuda learn/exercises tests/gpu
. tests/lib.sh
needs_nvcc exercises
need build/soft_gpu.a
for exercise in transpose softmax_rows; do
    expect "$exercise: the answer" 0 '^RIGHT$' learn/check $exercise learn/exercises/answers/$exercise.cu
    expect "$exercise: the stub" 3 '^not written yet' learn/check $exercise
done
# EXERCISE|what is in the answer|what stands there instead|exit code|what is said
while IFS='|' read -r exercise from to code said; do
    answer=learn/exercises/answers/$exercise.cu
    sed "s~$from~$to~g" "$answer" >"$tmp/$exercise.cu"
    ! cmp -s "$answer" "$tmp/$exercise.cu" || { fail "$exercise: $to" "the answer has no $from"; continue; }
    expect "$exercise: $to" "$code" "$said" learn/check "$exercise" "$tmp/$exercise.cu"
done <<'CHANGES'
transpose|\[33\]|[32]|1|^RIGHT, BUT SLOW: threads of a warp wait
transpose|out\[(c + i) .*|out[(c + threadIdx.x) * rows + r + i] = tile[i][threadIdx.x];|1|it moves more than
transpose|tile\[threadIdx.x\]\[i\]|tile[i][threadIdx.x]|2|^WRONG
transpose|i < 32|i < 31|2|CUDA: .*transpose.cu:9.* never written
transpose|__syncthreads();||2|CUDA: .*transpose.cu
softmax_rows|expf(own\[k\] - most)|expf(own[k])|2|^WRONG
softmax_rows|distance = 16|distance = 8|2|^WRONG
softmax_rows|= own\[k\] / sum|= expf(x[row * C + lane + 32 * k] - most) / sum|1|it moves more than
CHANGES
summary
