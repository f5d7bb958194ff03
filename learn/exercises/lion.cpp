// lion -- an optimizer with one average where AdamW has two (Chen et al. 2023, arXiv 2302.06675): the step is a sign.
//
//   u = beta1 m + (1 - beta1) grad           w = w - lr (sign(u) + decay w)         m = beta2 m + (1 - beta2) grad
//
// for each of n weights. sign(0) is 0. Both averages read the m from before the step.
//
// Order: as written, each line from left to right, products before sums, in float and without fma: u is a float.
// train_gpt's AdamW is optimizers/adamw.h; a Lion for it is tests/fork/optimizers/lion.h.
#include "exercises.h"

void lion(float* w, float* m, const float* grad, int n, float lr, float beta1, float beta2, float decay) {
    not_written();
}
