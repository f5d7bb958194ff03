// lion.h -- Lion (Chen et al., arXiv 2302.06675): the sign of a momentum. An optimizer that a fork adds.
#pragma once
#include "optimizers/optimizer.h"

struct lion_rule {
    static constexpr StateSpec kArrays[] = {{"exp_avg"}};
    static constexpr int kState[] = {1};
    enum { kBeta1, kBeta2, kWeightDecay };

    RULE void element(int, float& w, float* state, float grad, const Rates& rates, const StepState& step) {
        const float* const p = step.values;
        const float g = grad * step.grad_scale, u = p[kBeta1] * state[0] + (1 - p[kBeta1]) * g;
        const float sign = u > 0 ? 1.0f : u < 0 ? -1.0f : 0.0f;
        w = w - step.lr * rates.lr * (sign + p[kWeightDecay] * rates.decay * w);
        state[0] = p[kBeta2] * state[0] + (1 - p[kBeta2]) * g;
    }
};

#ifndef ISA
inline constexpr auto lion_matrix = nullptr;

inline const OptimizerInfo lion_info = {
    .name = "lion",
    .state = lion_rule::kArrays,
    .stages = lion_rule::kState,
    .hyper = {
        {"beta1", 0.9, kBelowOne, "", "of the momentum in the step"},
        {"beta2", 0.99, kBelowOne, "", "of the momentum that is kept"},
        {"weight-decay", 0.1, kNotNegative, "", "of matrices and embeddings"},
    },
    .prepare = [](StepState* step, const double* hyper, int64_t, double, double*) {
        for (int i = 0; i < 3; i++) step->values[i] = float(hyper[i]);
    },
    .lr_factor = 0.3,
};
#endif
