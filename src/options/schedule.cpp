// schedule.cpp -- the learning rate of step s, as a fraction of the peak.
//
// Warm-up is (s+1)/warmup, so step 0 is not 0. Then, with u = (s+1 - warmup) / (steps - warmup) and f = final_frac:
//   cosine   f + (1-f) (1 + cos(pi u)) / 2      linear   1 - (1-f) u      constant   1
//   wsd      1 until the last fifth of all steps, then straight down to f (warm-up, stable, decay; arXiv 2404.06395)
#include <algorithm>
#include <cmath>
#include "src/base/numbers.h"
#include "src/options/options.h"

double schedule_fraction(std::string_view kind, int64_t step, int64_t steps, int64_t warmup, double final_frac) {
    if (step < warmup) return double(step + 1) / double(warmup);
    if (kind == "constant") return 1;
    const double decay = std::max(1.0, kind == "wsd" ? 0.2 * double(steps) : double(steps - warmup));
    const double u = std::clamp((double(step + 1) - (double(steps) - decay)) / decay, 0.0, 1.0);
    if (kind == "cosine") return final_frac + (1 - final_frac) * 0.5 * (1 + same_cos(M_PI * u));
    return 1 - (1 - final_frac) * u;
}
