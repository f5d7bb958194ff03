// arena.h -- one flat array for all tensors: where each lies, and how it is cut.
//
// Every tensor starts at a unit (kUnit elements) and is padded to whole units with zeros that stay zero. Weights,
// gradients and an optimizer's state have the same offsets: a slice of one is the same slice of all. The order is the
// table's: backward finishes the tensors from the last to the first.
#pragma once
#include <string>
#include <vector>
#include "src/base/types.h"

// One parameter tensor of a model. src/ knows tensors only as these.
struct TensorSpec {
    std::string name;       // as in the checkpoint: "transformer.h.0.attn.c_attn.weight"
    size_t rows, cols;      // in memory, padding rows included; a vector is 1 x cols
    size_t file_rows;       // rows that belong to the file and count as parameters (wte: V of Vp)
    bool transposed;        // the file holds it as (cols, file_rows): Hugging Face's Conv1D
    float init_std;         // 0 = zeros, kOnes = ones
    bool decay;             // tensors of two or more dimensions decay
    bool embedding = false; // a matrix whose rows are looked up, or a head: no map between hidden states
    // What stands one after the other in memory and is tensors of its own in files: rows of a matrix, or elements of a
    // vector. Empty: it is one tensor there, too. In `name` is then what they have in common.
    struct Part { std::string name; size_t count; };
    std::vector<Part> parts = {};
    bool repeated = false;  // each part is the whole tensor
};
constexpr float kOnes = -1;
std::vector<TensorSpec::Part> parts_of(const TensorSpec& spec);     // its parts, or itself as the only one
size_t count_parameters(const std::vector<TensorSpec>& table);      // without padding rows; a tied head once

struct Arena {
    std::vector<TensorSpec> tensors;
    std::vector<size_t> offset;         // of each tensor, in elements; a multiple of kUnit
    size_t n = 0;                       // elements in all, a multiple of kUnit
};
Arena arena_layout(std::vector<TensorSpec> tensors);
std::vector<uint8_t> arena_decay(const Arena& arena);      // by unit: whether its weights decay

// Writes the first weights (arena.n floats in host memory): element i of tensor t is a function of (seed, t, i) alone,
// normal with the table's standard deviation, zeros or ones.
void arena_init(float* weights, const Arena& arena, uint64_t seed);
