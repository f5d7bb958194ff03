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

// Limits of the GPU kernels: channels in LayerNorm, where a block keeps a row in registers, and terms in tree_reduce.
constexpr int kGpuChannels = 8192, kGpuTerms = 64;

// The values that change from step to step. Kernels read them from memory, so a captured CUDA graph needs no new
// arguments.
struct StepState {
    uint64_t seed;
    uint32_t step;
    float lr;
    float grad_scale;       // 1 / tokens of the step, times the clip factor
    float values[16] = {};  // of the optimizer, set by its prepare()
    double tokens = 0;      // tokens that the step trains on
};

// Counter-based dropout. Element i of site `purpose` is kept if
// uniform01(random4({seed, purpose, step, micro_batch}, i / 4).v[i % 4]) >= rate. A kept element is multiplied by
// 1.0f / (1.0f - rate) and rounded, any other by 0. Backward computes the same random numbers again.
struct Dropout {
    float rate;             // 0 = none
    uint32_t purpose;       // RandomPurpose
    uint32_t micro_batch;   // its number within the step
    const StepState* state; // seed and step
};

// The order in which terms are added. kHalves: a balanced binary tree, for terms that are sums over equally many
// replicas. kStack: terms[0] + (terms[1] + (...)), which ddp.cpp uses inside a rank, where a term is a sum over as many
// replicas as all terms after it together.
enum class Tree { kHalves, kStack };
