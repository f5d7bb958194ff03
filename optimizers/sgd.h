// sgd.h -- stochastic gradient descent with momentum, as in torch.optim.SGD.
//
//     g = g + weight_decay w;   m = momentum m + g;   w = w - lr m         vectors do not decay
#pragma once
#include "optimizers/optimizer.h"

struct sgd_rule {
    static constexpr StateSpec kArrays[] = {{"momentum_buffer"}};
    static constexpr int kState[] = {1};
    enum { kMomentum, kWeightDecay };           // indices in StepState::values

    RULE void element(int, float& w, float* state, float grad, const Rates& rates,
                      const StepState& step) {
        const float* const p = step.values;
        const float g = grad * step.grad_scale + p[kWeightDecay] * rates.decay * w;
        state[0] = p[kMomentum] * state[0] + g;
        w = w - step.lr * rates.lr * state[0];
    }
};

#ifndef ISA
inline constexpr auto sgd_matrix = nullptr;

inline const OptimizerInfo sgd_info = {
    .name = "sgd",
    .state = sgd_rule::kArrays,
    .stages = sgd_rule::kState,
    .hyper = {
        {"momentum", 0.9, kBelowOne, "sgd-momentum",
         "what a step keeps of the gradients before it"},
        {"weight-decay", 0, kNotNegative, "", ""},      // its help text is in adamw.h
    },
    .prepare = [](StepState* step, const double* hyper, int64_t, double, double*) {
        for (int i = 0; i < 2; i++) step->values[i] = hyper[i];
    },
    .lr_factor = 100,
};
#endif
