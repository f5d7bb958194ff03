// grouped.h -- Muon for matrices, and AdamW for all other tensors, with another rate for those of group 1.
#pragma once
#include "optimizers/muon.h"

struct grouped_rule : muon_rule {
    enum { kGroupLr = kMatrixLr + 1 };

    RULE void element(int stage, float& w, float* state, float grad, const Rates& rates, const StepState& step) {
        StepState own = step;
        if (rates.group == 1) own.lr = step.values[kGroupLr];
        muon_rule::element(stage, w, state, grad, rates, own);
    }
};

#ifndef ISA
inline const OptimizerInfo grouped_info = {
    .name = "grouped",
    .state = grouped_rule::kArrays,
    .stages = grouped_rule::kState,
    .hyper = {
        muon_info.hyper[0], muon_info.hyper[1], muon_info.hyper[2], muon_info.hyper[3], muon_info.hyper[4],
        muon_info.hyper[5], {"group-lr", 0.05, kNotNegative, "", "peak learning rate of the tensors of group 1"},
    },
    .prepare = [](StepState* step, const double* hyper, int64_t update, double schedule, double* sums) {
        muon_info.prepare(step, hyper, update, schedule, sums);
        step->values[grouped_rule::kGroupLr] = float(hyper[6] * schedule);
    },
    .whole = [](const TensorSpec& tensor) { return tensor.rows > 1 && tensor.rates.group == 0; },
};

#ifdef BACKEND
namespace BACKEND { inline constexpr auto grouped_matrix = muon_matrix; }
#endif
#endif
