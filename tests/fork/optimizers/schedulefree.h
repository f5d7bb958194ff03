// schedulefree.h -- schedule-free AdamW (Defazio et al. 2024, arXiv 2405.15682). Gradients are taken at y, the weights
// that are trained; AdamW's steps move z; x, the average of all z, is what a user gets.
//
//     v = b2 v + (1 - b2) g^2;   z = z - lr ( g / (sqrt(v / bias2) + eps) + weight_decay y )
//     c = lr^2 / (sum of all lr^2 so far);   x = (1 - c) x + c z;   y = (1 - b1) z + b1 x
//
// Meant for --schedule constant: warm-up is enough. --lr 1 to 10 times AdamW's.
#pragma once
#include "optimizers/optimizer.h"

struct schedulefree_rule {
    // In optim.safetensors the first array is y, and model.safetensors has x.
    static constexpr StateSpec kArrays[] = {{.name = "y", .from_weights = true}, {.name = "z", .from_weights = true},
                                            {.name = "exp_avg_sq"}};
    static constexpr int kState[] = {3, 1};
    enum { kBeta1, kBeta2, kEps, kWeightDecay, kBias2, kC };

    RULE void element(int stage, float& w, float* state, float grad, const Rates& rates, const StepState& step) {
        const float* const p = step.values;
        float& x = state[0];
        if (stage == 1) {
            const float y = w;
            w = x;
            x = y;
            return;
        }
        const float g = grad * step.grad_scale;
        float &z = state[1], &v = state[2];
        v = p[kBeta2] * v + (1 - p[kBeta2]) * (g * g);
        const float direction = g / (sqrtf(v / p[kBias2]) + p[kEps]);
        z = z - step.lr * rates.lr * (direction + p[kWeightDecay] * rates.decay * w);
        x = x + p[kC] * (z - x);
        w = z + p[kBeta1] * (x - z);
    }
};

#ifndef ISA
inline constexpr auto schedulefree_matrix = nullptr;

inline const OptimizerInfo schedulefree_info = {
    .name = "schedulefree",
    .state = schedulefree_rule::kArrays,
    .stages = schedulefree_rule::kState,
    .hyper = {
        {"beta1", 0.9, kBelowOne, "", "weight of the average in the weights that are trained"},
        {"beta2", 0.95, kBelowOne, "", "of the squares"},
        {"eps", 1e-8, kTiny, "", "added to the denominator"},
        {"weight-decay", 0.1, kNotNegative, "", "of matrices and embeddings"},
    },
    .prepare = [](StepState* step, const double* hyper, int64_t update, double, double* sums) {
        for (int i = 0; i < schedulefree_rule::kBias2; i++) step->values[i] = float(hyper[i]);
        step->values[schedulefree_rule::kBias2] = float(1 - same_pow(hyper[1], double(update)));
        const double square = double(step->lr) * double(step->lr);
        sums[0] += square;
        step->values[schedulefree_rule::kC] = sums[0] > 0 ? float(square / sums[0]) : 0;
    },
    .lr_factor = 2,
    .sums = 1,
    .exchange = 1,
};
#endif
