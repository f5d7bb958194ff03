// safetensors.h -- Hugging Face's tensor file: u64 header length, JSON header, data. Read with distrust, written for anyone.
//
//     8 bytes   N, little-endian: length of the header
//     N bytes   {"__metadata__":{"format":"pt"},"name":{"dtype":"F32","shape":[2,3],"data_offsets":[begin,end]},...}, padded with spaces
//     data      row-major, little-endian, offsets from here; no gaps, no overlaps, the last byte is the file's last
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>
#include "arena.h"
#include "file.h"
#include "json.h"

struct SafeTensor { std::string name, dtype; std::vector<uint64_t> shape; const char* data; uint64_t bytes; };
struct SafeTensors {
    MappedFile file;
    std::vector<SafeTensor> tensors;                                // in the order of their data
    Json metadata;                                                  // an object of strings, or nothing; in the file
    const SafeTensor* find(const std::string& name) const;
};
SafeTensors open_safetensors(const std::string& path);              // 66; 65 if anything in it is not as above
std::vector<SafeTensor> parse_safetensors(const char* data, size_t size, const char* what, Json* metadata);
// n values of F32, F16 or BF16 at `data` (any alignment) as floats; false for another dtype.
bool convert_to_floats(float* out, const char* data, const std::string& dtype, size_t n);
std::string shape_text(const std::vector<uint64_t>& shape);         // "[50257,768]"

// What stands before the data of a file of tensors named spec.name + suffix, all of one suffix, then of the next; and elements [begin, end)
// of one suffix, which lie bytes_before(arena, begin) behind its beginning: transposed and without padding rows, as specs say; neither end
// is inside a transposed tensor. values: of an arena of floats in memory order, from its element `base` on.
// Error 74; Error 1 if a value is NaN or infinite: a broken model is not saved over a good one.
std::string safetensors_header(const Arena& arena, const std::vector<std::string>& suffixes);
uint64_t bytes_before(const Arena& arena, size_t element);
void write_elements(FileWriter* file, const Arena& arena, size_t begin, size_t end, const float* values, size_t base);
// Fills one arena from tensors named spec.name + suffix (fp32, fp16 or bf16), checking names, dtypes, shapes and that all values are
// finite. Accepts both of Hugging Face's name styles (with and without "transformer."), ignores attention masks and a tied lm_head.
// Padding becomes 0.
void read_safetensors(const SafeTensors& file, const Arena& arena, const char* suffix, float* values);
