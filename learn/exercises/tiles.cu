// tiles -- a matrix product: out (M,N) = a (M,K) times the transpose of b (N,K), all of them multiples of 16.
//
// If each thread computes one result and reads its row of a and its row of b from memory, each number of a is read N
// times and each of b M times. So let a block of dim3(16, 16) threads compute 16 x 16 results together: they bring a
// tile of 16 x 16 numbers of a and one of b to shared memory, each thread one of either, add the 16 products that these
// allow, and go on with the next 16 of K. Each number is then read N / 16 or M / 16 times.
//
// Order: any; the checker allows 3e-5. It wants at most 1.05 times the bytes that tiles of 16 x 16 ask for, which are
// M K N / 16 + N K M / 16 + M N floats, and at most 1.05 times the turns at shared memory.
//
// dim3(N / 16, M / 16) blocks have the numbers blockIdx.x and blockIdx.y; threads have threadIdx.x and threadIdx.y.
// learn/cuda/matmul.cu goes on from here: more results for each thread, and tensor cores.
#include "exercises_cuda.h"

void product(float* out, const float* a, const float* b, int M, int N, int K) {
    not_written();
}
