// lora.h -- low-rank adapters (Hu et al. 2021, arXiv 2106.09685): --lora trains two narrow matrices beside each one
// that it freezes.
//
//     y = x W^T + bias + scale (x A^T) B^T       W (out,in), A (rank,in), B (out,rank), scale = alpha / rank
//
// A begins as noise and B as zeros: the first step sees the model as it was. Matrices that are stacked in memory, such
// as those of q, k and v, share one adapter. PEFT's files have an adapter for each of them, and repeat A there.
#pragma once
#include "models/model.h"

namespace BACKEND {

struct Adapters {
    int rank;
    float scale;                        // alpha / rank
    floatX* weights = nullptr;          // of Model::trained
    float* grads = nullptr;
    // Work space.
    floatX *low = nullptr, *dlow = nullptr;     // (N,rank) (N,rank)
    floatX* wide = nullptr;             // (N, widest matrix)
    float* unread = nullptr;            // gradients of frozen vectors: written, never read
};

// out = x + scale y    (n); out may be x or y; a null x counts as 0
void add_scaled(floatX* out, const floatX* x, float scale, const floatX* y, size_t n, Stream stream = nullptr);

}  // namespace BACKEND
