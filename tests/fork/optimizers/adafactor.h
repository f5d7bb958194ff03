// adafactor.h -- Adafactor (Shazeer and Stern 2018, arXiv 1804.04235, algorithms 4 to 6), without momentum. The squares
// of a matrix's gradient are kept as sums of rows and columns, so that its state has rows + cols numbers.
//
//     R = b R + (1 - b) sums of rows of (g^2 + eps1);   C likewise of columns;   V = R C / sum(R);   b = 1 - t^-0.8
//     U = g / sqrt(V);   W = W - lr max(eps2, rms(W)) U / max(1, rms(U) / d)             of a vector C is V itself
#pragma once
#include "optimizers/optimizer.h"

struct adafactor_rule {
    static constexpr StateSpec kArrays[] = {{"exp_avg_sq_row", Per::row}, {"exp_avg_sq_col", Per::column}};
    static constexpr int kState[] = {0};
    enum { kBeta, kEps1, kEps2, kClip };

    RULE void element(int, float&, float*, float, const Rates&, const StepState&) {}    // no tensor is left for it
};

#ifndef ISA
inline const OptimizerInfo adafactor_info = {
    .name = "adafactor",
    .state = adafactor_rule::kArrays,
    .stages = adafactor_rule::kState,
    .hyper = {
        {"decay-power", 0.8, kNotNegative, "", "of the steps so far, by which the squares' average slows down"},
        {"eps1", 1e-30, {"> 0", 0x1p-126, 1}, "", "added to squares of gradients"},
        {"eps2", 1e-3, kNotNegative, "", "least scale of a tensor"},
        {"clip-update", 1, kPositive, "", "largest root mean square of an update"},
    },
    .prepare = [](StepState* step, const double* hyper, int64_t update, double, double*) {
        for (int i = 1; i < 4; i++) step->values[i] = float(hyper[i]);
        step->values[adafactor_rule::kBeta] = float(1 - same_pow(double(update), -hyper[0]));
    },
    .lr_factor = 2,
    .whole = [](const TensorSpec&) { return true; },
};

#ifdef BACKEND
namespace BACKEND { MatrixRule adafactor_matrix; }
#endif
#endif
