// The answer to ../relu2.cpp.
#include <algorithm>
#include "exercises.h"

void relu2_forward(float* out, const float* x, int n) {
    for (int i = 0; i < n; i++) out[i] = std::max(x[i], 0.0f) * std::max(x[i], 0.0f);
}

void relu2_backward(float* dx, const float* dout, const float* x, int n) {
    for (int i = 0; i < n; i++) dx[i] = dout[i] * 2 * std::max(x[i], 0.0f);
}
