// lora.h -- low-rank adapters (Hu et al. 2021, arXiv 2106.09685): --lora freezes the model's weights and trains two
// narrow matrices, A and B, for each matrix of --lora-targets.
//
//     y = x W^T + bias + scale (x A^T) B^T       W (out,in), A (rank,in), B (out,rank), scale = alpha / rank
//
// A starts with random values and B with zeros, so the first step computes the unchanged model. Matrices that are
// stacked in memory, as those of q, k and v, share one adapter; in PEFT's files each has its own, with a copy of A.
#pragma once
#include "models/model.h"

namespace BACKEND {

// out = x + scale y    (n), n a multiple of 8; out may be x or y; if x is null, out = scale y
void add_scaled(floatX* out, const floatX* x, float scale, const floatX* y, size_t n, Stream stream = nullptr);

}  // namespace BACKEND
