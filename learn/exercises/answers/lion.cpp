// The answer to ../lion.cpp.
#include "exercises.h"

void lion(float* w, float* m, const float* grad, int n, float lr, float beta1, float beta2, float decay) {
    for (int i = 0; i < n; i++) {
        const float u = beta1 * m[i] + (1 - beta1) * grad[i];
        const float sign = u > 0 ? 1.0f : u < 0 ? -1.0f : 0.0f;
        w[i] = w[i] - lr * (sign + decay * w[i]);
        m[i] = beta2 * m[i] + (1 - beta2) * grad[i];
    }
}
