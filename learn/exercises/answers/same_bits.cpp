// The answer to ../same_bits.cpp.
#include "exercises.h"

// The order was the reason. To divide by a power of two changes an exponent and rounds nothing, wherever it is done,
// as long as no result is below 2^-126.
static float tree(const std::vector<const float*>& x, size_t begin, size_t end, int i) {
    if (end - begin == 1) return x[begin][i];
    const size_t middle = (begin + end) / 2;
    return tree(x, begin, middle, i) + tree(x, middle, end, i);
}

void part_of_rank(float* part, const std::vector<const float*>& own, int n, int /*ranks*/) {
    for (int i = 0; i < n; i++) part[i] = tree(own, 0, own.size(), i);
}

void mean_of_parts(float* mean, const std::vector<const float*>& parts, int n, int count) {
    for (int i = 0; i < n; i++) mean[i] = tree(parts, 0, parts.size(), i) / float(count);
}
