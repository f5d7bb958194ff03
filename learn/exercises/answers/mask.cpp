// The answer to ../mask.cpp.
#include <algorithm>
#include <cmath>
#include "exercises.h"

void attend(float* out, const float* q, const float* k, const float* v, const int* document, int T, int D) {
    int begin = 0;                                      // of the document that t belongs to
    for (int t = 0; t < T; t++) {
        if (document[t] != document[begin]) begin = t;
        std::vector<float> e(static_cast<size_t>(t + 1));
        float largest = -INFINITY, total = 0;
        for (int s = begin; s <= t; s++) {
            float score = 0;
            for (int d = 0; d < D; d++) score += q[t * D + d] * k[s * D + d];
            e[size_t(s)] = score * (1 / std::sqrt(float(D)));
            largest = std::max(largest, e[size_t(s)]);
        }
        for (int s = begin; s <= t; s++) {
            e[size_t(s)] = std::exp(e[size_t(s)] - largest);
            total += e[size_t(s)];
        }
        for (int d = 0; d < D; d++) {
            float sum = 0;
            for (int s = begin; s <= t; s++) sum += e[size_t(s)] * v[s * D + d];
            out[t * D + d] = sum / total;
        }
    }
}
