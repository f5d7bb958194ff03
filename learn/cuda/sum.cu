// sum.cu -- the ladder of a sum over many numbers: n in, one out. Losses, norms and gradients of biases are such sums.
//
// Addition is not associative in floating point, so the order in which threads add is a part of the result. The first
// two rungs add in the order in which threads happen to arrive: run them twice on a GPU and the last digits differ. The
// software GPU has the same order in every run, so there they agree.
#include "ladder.h"

constexpr int n = SMALL ? 1 << 18 : 1 << 26, kBlocks = 64, kThreads = 256;

// Rung 1: every thread adds its number to the result. An atomic addition is one that no other can interrupt, so all of
// them wait for each other at one address.
__global__ void atomics(float* sum, const float* x) {
    atomicAdd(sum, x[blockIdx.x * blockDim.x + threadIdx.x]);
}

// Rung 2: the threads of a block add among themselves first, in shared memory, as a tree: 128 threads add what another
// 128 have, then 64, and so on. One atomic addition a block is left. Thread t reads s[t + half]: neighbours read
// neighbours, so that no two threads of a warp want the same bank.
__global__ void a_tree_in_shared_memory(float* sum, const float* x) {
    __shared__ float s[kThreads];
    s[threadIdx.x] = x[blockIdx.x * kThreads + threadIdx.x];
    for (int half = kThreads / 2; half > 0; half /= 2) {
        __syncthreads();                                // all have written what the others read now
        if (threadIdx.x < half) s[threadIdx.x] += s[threadIdx.x + half];
    }
    if (threadIdx.x == 0) atomicAdd(sum, s[0]);
}

// Rung 3: a fixed order. Each thread adds many numbers, which needs no exchange at all, four at a time, in its own
// registers; a warp adds by shuffles, without shared memory; and a block leaves its sum in a place of its own. A second
// kernel of one warp adds these. No step depends on who comes first, so every run has the same bits.
__device__ float warp_sum(float x) {
    for (int distance = 16; distance > 0; distance /= 2) x += __shfl_xor_sync(~0u, x, distance);
    return x;
}
__global__ void sums_of_blocks(float* sums, const float* x) {
    __shared__ float of_warps[kThreads / 32];
    float own = 0;
    for (int i = (blockIdx.x * kThreads + threadIdx.x) * 4; i < n; i += kBlocks * kThreads * 4) {
        const float4 four = *reinterpret_cast<const float4*>(x + i);
        own += (four.x + four.y) + (four.z + four.w);
    }
    own = warp_sum(own);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = own;
    __syncthreads();
    if (threadIdx.x > 0) return;
    float total = 0;
    for (const float part : of_warps) total += part;
    sums[blockIdx.x] = total;
}
__global__ void sum_of_sums(float* sum, const float* sums) {
    static_assert(kBlocks == 64);
    const float total = warp_sum(sums[threadIdx.x] + sums[threadIdx.x + 32]);
    if (threadIdx.x == 0) *sum = total;
}

int main() {
    const auto x = numbers(n, 1);
    double total = 0;
    for (const float value : x) total += double(value);
    const Array<float> X = x;
    Array<float> sum(1, "sum"), sums(kBlocks);
    Ladder ladder("sum", n * sizeof(float), n, n);
    const auto climb = [&](const char* name, double tolerance, const std::function<void()>& run) {
        ladder.climb(name, sum, {float(total)}, tolerance, run);
        printf("    %.9g, in bits %a\n", double(sum.values()[0]), double(sum.values()[0]));
    };
    climb("an atomic addition each", 1e-2, [&] {
        sum.fill(0);
        atomics<<<n / kThreads, kThreads>>>(sum, X);
    });
    climb("a tree in shared memory", 1e-4, [&] {
        sum.fill(0);
        a_tree_in_shared_memory<<<n / kThreads, kThreads>>>(sum, X);
    });
    climb("in a fixed order", 1e-4, [&] {
        sums_of_blocks<<<kBlocks, kThreads>>>(sums, X);
        sum_of_sums<<<1, 32>>>(sum, sums);
    });
    return ladder.result();
}
