// muon.h -- Muon (Jordan et al., kellerjordan.github.io/posts/muon): a matrix is updated with the
// orthogonal matrix nearest to its averaged gradient, so that all singular directions change
// equally fast. Matrices that are stacked in one tensor, as those of q, k and v, are updated one by
// one. AdamW updates other tensors.
//
//     m = momentum m + (1 - momentum) g
//     d = momentum m + (1 - momentum) g        Nesterov's direction
//     W = W - muon_lr ( sqrt(max(1, rows / cols)) orthogonal(d) + weight_decay W )
//
// muon.cpp computes orthogonal(d).
#pragma once
#include "optimizers/adamw.h"

struct muon_rule {
    // kAdamw is the elementwise rule; muon_matrix calls the other stages. In kDirection `w` is its
    // scratch memory, which gets the direction.
    enum { kAdamw, kDirection, kApply };
    // AdamW's first moment is in `momentum`. Matrices have no exp_avg_sq.
    static constexpr StateSpec kArrays[] = {{"momentum"}, {"exp_avg_sq"}};
    static constexpr int kState[] = {2, 1, 0};
    enum { kMomentum = adamw_rule::kValues, kMatrixLr };

    RULE void element(int stage, float& w, float* state, float grad, const Rates& rates,
                      const StepState& step) {
        const float* const p = step.values;
        if (stage == kAdamw) {
            adamw_rule::element(0, w, state, grad, rates, step);
        } else if (stage == kDirection) {
            const float g = (1 - p[kMomentum]) * (grad * step.grad_scale);
            state[0] = p[kMomentum] * state[0] + g;
            w = p[kMomentum] * state[0] + g;
        } else {
            w = w - p[kMatrixLr] * rates.lr *
                    (grad + p[adamw_rule::kWeightDecay] * rates.decay * w);
        }
    }
};

#ifndef ISA
inline const OptimizerInfo muon_info = {
    .name = "muon",
    .state = muon_rule::kArrays,
    .stages = muon_rule::kState,
    .hyper = {
        adamw_info.hyper[0], adamw_info.hyper[1], adamw_info.hyper[2], adamw_info.hyper[3],
        {"momentum", 0.95, kBelowOne, "muon-momentum",
         "what a step keeps of the gradients before it"},
        {"muon-lr", 0.02, kNotNegative, "matrix-lr",
         "peak learning rate of matrices; --lr is that of all others; default with --init: 0.001",
         0.001},
    },
    .prepare = [](StepState* step, const double* hyper, int64_t update, double schedule,
                  double* sums) {
        adamw_info.prepare(step, hyper, update, schedule, sums);
        step->values[muon_rule::kMomentum] = hyper[4];
        step->values[muon_rule::kMatrixLr] = hyper[5] * schedule;
    },
    .whole = [](const TensorSpec& tensor) { return tensor.rows > 1 && !tensor.at_ends; },
};

#ifdef BACKEND
namespace BACKEND { MatrixRule muon_matrix; }
#endif
#endif
