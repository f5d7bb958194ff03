// The answer to ../tiles.cu.
#include "exercises_cuda.h"

__global__ void tiled(float* out, const float* a, const float* b, int N, int K) {
    __shared__ float as[16][16], bs[16][17];            // 17: the threads of a warp read a column of bs
    const int x = threadIdx.x, y = threadIdx.y, m = blockIdx.y * 16, n = blockIdx.x * 16;
    float sum = 0;
    for (int k = 0; k < K; k += 16) {
        as[y][x] = a[(m + y) * K + k + x];
        bs[y][x] = b[(n + y) * K + k + x];
        __syncthreads();                                // all have written
        for (int i = 0; i < 16; i++) sum += as[y][i] * bs[x][i];
        __syncthreads();                                // all have read
    }
    out[(m + y) * N + n + x] = sum;
}

void product(float* out, const float* a, const float* b, int M, int N, int K) {
    tiled<<<dim3(N / 16, M / 16), dim3(16, 16)>>>(out, a, b, N, K);
}
