// same_bits -- two functions whose bits depend on the number of ranks. Find the reason, and mend it.
//
// `ranks` ranks share `count` gradients of n numbers evenly, in their order; both are powers of two. Each rank makes a
// part of its `own` gradients, and the mean of all is made of the parts. It is written as one would write it with
// PyTorch: each rank takes the mean of its own, and all-reduce takes the mean of these. In exact arithmetic that is the
// mean of all.
//
// Two things differ with the number of ranks: where is divided, and in which order is added. One of them is innocent,
// unless numbers are so small that they are rounded to 0. Which, and why?
//
// Order wanted: a binary tree over the gradients, as in the exercise tree; then divided by count. The checker compares
// up to 128 ranks. A rank sees its own gradients only: of it one array of n numbers travels, the part.
#include "exercises.h"

void part_of_rank(float* part, const std::vector<const float*>& own, int n, int /*ranks*/) {
    for (int i = 0; i < n; i++) {
        float sum = 0;
        for (const float* gradient : own) sum += gradient[i] / float(own.size());
        part[i] = sum;
    }
}

void mean_of_parts(float* mean, const std::vector<const float*>& parts, int n, int /*count*/) {
    for (int i = 0; i < n; i++) {
        float sum = 0;
        for (const float* part : parts) sum += part[i] / float(parts.size());
        mean[i] = sum;
    }
}
