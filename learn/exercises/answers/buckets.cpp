// The answer to ../buckets.cpp.
#include "exercises.h"

std::vector<int> buckets(const std::vector<size_t>& bytes, size_t first, size_t others) {
    std::vector<int> all;
    size_t sum = 0;
    for (int i = int(bytes.size()) - 1; i >= 0; i--) {
        sum += bytes[i];
        if (i > 0 && sum < (all.empty() ? first : others)) continue;
        all.push_back(i);
        sum = 0;
    }
    return all;
}
