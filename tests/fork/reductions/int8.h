// int8.h -- int8 codes with error feedback, a reduction of a fork. A replica adds only multiples of a step to the sum,
// one of 255 for each element of a unit. What that rounds off is kept and added to the replica's next gradient (Seide
// et al. 2014, "1-bit stochastic gradient descent"; Karimireddy et al. 2019, arXiv 1901.09847).
//
//     x = grad + error;   s = max |x| of the unit / 127;   code = round(x / s);   grad = s code;   error = x - grad
//
// This file changes what enters the tree; the transport still sends floats. Of each element a rank sends 4 bytes now.
// A transport for codes would send:
//     W = R    1 byte and s, 4 bytes for 4096 elements: a quarter. A rank's sum is the gradient of its one replica.
//     W < R    R / W bytes: a sum of two replicas is no code of one s, and to round it again would give bits that
//              depend on W. So the codes of all R / W replicas of a rank must travel: nothing is saved from R / W = 4.
#pragma once
#include <algorithm>
#include <cmath>
#include "src/ddp/reductions/reduction.h"

inline const ReductionInfo int8_info = {
    .name = "int8",
    .help = "each replica's gradient in steps of 1/127 of a unit's largest, with error feedback",
    .state = {"error"},
};

#ifdef BACKEND
namespace BACKEND {

inline void int8_unit(float* grad, float* error) {
    float most = 0;
    for (size_t i = 0; i < kUnit; i++) {
        error[i] = grad[i] + error[i];                          // x, until the last loop
        most = std::max(most, std::fabs(error[i]));
    }
    const float s = most / 127;
    for (size_t i = 0; i < kUnit; i++) {
        if (s > 0) grad[i] = s * std::nearbyint(error[i] / s);
        error[i] = error[i] - grad[i];
    }
}

inline void int8_on_replica(const ReplicaGradient& g) {
    for (size_t i = g.range.begin; i < g.range.end; i++)
        if (!std::isfinite(g.grads[i])) return;                 // the step is left out, as ever
    for (size_t i = g.range.begin; i < g.range.end; i += kUnit) int8_unit(g.grads + i, g.state[0] + i);
}

inline constexpr ReductionRule int8_rule = {.on_replica = int8_on_replica};

}  // namespace BACKEND
#endif
