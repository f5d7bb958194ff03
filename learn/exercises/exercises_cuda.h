// exercises_cuda.h -- the functions of the CUDA exercises: each launches a kernel that you write. All pointers are to
// the GPU's memory; rows lie one after the other.
#pragma once
#include "exercises.h"

EXERCISE void transpose(float* out, const float* in, int rows, int cols);
EXERCISE void softmax_rows(float* out, const float* x, int N, int C);
EXERCISE void block_sums(float* sums, const float* x, int blocks);
EXERCISE void product(float* out, const float* a, const float* b, int M, int N, int K);
