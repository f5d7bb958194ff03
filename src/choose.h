// choose.h -- which token comes next, given logits: temperature, top-k, top-p, and one random number per position.
#pragma once
#include <cstdint>
#include <vector>

struct Choosing {
    double temperature = 1;     // 0 = the largest logit
    int top_k = 0;              // 0 = all
    double top_p = 1;           // the smallest set whose probability reaches it (Holtzman et al. 2020, arXiv 1904.09751)
    uint64_t seed = 0;
    uint32_t stream = 0;        // separates the samples of one seed
};
// position: of the token in the text, so that a text is a function of (seed, stream, prompt). Ties go to the smaller id.
int choose_token(const std::vector<float>& logits, const Choosing& how, uint64_t position);
