// safetensors.h -- writes Hugging Face's tensor files, and reads what it wrote and what
// build/import has found in others. tools/text/tensor_files.h opens files of other programs.
//
//     8 bytes   N, little-endian: length of the header
//     N bytes   {"__metadata__":{"format":"pt"},
//                "name":{"dtype":"F32","shape":[2,3],"data_offsets":[begin,end]},...}
//     data      row-major, little-endian. Offsets count from here. There are no gaps and no
//               overlaps, and the last byte is the file's last
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>
#include "src/base/arena.h"
#include "src/base/file.h"

using SharedFile = std::shared_ptr<const InputFile>;
struct SafeTensor {
    std::string name, dtype;
    std::vector<uint64_t> shape;
    uint64_t begin, bytes;      // offset in the file, and size
    SharedFile file = nullptr;
    // Reads n values of F32, F16 or BF16 as floats, beginning with value `first`. Returns false for
    // another dtype.
    bool read(uint64_t first, size_t n, float* out) const;
};
// Converts n values of F32, F16 or BF16, at any address, to floats. Returns false for another
// dtype.
bool convert_to_floats(float* out, const char* data, const std::string& dtype, size_t n);
std::string shape_text(const std::vector<uint64_t>& shape); // "[50257,768]"

// A tensor as a file has it. begin, n: its elements [begin, begin + n) in the memory of its
// TensorSpec.
struct FileTensor { std::string name; std::vector<uint64_t> shape; size_t begin, n; };
std::vector<FileTensor> file_tensors(const TensorSpec& spec);

// Writes the header and then the tensors, one array after another. Calls progress after each
// tensor. Throws kExitWrite, or kExitOther if a value is NaN or infinite, so that a diverged model
// does not replace a good one.
void write_safetensors(FileWriter* file, const Arena& arena, const std::vector<NamedArray>& arrays,
                       const std::function<void()>& progress);
// Fills the arrays from a file that write_safetensors has written for them. kExitBadContent: its
// header is not the one that this would write now, its size is another, or a value is not finite.
void read_safetensors(const std::string& path, const Arena& arena,
                      const std::vector<NamedArray>& arrays);
// Fills arena.n floats from one tensor for each that files have of the table `theirs`, in its
// order. Padding becomes 0. theirs: the layout of the files; the position table of a longer context
// has more rows there, of which only the first ones are used. Returns the tensors that are left.
// kExitBadContent if a value is not finite.
using Tensors = std::span<const SafeTensor>;
Tensors read_tensors(Tensors tensors, const Arena& theirs, const Arena& arena, float* values);
