// dot -- the sum of a[i] b[i] for i < n, in fp32, in the order that fits a CPU's vectors.
//
// A sum in order is slow: each addition waits for the one before. Eight sums side by side do not wait for each other,
// and eight floats are a vector of AVX2.
//
// Order: eight partial sums, 0 at first. Product i is added to partial sum i % 8 by std::fma(a[i], b[i], partial), in
// the order of i. At the end partial sum 4 + l is added to l for l < 4, then 2 + l to l for l < 2, then 1 to 0.
// train_gpt's is `Sums` in kernels/cpu/isa.h, with 64 partial sums; learn/train.cpp has it as well.
#include <cmath>
#include "exercises.h"

float dot(const float* a, const float* b, int n) {
    not_written();
}
