// tensor_files.h -- opens safetensors files of any program (safetensors.h has the format). Numbers in them are checked.
#pragma once
#include <string>
#include <vector>
#include "src/checkpoint/safetensors.h"

struct SafeTensors {
    std::string path;
    std::vector<SharedFile> files;
    std::vector<SafeTensor> tensors;                  // in the order of their data
};
SafeTensors open_safetensors(const std::string& path);  // kExitNoInput; kExitBadContent: not this format
// Opens a folder's model.safetensors, or the files that its model.safetensors.index.json names. Throws the same errors.
SafeTensors open_model(const std::string& folder);
// Returns those that a table's tensors have in files, in its order, for read_tensors. kExitBadContent if a name, dtype
// or shape is wrong. Accepts names with and without "transformer." or "model.". Ignores attention masks, rotary
// frequencies, and a head if the model's head is its embedding: see has_own_head.
std::vector<SafeTensor> find_tensors(const SafeTensors& file, const std::vector<TensorSpec>& table);
// Whether lm_head.weight is in the files with other numbers than the tensor `embedding`.
bool has_own_head(const SafeTensors& file, const TensorSpec& embedding);
