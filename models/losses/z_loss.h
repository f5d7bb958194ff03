// z_loss.h -- the cross entropy plus w (log sum exp logits)^2 for each token (Chowdhery et al.
// 2022, PaLM, arXiv 2204.02311): logits stay small, which helps bf16.
#pragma once
#include "models/losses/loss.h"

inline const LossInfo z_loss_info = {
    .name = "z-loss",
    .help = "that plus a weight times (log sum exp logits)^2",
    .hyper = {{"z-loss", 1e-4, kNotNegative, "", "the weight"}},
    .memory = 1,
};

#ifdef BACKEND
namespace BACKEND {
LossRule z_loss_rule;
}
#endif
