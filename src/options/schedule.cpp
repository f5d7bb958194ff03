// schedule.cpp -- the learning rate of a step, as a fraction of the peak. A schedule is a row of kSchedules.
//
// Warm-up is (s+1)/warmup, so step 0 is not 0. Then each schedule has its own formula, which ends at final_frac or 1.
#include <algorithm>
#include <cmath>
#include "src/base/numbers.h"
#include "src/options/options.h"

// Returns the part of the last `decay` steps that is done after step s: u = (s+1 - (steps - decay)) / decay, in 0..1.
static double way_down(const ScheduleStep& s, double decay) {
    decay = std::max(1.0, decay);
    return std::clamp((double(s.step + 1) - (double(s.steps) - decay)) / decay, 0.0, 1.0);
}
static double straight_down(const ScheduleStep& s, double decay) {
    return 1 - (1 - s.final_frac) * way_down(s, decay);
}

static const std::vector<ScheduleInfo> kSchedules = {
    {"cosine", "half a wave down", [](const ScheduleStep& s) {       // f + (1-f) (1 + cos(pi u)) / 2
        const double u = way_down(s, double(s.steps - s.warmup));
        return s.final_frac + (1 - s.final_frac) * 0.5 * (1 + same_cos(M_PI * u));
    }},
    {"linear", "straight down", [](const ScheduleStep& s) { return straight_down(s, double(s.steps - s.warmup)); }},
    {"constant", "stays", [](const ScheduleStep&) { return 1.0; }},
    // Warm-up, stable, decay: arXiv 2404.06395.
    {"wsd", "stays, then straight down", [](const ScheduleStep& s) {
        return straight_down(s, s.hyper[0] * double(s.steps));
    }, {{"decay-frac", 0.2, {"> 0 and <= 1", 0, 1, true}, "", "part of all steps in which the rate goes down"}}},
};

const std::vector<ScheduleInfo>& all_schedules() { return kSchedules; }

double schedule_fraction(const Options& o, int64_t step) {
    const auto schedule = std::ranges::find(kSchedules, o.schedule, &ScheduleInfo::name);
    CHECK(schedule != kSchedules.end(), "no schedule %s", o.schedule.c_str());
    if (step < o.warmup_steps) return double(step + 1) / double(o.warmup_steps);
    const std::vector<double> hyper = hyper_values(o, schedule->hyper);
    return schedule->fraction({step, o.steps, o.warmup_steps, o.final_lr_frac, hyper.data()});
}
