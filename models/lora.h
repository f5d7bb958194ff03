// lora.h -- low-rank adapters (Hu et al. 2021, arXiv 2106.09685): --lora trains two narrow matrices beside each one
// that it freezes.
//
//     y = x W^T + bias + scale (x A^T) B^T       W (out,in), A (rank,in), B (out,rank), scale = alpha / rank
//
// A begins as noise and B as zeros: the first step sees the model as it was. Matrices that are stacked in memory, such
// as those of q, k and v, share one adapter. PEFT's files have an adapter for each of them, and repeat A there.
#pragma once
#include "models/shape.h"

// A and B of each adapted matrix, in the order of `base`, by PEFT's names. kExitUsage for a target that is not there,
// or a rank above a matrix's width.
std::vector<TensorSpec> lora_tensors(const std::vector<TensorSpec>& base, const Lora& lora);
// [i]: how many tensors of lora_tensors() belong to tensors 0..i-1 of `base`; one element more than `base`.
std::vector<int> lora_begins(const std::vector<TensorSpec>& base, const Lora& lora);
// The adapted matrices' names as `targets` has them, each once.
std::vector<std::string> lora_modules(const std::vector<TensorSpec>& base, const Lora& lora);

// "model.norm.weight" -> "base_model.model.model.norm.END"
std::string adapter_name(const std::string& tensor, const char* end);

#ifdef BACKEND
#include "models/model.h"
namespace BACKEND {

// What --lora adds to a model; its products are in linear.cpp.
struct Adapters {
    Lora lora;
    floatX* weights = nullptr;                  // of Model::trained
    float* grads = nullptr;
    // Work space.
    floatX *low = nullptr, *dlow = nullptr;     // (N,rank) (N,rank)
    floatX* wide = nullptr;                     // (N, widest matrix)
    float* unread = nullptr;                    // gradients of frozen vectors: written, never read
};
void add_adapters(Model* m, const Lora& lora);              // makes the adapters the trained tensors
void place_adapters(Model* m, Layout& place);               // lays out the work space
void attach_adapters(Model* m);                             // connects them to the table's weights

// out = x + scale y    (n); out may be x or y; a null x counts as 0
void add_scaled(floatX* out, const floatX* x, float scale, const floatX* y, size_t n, Stream stream = nullptr);

}  // namespace BACKEND
#endif
