// safetensors.h -- Hugging Face's tensor file: a JSON header and data. Read with distrust, written for anyone.
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
    uint64_t begin, bytes;                              // of the file
    SharedFile file = nullptr;
    // Reads n values of F32, F16 or BF16 from number `first` on as floats; false for another dtype.
    bool read(uint64_t first, size_t n, float* out) const;
};
struct SafeTensors {
    std::string path;
    std::vector<SharedFile> files;
    std::vector<SafeTensor> tensors;                  // in the order of their data
};
SafeTensors open_safetensors(const std::string& path);  // kExitNoInput; kExitBadContent: it is not as above
// Opens a folder's model.safetensors or, where there is none, its adapter_model.safetensors, or the files that
// model.safetensors.index.json names.
SafeTensors open_model(const std::string& folder);
// Converts n values of F32, F16 or BF16 at any address to floats; false for another dtype.
bool convert_to_floats(float* out, const char* data, const std::string& dtype, size_t n);
std::string shape_text(const std::vector<uint64_t>& shape); // "[50257,768]"

// A named array of arena.n floats in memory order. The file holds its tensors as TENSOR.NAME, as TENSOR if name is "",
// without padding rows, in parts and transposed where the table says so.
struct NamedArray { std::string name; float* data; };
// Writes header and tensors, all of one array, then of the next; calls progress after each tensor. kExitWrite;
// kExitOther if a value is NaN or infinite: a broken model is not saved over a good one.
void write_safetensors(FileWriter* file, const Arena& arena, const std::vector<NamedArray>& arrays,
                       const std::function<void()>& progress);
size_t count_file_tensors(const Arena& arena);        // that one array has in a file
// Fills arena.n floats from the tensors spec.name + suffix (F32, F16 or BF16); padding becomes 0. kExitBadContent if a
// name, dtype or shape is wrong or a value is not finite. Takes names with and without "transformer." or "model.",
// ignores attention masks, rotary frequencies and a head that equals the embedding it is tied to. `theirs`: the file's
// tensors where they differ: of a longer context the position table has more rows, and the first ones are taken.
void read_safetensors(const SafeTensors& file, const Arena& arena, const std::string& suffix, float* values,
                      const Arena* theirs = nullptr);
