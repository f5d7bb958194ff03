// clip -- the factor by which a gradient of n numbers is multiplied, so that its norm is at most `limit`.
//
//   norm = sqrt(sum of g^2)         factor = norm > limit ? limit / norm : 1         0 if the norm is not finite
//
// A factor of 0 stands for "skip this step": one NaN would otherwise be in all weights after the update.
//
// Order: units of 4096 numbers, the last one may be shorter. A unit's sum of squares is in float, sum = sum + g * g, in
// the order of its numbers from 0 on. The units' sums are added in double, in their order. norm and factor are doubles;
// the result is the factor rounded to float.
//
// Why units? Ranks update different slices, which are whole units. So each rank can send the sums of its units, and all
// add the same numbers in the same order. train_gpt's is clip_scale in kernels/kernels.h; there and in PyTorch the
// factor is limit / (norm + 1e-6).
#include <cmath>
#include "exercises.h"

float clip_factor(const float* grads, int n, float limit) {
    not_written();
}
