// exercises_cuda.h -- the functions of the CUDA exercises: each launches a kernel that you write. All pointers are to
// the GPU's memory; rows lie one after the other.
//
// The software GPU lacks some of CUDA: printf, assert, volatile, clocks, cooperative groups, __fdividef, and float
// atomics in shared memory; __device__ and __constant__ variables, managed memory, blocks that are not whole warps. It
// says "NO VERDICT", "undefined reference" or "no whole warps" then. To see a number, return it.
#pragma once
#include "exercises.h"

EXERCISE void transpose(float* out, const float* in, int rows, int cols);
EXERCISE void softmax_rows(float* out, const float* x, int N, int C);
EXERCISE void block_sums(float* sums, const float* x, int blocks);
EXERCISE void product(float* out, const float* a, const float* b, int M, int N, int K);
