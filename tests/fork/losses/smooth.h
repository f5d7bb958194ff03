// smooth.h -- label smoothing (Szegedy et al. 2016, arXiv 1512.00567), a loss of a fork: the cross entropy with
// a target distribution that gives e/V to every token and 1 - e more to the one that follows. With logits x of a row:
//
//     loss = cross entropy + e (x_target - mean x),   dx_j = softmax_j - (1 - e) [j = target] - e / V
#pragma once
#include <numeric>
#include "models/losses/loss.h"

inline const LossInfo smooth_info = {
    .name = "smooth",
    .help = "with label smoothing",
    .hyper = {{"smoothing", 0.1, kShare, "label-smoothing", "the part of the target that all tokens share"}},
};

#ifdef BACKEND
namespace BACKEND {

inline void smooth_rows(const LossRows& r) {
    const size_t V = size_t(r.V), n = size_t(r.n), Vp = size_t(r.Vp);
    const double e = r.hyper.at("smoothing");
    std::vector<float> x(n * Vp);
    load_floats(x.data(), r.logits, x.size());
    cross_entropy_rule(r);
    std::vector<float> d(x.size());
    load_floats(d.data(), r.logits, d.size());
    for (size_t i = 0; i < n; i++) {
        if (r.targets[i] < 0) continue;
        const float* const row = &x[i * Vp];
        const size_t target = size_t(r.targets[i]);
        const double mean = std::accumulate(row, row + V, 0.0) / double(V);
        r.losses[i] = float(double(r.losses[i]) + e * (double(row[target]) - mean));
        for (size_t j = 0; j < V; j++)
            d[i * Vp + j] = float(double(d[i * Vp + j]) + e * (double(j == target) - 1 / double(V)));
    }
    store_floats(r.logits, d.data(), d.size());
}

inline LossRule* const smooth_rule = kOnGpu ? nullptr : smooth_rows;

}  // namespace BACKEND
#endif
