// limits.h -- the ranges of numbers that options accept. Models and optimizers declare their options with these.
#pragma once

// The numbers from low to high, without low itself if `above`, and without high itself if `below`. want: the same in
// words, for errors.
struct Limits {
    const char* want;
    double low, high;
    bool above = false, below = false;
    bool hold(double x) const { return (above ? x > low : x >= low) && (below ? x < high : x <= high); }
};

constexpr Limits kPositive = {"> 0", 0, 1e30, true};
constexpr Limits kNotNegative = {">= 0", 0, 1e30};
constexpr Limits kBelowOne = {">= 0 and < 1", 0, 1, false, true};
constexpr Limits kTiny = {"from 1e-30 to 1", 1e-30, 1};         // a smaller float would divide by zero
constexpr Limits kSize = {"from 1 to 65536", 1, 65536};
constexpr Limits kLayers = {"from 1 to 4096", 1, 4096};
constexpr Limits kContext = {"from 1 to 2147483647", 1, 2147483647};
