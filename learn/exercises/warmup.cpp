// warmup -- the learning rate of a step.
//
// It rises in a line for `warmup` steps, then it falls along half a wave of a cosine:
//
//   step < warmup:   peak (step + 1) / warmup
//   else:            peak (f + (1 - f) (1 + cos(pi u)) / 2)
//                    with f = final_frac, u = (step + 1 - warmup) / (steps - warmup)
//
// So step 0 learns something, the last step has exactly peak f, and nothing jumps in between. warmup may be 0, and it
// may be `steps`. In double; the checker allows 1e-12 of the peak. train_gpt's is src/options/options.cpp.
#include <cmath>
#include "exercises.h"

double learning_rate(int step, int steps, int warmup, double peak, double final_frac) {
    not_written();
}
