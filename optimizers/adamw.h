// adamw.h -- AdamW (Loshchilov and Hutter, arXiv 1711.05101).
//
//     m = b1 m + (1 - b1) g;   v = b2 v + (1 - b2) g^2
//     w = w - lr ( (m / bias1) / (sqrt(v / bias2) + eps) + weight_decay w )
//
// bias1 and bias2 are 1 - b1^update and 1 - b2^update. Vectors do not decay.
//
// A weight changes by about lr per step, whatever the scale of its gradient. m and v start at 0, so
// at first they are too small; the division by bias1 and bias2 corrects that.
#pragma once
#include "optimizers/optimizer.h"

struct adamw_rule {
    static constexpr StateSpec kArrays[] = {{"exp_avg"}, {"exp_avg_sq"}};
    static constexpr int kState[] = {2};
    // Indices in StepState::values.
    enum { kBeta1, kBeta2, kEps, kWeightDecay, kBias1, kBias2, kValues };

    RULE void element(int, float& w, float* state, float grad, const Rates& rates,
                      const StepState& step) {
        const float* const p = step.values;
        const float g = grad * step.grad_scale;
        float &m = state[0], &v = state[1];
        m = p[kBeta1] * m + (1 - p[kBeta1]) * g;
        v = p[kBeta2] * v + (1 - p[kBeta2]) * (g * g);
        const float direction = (m / p[kBias1]) / (sqrtf(v / p[kBias2]) + p[kEps]);
        w = w - step.lr * rates.lr * (direction + p[kWeightDecay] * rates.decay * w);
    }
};

#ifndef ISA
inline constexpr auto adamw_matrix = nullptr;

inline const OptimizerInfo adamw_info = {
    .name = "adamw",
    .state = adamw_rule::kArrays,
    .stages = adamw_rule::kState,
    .hyper = {
        {"beta1", 0.9, kBelowOne, "adam-beta1", "decay of the first moment"},
        {"beta2", 0.95, kBelowOne, "adam-beta2", "decay of the second moment"},
        {"eps", 1e-8, kTiny, "adam-epsilon adam-eps epsilon", "added to the denominator"},
        {"weight-decay", 0.1, kNotNegative, "wd decay -c",
         "of matrices and embeddings; vectors are not decayed"},
    },
    .prepare = [](StepState* step, const double* hyper, int64_t update, double, double*) {
        for (int i = 0; i < adamw_rule::kBias1; i++) step->values[i] = hyper[i];
        for (int i = 0; i < 2; i++)
            step->values[adamw_rule::kBias1 + i] = 1 - same_pow(hyper[i], update);
    },
};
#endif
