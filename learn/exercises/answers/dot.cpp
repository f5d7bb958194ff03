// The answer to ../dot.cpp.
#include <cmath>
#include "exercises.h"

float dot(const float* a, const float* b, int n) {
    float p[8] = {};
    for (int i = 0; i < n; i++) p[i % 8] = std::fma(a[i], b[i], p[i % 8]);
    for (int half = 4; half > 0; half /= 2)
        for (int l = 0; l < half; l++) p[l] += p[half + l];
    return p[0];
}
