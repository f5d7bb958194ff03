// The answer to ../tree.cpp.
#include <algorithm>
#include "exercises.h"

void tree_sum(float* sum, const std::vector<const float*>& replicas, int n) {
    if (replicas.size() == 1) {
        std::copy_n(replicas[0], n, sum);
        return;
    }
    const auto middle = replicas.begin() + long(replicas.size() / 2);
    std::vector<float> other(n);
    tree_sum(sum, {replicas.begin(), middle}, n);
    tree_sum(other.data(), {middle, replicas.end()}, n);
    for (int i = 0; i < n; i++) sum[i] += other[i];
}
