// rope.h -- Llama 3's scaling as GGUF has it: what llama.cpp divides each pair's angles by (models/llama_parts.h).
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>
#include "models/llama.h"

// Returns a divisor for each pair of a head; nothing where the angles are not scaled.
inline std::vector<float> rope_divisors(Shape s) {
    std::vector<float> divisors;
    if (rope_factor(s) == 1 || head_size(s) == 0) return divisors;
    const double turns = rope_context(s) / (2 * 3.14159265358979324), low = rope_low(s), high = rope_high(s);
    for (int j = 0; j < head_size(s) / 2; j++) {
        const double f = std::pow(double(rope_theta(s)), -2.0 * j / head_size(s));
        const double fast = std::clamp((turns * f - low) / (high - low), 0.0, 1.0);
        divisors.push_back(float(1 / ((1 - fast) / double(rope_factor(s)) + fast)));
    }
    return divisors;
}
