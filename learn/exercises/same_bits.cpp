// same_bits -- a function whose bits depend on the number of ranks. Find the reason, and mend it.
//
// It returns the mean of `count` gradients of n numbers. Rank r has computed gradients r count / ranks up to
// (r + 1) count / ranks; count and ranks are powers of two. It is written as one would write it with PyTorch: each rank
// takes the mean of its own, and all-reduce takes the mean of these. In exact arithmetic that is the mean of all.
//
// Two things differ with the number of ranks: where is divided, and in which order is added. One of them is innocent.
// Which, and why?
//
// Order wanted: a binary tree over the gradients, as in the exercise tree; then divided by count. The checker compares
// 1, 2, 4 and 8 ranks. The work must stay on the ranks: of a rank's part only one array of n numbers may travel.
#include "exercises.h"

void mean_gradient(float* mean, const std::vector<const float*>& gradients, int n, int ranks) {
    const int count = int(gradients.size()), own = count / ranks;
    for (int i = 0; i < n; i++) {
        float all = 0;
        for (int rank = 0; rank < ranks; rank++) {
            float part = 0;
            for (int g = rank * own; g < (rank + 1) * own; g++) part += gradients[size_t(g)][i] / float(own);
            all += part / float(ranks);
        }
        mean[i] = all;
    }
}
