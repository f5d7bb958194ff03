// classifier.h -- softmax and cross entropy of a row of logits, and their gradient.
#pragma once
#include "kernels/cpu/isa.h"

namespace BACKEND::ISA {

// Computes one row. It is a function so that what it reads in its loops stays in registers: a
// closure of parallel_for is in memory, and its members would be loaded again after each store.
static void classifier_row(float* loss, floatX* logits, int target, int V, int Vp, bool backward) {
    if (target < 0) {
        *loss = 0;
        if (backward) memset(logits, 0, size_t(Vp) * sizeof(floatX));
        return;
    }
    Vec most = broadcast(-kInfinity);
    for_vectors(V, [&](int j, int left) { most = max(load(logits + j, left, -kInfinity), most); });
    const float top = across(most, [](Vec a, Vec b) { return max(a, b); });
    float* const exps = thread_buffer(size_t(Vp));          // the row of exp(x - top)
    const float all = sum_over(V, [&](int j, int left) {
        const Vec e = exp(load(logits + j, left, -kInfinity) - top);
        __builtin_prefetch(logits + Vp + j);        // the next row's logit
        store(exps + j, e, left);
        return e;
    });
    *loss = log(all) - (load(logits + target, 1)[0] - top);
    if (!backward) return;
    exps[target] -= all;            // before p is rounded to storage
    for_vectors(V, [&](int j, int left) { store(logits + j, load(exps + j, left) / all, left); });
    if (Vp > V) memset(logits + V, 0, size_t(Vp - V) * sizeof(floatX));
}

static void classifier(float* losses, floatX* logits, const int* targets, int N, int V, int Vp,
                       bool backward, Stream) {
    for_rows(N, Vp, [&](int n) {
        classifier_row(losses + n, logits + size_t(n) * Vp, targets[n], V, Vp, backward);
    });
}

static void sum_in_order(double* total, const float* x, size_t n, Stream) {
    double sums[256] = {}, sum = 0;
    for (size_t i = 0; i < n; i++) sums[i % 256] += double(x[i]);
    for (int j = 0; j < 256; j++) sum += sums[j];
    *total = sum;
}

}  // namespace BACKEND::ISA
