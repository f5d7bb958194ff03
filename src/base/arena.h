// arena.h -- the arena: one flat array that holds all tensors of a model, and the offset of each
// tensor in it.
//
// Every tensor starts at a unit (kUnit elements) and is padded to whole units with zeros, which
// stay zero. Weights, gradients and all state with one number per weight have the same offsets: a
// slice covers the same elements in them. Tensors lie in the order of the model's table; backward
// finishes their gradients from the last to the first.
#pragma once
#include <string>
#include <vector>
#include "src/base/numbers.h"

// One parameter tensor of a model: all that src/ knows about it.
struct TensorSpec {
    std::string name;       // as in the checkpoint: "transformer.h.0.attn.c_attn.weight"
    // The shape in memory, with padding rows. A vector is 1 x cols. 0 rows: files do not have it.
    size_t rows, cols;
    // The number of rows without padding. Files have these, and they count as parameters (wte: V).
    size_t file_rows;
    bool transposed;        // files store it as (cols, file_rows), as Hugging Face's Conv1D does
    // The standard deviation of the initial weights. 0: all are zero; kOnes: all are one.
    float init_std;
    bool matrix;            // it has two dimensions in files; else it is a vector
    // It is an embedding table or a head, not a linear map between hidden states.
    bool at_ends = false;
    // The tensors that files have in place of this one, such as q, k and v. They lie one after
    // another in its memory. count: the number of rows of a part, or of elements if it is a vector.
    // `name` then stands for all parts. Empty: files have one tensor, too.
    struct Part { std::string name; size_t count; };
    std::vector<Part> parts = {};
    bool repeated = false;  // each part is a copy of the whole tensor
    Rates rates = {};
    // How many matrices of one size lie one below the other in what files have as one tensor: 3 in
    // GPT-2's c_attn. With parts each part is a matrix.
    size_t stacked = 1;
};
constexpr float kOnes = -1;
// Returns its parts, or itself as the only part.
std::vector<TensorSpec::Part> parts_of(const TensorSpec& spec);
// Returns the matrices that lie one below the other in this tensor's memory.
std::vector<TensorSpec::Part> matrices_of(const TensorSpec& spec);
// Does not count padding rows, and counts a tied head once.
size_t count_parameters(const std::vector<TensorSpec>& table);

struct Arena {
    std::vector<TensorSpec> tensors;
    std::vector<size_t> offset;         // of each tensor, in elements, a multiple of kUnit; n at the end
    size_t n = 0;                       // number of elements of all tensors, a multiple of kUnit
};
// An array of arena.n floats in the arena's order. In a file its tensors are called TENSOR.NAME, or
// TENSOR if name is ""; they have no padding rows, and they are cut into parts or transposed if the
// arena's table says so. own: the array's arena; null: the array has the arena of the weights.
struct NamedArray {
    std::string name;
    float* data;
    const Arena* own = nullptr;
    const Arena& arena(const Arena& weights) const { return own ? *own : weights; }
};
Arena arena_layout(std::vector<TensorSpec> tensors);
// Returns the tensor that the element is part of.
const TensorSpec& tensor_at(const Arena& arena, size_t element);
// Returns the rates of each unit (n / kUnit), for kernels. decay is a factor, not kByShape.
std::vector<Rates> arena_rates(const Arena& arena);

// Writes the initial weights, arena.n floats in host memory: zeros, ones, or normal numbers with
// the table's standard deviation. Element i of tensor t depends on (seed, t, i) alone.
void arena_init(float* weights, const Arena& arena, uint64_t seed);

// Places arrays one after another in one allocation. The caller makes the same calls twice: first
// to count the bytes that all arrays need, and then, with `memory` set, to point each array into
// it. n: number of elements.
struct Layout {
    char* memory = nullptr;         // null: only counts bytes
    size_t bytes = 0;               // used so far
    template <class T> void operator()(T*& array, size_t n) {
        if (memory) array = reinterpret_cast<T*>(memory + bytes);
        bytes += (n * sizeof(T) + 255) / 256 * 256;
    }
};
