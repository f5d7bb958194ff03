// arena.h -- one flat array for all tensors: where each lies, and how it is cut.
//
// Every tensor starts at a unit (kUnit elements) and is padded to whole units; the padding is zero and stays zero. The same
// offsets serve weights, gradients, masters and moments, so that a slice of one is the same slice of all.
// The order is the table's, which is the order backward finishes them in, reversed: the table's last tensor is ready first.
#pragma once
#include <string>
#include <vector>
#include "types.h"

// One parameter tensor of a model. src/ knows tensors only as these.
struct TensorSpec {
    std::string name;       // as in the checkpoint: "transformer.h.0.attn.c_attn.weight"
    size_t rows, cols;      // in memory, padding rows included; a vector is 1 x cols
    size_t file_rows;       // rows that belong to the file and count as parameters (wte: V of Vp)
    bool transposed;        // the file holds it as (cols, file_rows): Hugging Face's Conv1D
    float init_std;         // 0 = zeros, kOnes = ones
    bool decay;             // AdamW decays tensors of two or more dimensions
};
constexpr float kOnes = -1;

struct Arena {
    std::vector<TensorSpec> tensors;
    std::vector<size_t> offset;         // of each tensor, in elements; a multiple of kUnit
    size_t n = 0;                       // elements in all, a multiple of kUnit
    std::vector<uint8_t> decay;         // per unit
};

Arena arena_layout(std::vector<TensorSpec> tensors);

// The first weights, into host memory of arena.n floats: element i of tensor t is a function of (seed, t, i) alone. Normal with the
// table's standard deviation, zeros or ones; padding stays zero.
void arena_init(float* weights, const Arena& arena, uint64_t seed);

// The sum (mod 2^32) of the bits of one unit's master, m and v: any one flipped bit changes it.
uint32_t state_sum(const float* master, const float* m, const float* v);
size_t tensor_at(const Arena& arena, size_t element);       // number of the tensor whose units hold this element
