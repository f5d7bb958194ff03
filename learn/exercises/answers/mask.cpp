// The answer to ../mask.cpp.
#include <algorithm>
#include <cmath>
#include "exercises.h"

void attend(float* out, const float* q, const float* k, const float* v, const int* document, int T, int D) {
    int begin = 0;                                      // of the document that t belongs to
    for (int t = 0; t < T; t++) {
        if (document[t] != document[begin]) begin = t;
        std::vector<float> e(t + 1);
        float largest = -INFINITY, total = 0;
        for (int s = begin; s <= t; s++) {
            float score = 0;
            for (int d = 0; d < D; d++) score += q[t * D + d] * k[s * D + d];
            e[s] = score * (1 / std::sqrt(float(D)));
            largest = std::max(largest, e[s]);
        }
        for (int s = begin; s <= t; s++) {
            e[s] = std::exp(e[s] - largest);
            total += e[s];
        }
        for (int d = 0; d < D; d++) {
            float sum = 0;
            for (int s = begin; s <= t; s++) sum += e[s] * v[s * D + d];
            out[t * D + d] = sum / total;
        }
    }
}
