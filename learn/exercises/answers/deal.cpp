// The answer to ../deal.cpp.
#include "exercises.h"

std::vector<int> samples_of(int step, int rank, int ranks, int replicas, int batch) {
    const int own = replicas / ranks * batch;
    std::vector<int> numbers;
    for (int i = 0; i < own; i++) numbers.push_back(step * replicas * batch + rank * own + i);
    return numbers;
}
