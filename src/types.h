// types.h -- the types that all backends share. No functions here: an inline function that depended on a backend's
// storage type would be merged with another backend's copy by the linker.
#pragma once
#include <cstddef>
#include <cstdint>

struct bf16 { uint16_t bits; };          // storage only; kernels widen it to float when they load it
using Stream = struct StreamTag*;        // an in-order queue of work: a cudaStream_t on a GPU, a worker thread on a CPU; null = the main one

// The gradient arena, the weights and the moments are cut only at units of this many elements, so that no element's arithmetic depends on where
// a rank's or a thread's part begins.
constexpr size_t kUnit = 4096;

// What a GPU's kernels take at most: of LayerNorm, whose block has a row in registers, and of fold.
constexpr int kGpuChannels = 8192, kGpuTerms = 64;

// What changes from step to step, in memory that kernels read: a captured CUDA graph then needs no new arguments.
struct StepState {
    uint64_t seed;
    uint32_t step;
    float lr;               // of this step
    float grad_scale;       // 1 / tokens of the step, times the clip factor
    float bias1, bias2;     // 1 - beta1^(step+1), 1 - beta2^(step+1)
    float norm_limit = 0;   // a gradient with a larger norm is skipped; 0: any is taken
};

// Counter-based dropout: element i of site `purpose` is kept if uniform01(random4({seed, purpose, step, leaf}, i/4).v[i%4]) >= rate,
// and kept values are divided by 1 - rate. Masks are never stored: backward asks for the same numbers again.
struct Dropout {
    float rate;             // 0 = none
    uint32_t purpose;       // RandomPurpose
    uint32_t leaf;          // number of the micro-batch within the step
    const StepState* state; // seed and step
};

struct AdamW { float beta1, beta2, eps, weight_decay; };

// How fold adds its terms: by halves, each standing for as many lanes; or from the back, each for as many as all behind it together.
enum class Tree { kHalves, kStack };

// A check of AdamW's state between two updates, per unit of the arena: the sum of the bits of master, m and v. Null: none.
struct StateSums {
    uint32_t* sums = nullptr;       // (units)
    uint32_t* changed = nullptr;    // (1)  a unit that was not as the last update left it, plus 1
};
