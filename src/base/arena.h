// arena.h -- the arena, one flat array for all tensors of a model: the offset of each tensor, and where it may be cut.
//
// Every tensor starts at a unit (kUnit elements) and is padded to whole units with zeros, which stay zero. Weights,
// gradients and each array of the optimizer's state have the same offsets, so a slice covers the same elements in all
// of them. Tensors lie in the order of the model's table; backward finishes their gradients from the last to the first.
#pragma once
#include <string>
#include <vector>
#include "src/base/numbers.h"

// One parameter tensor of a model. src/ knows nothing else about a model's tensors.
struct TensorSpec {
    std::string name;       // as in the checkpoint: "transformer.h.0.attn.c_attn.weight"
    size_t rows, cols;      // in memory, padding rows included; a vector is 1 x cols; 0 rows: not in files
    size_t file_rows;       // rows without padding, which are in files and count as parameters (wte: V of Vp)
    bool transposed;        // files store it as (cols, file_rows), as Hugging Face's Conv1D does
    float init_std;         // standard deviation of the first weights; 0: all are zero; kOnes: all are one
    bool matrix;            // files have it with two dimensions; else it is a vector
    bool at_ends = false;   // an embedding table or a head, so no linear map between hidden states
    // The tensors that files hold in place of this one, such as q, k and v. They lie one after another in its memory;
    // count: their rows, or the elements of a vector. `name` then stands for all of them. Empty: this is one
    // tensor in files, too.
    struct Part { std::string name; size_t count; };
    std::vector<Part> parts = {};
    bool repeated = false;  // each part is a copy of the whole tensor
    Rates rates = {};
};
constexpr float kOnes = -1;
std::vector<TensorSpec::Part> parts_of(const TensorSpec& spec);     // its parts, or itself as the only part
size_t count_parameters(const std::vector<TensorSpec>& table);      // without padding rows; a tied head once

struct Arena {
    std::vector<TensorSpec> tensors;
    std::vector<size_t> offset;         // of each tensor, in elements; a multiple of kUnit
    size_t n = 0;                       // elements in all, a multiple of kUnit
};
// An array of arena.n floats in the arena's order. In a file its tensors are called TENSOR.NAME, or TENSOR if name is
// ""; they have no padding rows, and they are cut into parts or transposed if the arena's table says so.
// own: the array's arena, if it is not that of the weights.
struct NamedArray {
    std::string name;
    float* data;
    const Arena* own = nullptr;
    const Arena& arena(const Arena& weights) const { return own ? *own : weights; }
};
Arena arena_layout(std::vector<TensorSpec> tensors);
const TensorSpec& tensor_at(const Arena& arena, size_t element);       // the tensor that the element is part of
std::vector<Rates> arena_rates(const Arena& arena);         // of each unit, for kernels: decay is a factor

// Writes the first weights, arena.n floats in host memory: zero, one, or normal with the table's standard deviation.
// Element i of tensor t depends on (seed, t, i) alone.
void arena_init(float* weights, const Arena& arena, uint64_t seed);

// Places arrays one after another in one allocation. The same calls are made twice: to count the bytes that all arrays
// need, and then, with `memory` set, to point each array into it.
struct Layout {
    char* memory = nullptr;         // null: only counts bytes
    size_t bytes = 0;               // used so far
    template <class T> void operator()(T*& array, size_t n) {
        if (memory) array = reinterpret_cast<T*>(memory + bytes);
        bytes += (n * sizeof(T) + 255) / 256 * 256;
    }
};
