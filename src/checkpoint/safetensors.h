// safetensors.h -- reads and writes Hugging Face's tensor files: a JSON header, then data. Numbers in them are checked.
//
//     8 bytes   N, little-endian: length of the header
//     N bytes   {"__metadata__":{"format":"pt"},"name":{"dtype":"F32","shape":[2,3],"data_offsets":[begin,end]},...}
//     data      row-major, little-endian, offsets from here; no gaps, no overlaps, the last byte is the file's last
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>
#include "src/base/arena.h"
#include "src/base/file.h"

using SharedFile = std::shared_ptr<const InputFile>;
struct SafeTensor {
    std::string name, dtype;
    std::vector<uint64_t> shape;
    uint64_t begin, bytes;                              // offset in the file, and size
    SharedFile file = nullptr;
    // Reads n values of F32, F16 or BF16 as floats, beginning with value `first`. Returns false for another dtype.
    bool read(uint64_t first, size_t n, float* out) const;
};
struct SafeTensors {
    std::string path;
    std::vector<SharedFile> files;
    std::vector<SafeTensor> tensors;                  // in the order of their data
};
SafeTensors open_safetensors(const std::string& path);  // kExitNoInput; kExitBadContent: not this format
// Opens a folder's model.safetensors, or the files that its model.safetensors.index.json names. Throws the same errors.
SafeTensors open_model(const std::string& folder);
// Converts n values of F32, F16 or BF16, at any address, to floats. Returns false for another dtype.
bool convert_to_floats(float* out, const char* data, const std::string& dtype, size_t n);
std::string shape_text(const std::vector<uint64_t>& shape); // "[50257,768]"

// Writes the header and then the tensors, one array after another. Calls progress after each tensor. Throws kExitWrite,
// or kExitOther if a value is NaN or infinite, so that a diverged model does not replace a good one.
void write_safetensors(FileWriter* file, const Arena& arena, const std::vector<NamedArray>& arrays,
                       const std::function<void()>& progress);
size_t count_file_tensors(const Arena& arena);        // the number of tensors that an array has in a file
// Fills arena.n floats from the tensors NAME + suffix (F32, F16 or BF16), NAME being each TensorSpec's; padding becomes
// 0. kExitBadContent if a name, dtype or shape is wrong or a value is not finite. Accepts names with and without
// "transformer." or "model.". Ignores attention masks, rotary frequencies, and a head if the model's head is its
// embedding: see has_own_head. theirs: the layout of the file if it is not `arena`; the position table of a longer
// context has more rows, of which only the first ones are used.
void read_safetensors(const SafeTensors& file, const Arena& arena, const std::string& suffix, float* values,
                      const Arena* theirs = nullptr);
// Whether lm_head.weight is in the files with other numbers than the tensor `embedding`.
bool has_own_head(const SafeTensors& file, const TensorSpec& embedding);
