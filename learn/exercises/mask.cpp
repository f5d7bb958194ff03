// mask -- attention of one head over T positions, D channels, where several documents stand in one row.
//
//   out, q, k, v (T,D); document (T): the number of each position's document, ascending
//
//   score[t][s] = (q[t] . k[s]) / sqrt(D) for s <= t of the same document; other positions do not count
//   out[t] = sum over s of p[s] v[s],   p = softmax of the scores of t
//
// Without the mask a position would learn to predict a text from another text that happens to stand before it.
//
// Order: q . k as sum = sum + q * k in the order of channels, then times 1 / std::sqrt(float(D)). Of each t the largest
// score; e[s] = std::exp(score - largest); total = sum of e in the order of s; out = sum of e[s] * v[s] in the order of
// s, starting from 0, and divided by total at the end. train_gpt's is attention_forward in kernels/ref.cpp.
#include <cmath>
#include "exercises.h"

void attend(float* out, const float* q, const float* k, const float* v, const int* document, int T, int D) {
    not_written();
}
