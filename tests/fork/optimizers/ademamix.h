// ademamix.h -- AdEMAMix (Pagliardini et al., arXiv 2409.03137) without its warm-up of alpha and beta3: AdamW with a
// second, slower average of the gradients. It has three state arrays.
#pragma once
#include "optimizers/optimizer.h"

struct ademamix_rule {
    static constexpr StateSpec kArrays[] = {{"exp_avg"}, {"exp_avg_sq"}, {"exp_avg_slow"}};
    static constexpr int kState[] = {3};
    enum { kBeta1, kBeta2, kBeta3, kAlpha, kEps, kWeightDecay, kBias1, kBias2 };

    RULE void element(int, float& w, float* state, float grad, const Rates& rates, const StepState& step) {
        const float* const p = step.values;
        const float g = grad * step.grad_scale;
        float &m = state[0], &v = state[1], &slow = state[2];
        m = p[kBeta1] * m + (1 - p[kBeta1]) * g;
        v = p[kBeta2] * v + (1 - p[kBeta2]) * (g * g);
        slow = p[kBeta3] * slow + (1 - p[kBeta3]) * g;
        const float direction = (m / p[kBias1] + p[kAlpha] * slow) / (sqrtf(v / p[kBias2]) + p[kEps]);
        w = w - step.lr * rates.lr * (direction + p[kWeightDecay] * rates.decay * w);
    }
};

#ifndef ISA
inline constexpr auto ademamix_matrix = nullptr;

inline const OptimizerInfo ademamix_info = {
    .name = "ademamix",
    .state = ademamix_rule::kArrays,
    .stages = ademamix_rule::kState,
    .hyper = {
        {"beta1", 0.9, kBelowOne, "", "of the fast average"},
        {"beta2", 0.95, kBelowOne, "", "of the squares"},
        {"beta3", 0.999, kBelowOne, "", "of the slow average"},
        {"alpha", 5, kNotNegative, "", "weight of the slow average"},
        {"eps", 1e-8, kTiny, "", "added to the denominator"},
        {"weight-decay", 0.1, kNotNegative, "", "of matrices and embeddings"},
    },
    .prepare = [](StepState* step, const double* hyper, int64_t update, double, double*) {
        for (int i = 0; i < ademamix_rule::kBias1; i++) step->values[i] = float(hyper[i]);
        for (int i = 0; i < 2; i++)
            step->values[ademamix_rule::kBias1 + i] = float(1 - same_pow(hyper[i], double(update)));
    },
};
#endif
