// start.cu -- a whole CUDA program: it turns each row of a matrix of 8 rows around. `learn/ladder start` runs it.
#include <cstdio>
#include <cuda_runtime.h>

__global__ void turn(float* x) {                        // runs in 512 threads
    __shared__ float rows[4][64];                       // memory that the threads of a block have together
    const int c = threadIdx.x, row = blockIdx.x * 4 + threadIdx.y;
    rows[threadIdx.y][c] = x[row * 64 + c];
    __syncthreads();                                    // all 256 threads of the block have read
    x[row * 64 + c] = rows[threadIdx.y][63 - c];
}

int main() {
    float x[8 * 64], *on_gpu;
    for (int i = 0; i < 8 * 64; i++) x[i] = float(i);
    cudaMalloc(&on_gpu, sizeof x);                      // an array in the GPU's memory
    cudaMemcpy(on_gpu, x, sizeof x, cudaMemcpyHostToDevice);
    turn<<<dim3(2), dim3(64, 4)>>>(on_gpu);             // 2 blocks of 64 x 4 threads
    cudaMemcpy(x, on_gpu, sizeof x, cudaMemcpyDeviceToHost);        // waits for the kernel
    printf("row 0: %g ... %g, row 7: %g ... %g; %s\n", x[0], x[63], x[448], x[511],
           cudaGetErrorString(cudaGetLastError()));
    cudaFree(on_gpu);
}
