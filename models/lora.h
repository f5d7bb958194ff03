// lora.h -- low-rank adapters (Hu et al. 2021, arXiv 2106.09685): --lora trains two narrow matrices beside each one
// that it freezes.
//
//     y = x W^T + bias + scale (x A^T) B^T       W (out,in), A (rank,in), B (out,rank), scale = alpha / rank
//
// A begins as noise and B as zeros: the first step sees the model as it was. Matrices that are stacked in memory, such
// as those of q, k and v, share one adapter. PEFT's files have an adapter for each of them, and repeat A there.
#pragma once
#include "src/base/arena.h"

struct Lora {
    int rank = 0;               // a multiple of 8; 0: there are no adapters
    double alpha = 0;           // --lora-alpha; its 0 becomes twice the rank
    std::string targets = "all";    // ends of names, "q_proj,k_proj"; "all": every matrix but embedding and head
    float scale() const { return float(alpha / rank); }
};

// A and B of each adapted matrix, in the order of `base`, by PEFT's names. kExitUsage for a target that is not there,
// or a rank above a matrix's width.
std::vector<TensorSpec> lora_tensors(const std::vector<TensorSpec>& base, const Lora& lora);
// [i]: how many tensors of lora_tensors() belong to tensors 0..i-1 of `base`; one element more than `base`.
std::vector<int> lora_begins(const std::vector<TensorSpec>& base, const Lora& lora);
// The adapted matrices' names as `targets` has them, each once.
std::vector<std::string> lora_modules(const std::vector<TensorSpec>& base, const Lora& lora);

// "model.norm.weight" -> "base_model.model.model.norm.END"
std::string adapter_name(const std::string& tensor, const char* end);
