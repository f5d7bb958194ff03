#!/bin/sh
# test_exercises_cuda.sh -- learn/check and the CUDA exercises on the software GPU tells right, slow and wrong apart.
# inputs: cxx nvcc learn/check learn/cuda learn/exercises tests/gpu
. tests/lib.sh
needs_nvcc exercises
need build/soft_gpu.a
for exercise in block_sum tiles transpose softmax_rows; do
    expect "$exercise: the answer" 0 '^RIGHT: ' learn/check $exercise learn/exercises/answers/$exercise.cu
    expect "$exercise: the stub" 3 '^not written yet' learn/check $exercise
done
expect "the first program" 0 '^row 0: 63 ... 0, row 7: 511 ... 448; .*no error' learn/ladder start
sed '/__syncthreads/d' learn/cuda/start.cu >"$tmp/start.cu"
expect "without its barrier" 0 'start.cu:9: .* never written' learn/ladder "$tmp/start.cu"
cat >"$tmp/atomics.cu" <<'SOURCE'
#include "exercises_cuda.h"
__global__ void add(float* sums, const float* x) { atomicAdd(sums + blockIdx.x, x[blockIdx.x * 256 + threadIdx.x]); }
void block_sums(float* sums, const float* x, int blocks) {
    cudaMemsetAsync(sums, 0, size_t(blocks) * sizeof(float), nullptr);
    add<<<blocks, 256>>>(sums, x);
}
SOURCE
expect "block_sum: atomics" 2 '^WRONG: two runs have sums with other bits' learn/check block_sum "$tmp/atomics.cu"
cat >"$tmp/host.cu" <<'SOURCE'
#include "exercises_cuda.h"
void transpose(float* out, const float* in, int rows, int cols) {
    std::vector<float> from(rows * cols), to(from);
    cudaMemcpy(from.data(), in, from.size() * sizeof(float), cudaMemcpyDeviceToHost);
    for (int i = 0; i < rows * cols; i++) to[i % cols * rows + i / cols] = from[i];
    cudaMemcpy(out, to.data(), to.size() * sizeof(float), cudaMemcpyHostToDevice);
}
SOURCE
expect "transpose: without a kernel" 1 '^RIGHT, BUT SLOW: no kernel' learn/check transpose "$tmp/host.cu"
# EXERCISE|what is in the answer|what stands there instead|exit code|what is said
while IFS='|' read -r exercise from to code said; do
    answer=learn/exercises/answers/$exercise.cu
    sed "s~$from~$to~g" "$answer" >"$tmp/$exercise.cu"
    ! cmp -s "$answer" "$tmp/$exercise.cu" || { fail "$exercise: $to" "the answer has no $from"; continue; }
    expect "$exercise: $from -> $to" "$code" "$said" learn/check "$exercise" "$tmp/$exercise.cu"
done <<'CHANGES'
block_sum|half = 128|half = 64|2|^WRONG
block_sum|half > 0|half > 1|2|^WRONG
block_sum|blockIdx.x \* 256 + t|t|2|^WRONG: 5 blocks
block_sum|^    __syncthreads();||2|CUDA: .*block_sum.cu
block_sum|^        __syncthreads();||2|CUDA: .*block_sum.cu
block_sum|s\[t\] += s\[t + half\]|s[t] = s[t + half] + s[t]|0|^RIGHT: all bits
block_sum|t < half) s\[t\] += s\[t + half\]|t % (256 / half) == 0) s[t] += s[t + 128 / half]|1|^RIGHT IN ANOTHER
block_sum|= s\[0\]|= s[0] + 0.01f|2|^WRONG: 5 blocks
tiles|k < K|k < min(K, 256)|2|^WRONG: M = 16, N = 64, K = 800
tiles|(out, a, b, N, K);|(out, a, b, N, K), cudaMemsetAsync((void*)a, 0, 4);|2|^WRONG: a, which is an input
tiles|__syncthreads(); *// all have written||2|CUDA: .*tiles.cu
tiles|__syncthreads(); *// all have read||2|CUDA: .*tiles.cu
tiles|k < K|k < 16|2|^WRONG: M = 32, N = 48, K = 80
tiles|\* N + n + x|* K + n + x|2|^WRONG|CUDA
tiles|dim3(N / 16, M / 16)|dim3(M / 16, N / 16)|2|^WRONG|CUDA
tiles|\[17\]|[16]|1|^RIGHT, BUT SLOW: threads of a warp wait
tiles|as\[y\]\[i\] \* bs|(0 * as[y][i] + a[(m + y) * K + k + i]) * bs|1|^RIGHT, BUT SLOW: it moves more
tiles|int i = 0; i < 16; i++|int i = 15; i >= 0; i--|0|^RIGHT: five shapes
transpose|\[33\]|[32]|1|^RIGHT, BUT SLOW: threads of a warp wait
transpose|out\[(c + i) .*|out[(c + threadIdx.x) * rows + r + i] = tile[i][threadIdx.x];|1|it moves more than
transpose|tile\[threadIdx.x\]\[i\]|tile[i][threadIdx.x]|2|^WRONG
transpose|i < 32|i < 31|2|CUDA: .*transpose.cu:9.* never written
transpose|(out, in, rows, cols);|(out, in, rows, cols), cudaMemsetAsync((void*)in, 0, 4);|2|^WRONG: in, which is
transpose|const int c = |const int unused = 0, c = |0|^RIGHT: all numbers
transpose|__syncthreads();||2|CUDA: .*transpose.cu
transpose|rows / 32)|cols / 32)|2|^WRONG|CUDA
transpose|dim3(cols / 32, rows / 32)|dim3(rows / 32, cols / 32)|2|^WRONG|CUDA
transpose|\[33\]|[35]|0|^RIGHT: all numbers
softmax_rows|expf(own\[k\] - most)|expf(own[k])|2|^WRONG
softmax_rows|most = -INFINITY|most = 0|2|^WRONG: N = 7, C = 64, x of -3000000
softmax_rows|most = -INFINITY|most = -1000|2|^WRONG: N = 7, C = 64, x of -3000000
softmax_rows|expf(own\[k\] - most)|(own[k] - most < -13 ? 0 : expf(own[k] - most))|2|^WRONG: N = [37]
softmax_rows|(out, x, N, C);|(out, x, N, C), cudaMemsetAsync((void*)x, 0, 4);|2|^WRONG: x, which is an input
softmax_rows|distance = 16|distance = 8|2|^WRONG
softmax_rows|if (row >= N) return;||2|CUDA: .*softmax_rows.cu
softmax_rows|k < 32; k++|k < 24; k++|2|^WRONG: N = 3, C = 1024
softmax_rows|= own\[k\] / sum|= expf(x[row * C + lane + 32 * k] - most) / sum|1|it moves more than
softmax_rows|own\[k\] / sum|own[k] * (1 / sum)|0|^RIGHT: rows
CHANGES
summary
