// The answer to ../softmax_loss.cpp.
#include <algorithm>
#include <cmath>
#include "exercises.h"

void softmax_loss(float* losses, float* dlogits, const float* logits, const int* targets, int N, int V) {
    for (int n = 0; n < N; n++) {
        const float* const row = logits + n * V;
        const float most = *std::max_element(row, row + V);
        float sum = 0;
        for (int v = 0; v < V; v++) sum += std::exp(row[v] - most);
        losses[n] = std::log(sum) - (row[targets[n]] - most);
        for (int v = 0; v < V; v++)
            dlogits[n * V + v] = std::exp(row[v] - most) / sum - (v == targets[n] ? 1.0f : 0.0f);
    }
}
