// The answer to ../layernorm_backward.cpp.
#include <algorithm>
#include "exercises.h"

void layernorm_backward(float* dx, float* dweight, float* dbias, const float* dout, const float* x, const float* weight,
                        const float* mean, const float* scale, int N, int C) {
    std::fill_n(dweight, C, 0.0f);
    std::fill_n(dbias, C, 0.0f);
    for (int n = 0; n < N; n++) {
        const auto norm = [&](int c) { return (x[n * C + c] - mean[n]) * scale[n]; };
        float a = 0, b = 0;
        for (int c = 0; c < C; c++) {
            const float d = dout[n * C + c] * weight[c];
            a += d;
            b += d * norm(c);
            dbias[c] += dout[n * C + c];
            dweight[c] += dout[n * C + c] * norm(c);
        }
        a /= float(C);
        b /= float(C);
        for (int c = 0; c < C; c++)
            dx[n * C + c] = (dout[n * C + c] * weight[c] - a - norm(c) * b) * scale[n];
    }
}
