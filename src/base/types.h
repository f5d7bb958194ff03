// types.h -- the types that all backends share. No functions here: the linker would merge an inline function that
// depends on a backend's storage type with another backend's.
#pragma once
#include <cstddef>
#include <cstdint>

struct bf16 { uint16_t bits; };          // storage only; kernels widen it to float when they load it
using Stream = struct StreamTag*;        // a cudaStream_t on a GPU, a worker thread on a CPU; null: the main stream

// Gradients, weights and optimizer state are cut only at units of this many elements, so that no element's arithmetic
// depends on where a rank's or a thread's part begins.
constexpr size_t kUnit = 4096;

// What a GPU's kernels take at most: of LayerNorm, whose block has a row in registers, and of tree_reduce.
constexpr int kGpuChannels = 8192, kGpuTerms = 64;

// What changes from step to step, in memory that kernels read: a captured CUDA graph then needs no new arguments.
struct StepState {
    uint64_t seed;
    uint32_t step;
    float lr;
    float grad_scale;       // 1 / tokens of the step, times the clip factor
    float values[16] = {};  // of the optimizer: see its prepare()
    double tokens = 0;      // that the step is trained on
};

// Counter-based dropout: element i of site `purpose` is kept if
// uniform01(random4({seed, purpose, step, micro_batch}, i / 4).v[i % 4]) >= rate: multiplied by 1.0f / (1.0f - rate),
// rounded, else by 0. Backward asks for the same numbers again.
struct Dropout {
    float rate;             // 0 = none
    uint32_t purpose;       // RandomPurpose
    uint32_t micro_batch;   // its number within the step
    const StepState* state; // seed and step
};

// How terms are added: kHalves, a balanced tree of equal terms; kStack, terms[0] + (terms[1] + (...)), as
// ddp.cpp needs it inside a rank, where a term holds as many replicas as all behind it together.
enum class Tree { kHalves, kStack };
