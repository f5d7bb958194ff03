// schedule.h -- the learning rate of step s, as a fraction of the peak.
//
// Warm-up is (s+1)/warmup, so step 0 already moves. After it, with u = (s+1 - warmup) / (steps - warmup) in (0, 1]:
//   cosine     f + (1-f) (1 + cos(pi u)) / 2          linear    1 - (1-f) u          constant  1
//   wsd        1 until the last fifth of all steps, then straight down to f   (warm-up, stable, decay; arXiv 2404.06395)
// The last step reaches f = final_frac in all but constant.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

inline double schedule_fraction(std::string_view kind, int64_t step, int64_t steps, int64_t warmup, double final_frac) {
    if (step < warmup) return double(step + 1) / double(warmup);
    const double left = double(std::max<int64_t>(1, steps - warmup)), u = std::min(1.0, double(step + 1 - warmup) / left);
    if (kind == "cosine") return final_frac + (1 - final_frac) * 0.5 * (1 + std::cos(M_PI * u));
    if (kind == "linear") return 1 - (1 - final_frac) * u;
    if (kind == "constant") return 1;
    const double decay = std::max(1.0, 0.2 * double(steps)), into = double(step + 1) - (double(steps) - decay);     // steps into wsd's decay
    return into <= 0 ? 1 : 1 - (1 - final_frac) * std::min(1.0, into / decay);
}
