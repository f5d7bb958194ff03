// optimizer.h -- what an optimizer declares once. Options, kernels, ddp and checkpoints read it
// from here.
//
// An optimizer is NAME.h and a line in optimizers/list. NAME.h has NAME_info, an OptimizerInfo, and
// struct NAME_rule:
//
//     static constexpr StateSpec kArrays[]    the arrays of its state, any number
//     static constexpr int kState[]           [stage]: how many of them it reads and writes, from
//                                             the first
//     RULE void element(int stage, float& w, float* state, float grad, const Rates& rates,
//                       const StepState& step)
//
// Stage 0 updates one weight. grad is a sum over the step's tokens; grad * step.grad_scale is the
// clipped mean. A backend inlines the rule into its own loop (kernels.h, update), so bits cannot
// depend on where a slice or a thread's part begins.
//
// An optimizer can also have a rule for whole matrices: NAME_matrix, in NAME.cpp and namespace
// BACKEND. It calls operations of kernels.h, and the stages after stage 0 are its elementwise
// parts. kernels/elements.h helps to write an operation that kernels.h lacks, once for CPUs and
// GPUs. An optimizer without such a rule has inline constexpr auto NAME_matrix = nullptr.
#pragma once
#include <cmath>
#include <span>
#include "src/base/arena.h"
#include "src/base/common.h"
#include "src/base/numbers.h"

#ifdef __CUDACC__
#define RULE static __host__ __device__ inline
#else
#define RULE static inline __attribute__((always_inline))
#endif

// A state array. A tensor has it, with one number per element, if a stage of its rule uses it: stage
// 0 is the elementwise rule's, all others are the matrix rule's.
enum class Per { none, element, row, column };
struct StateSpec {
    const char* name;               // in optim.safetensors: "TENSOR.exp_avg"
    // What tensors of the matrix rule have if none of its stages uses the array.
    Per matrix = Per::none;
    // It starts as a copy of the weights, so all tensors have it. Other arrays start as zeros.
    bool from_weights = false;
};

// The row of one optimizer, with all its stages, in a table of functions f<RULE, STAGE>. Use it in
// the X of OPTIMIZERS(X), which is X(adamw) X(sgd) X(muon) (build/optimizers.h).
#define OPTIMIZER_STAGES(f, name) \
    {f<name##_rule, 0>, f<name##_rule, 1>, f<name##_rule, 2>, f<name##_rule, 3>}
constexpr int kMaxStages = 4;

// kernels/cpu compiles this file once per instruction set, with ISA defined, and needs only the
// rules. Inline functions that other files share must not be defined then: the linker would keep
// one copy, for one instruction set.
#ifndef ISA
#include "src/base/words.h"

struct OptimizerInfo {
    const char* name;                   // the value of --optimizer, and the line in optimizers/list
    std::span<const StateSpec> state;   // kArrays of its rule
    std::span<const int> stages;        // kState of its rule
    std::vector<Hyper> hyper;
    // Sets step->values, which the rule reads, from the values of `hyper`. update: number of the
    // update, from 1. schedule: this step's learning rate as a fraction of --lr. sums: numbers that
    // prepare keeps from step to step.
    void (*prepare)(StepState* step, const double* hyper, int64_t update, double schedule,
                    double* sums);
    // Multiplies the default --lr, because presets and --init have rates for AdamW.
    double lr_factor = 1;
    // Returns whether the matrix rule updates the tensor, whole, on one rank.
    bool (*whole)(const TensorSpec& tensor) = nullptr;
    // Length of prepare's `sums`. They start as 0, and state.json has them.
    int sums = 0;
    // The stage that exchanges the weights and state array 0; 0: none. It is for optimizers whose
    // result is array 0, as an average is: evaluation, samples and model.safetensors use array 0,
    // and optim.safetensors has the weights.
    int exchange = 0;
};

// In the order of optimizers/list.
const std::vector<const OptimizerInfo*>& all_optimizers();
// Returns the optimizer's index in that order; -1: there is none.
int find_optimizer(const std::string& name);
// Returns where the tensors of a state array, one of info.state, lie. weights: the arena of the
// trained tensors.
Arena state_layout(const OptimizerInfo& info, const StateSpec& array, const Arena& weights);

#ifdef BACKEND
#include "kernels/kernels.h"
namespace BACKEND {

// The arguments of a matrix rule: those of update(), for one tensor, with state arrays as StateSpec
// says; those that the tensor does not have are null.
struct MatrixUpdate : Update {
    int optimizer;
    const TensorSpec& tensor;           // its padding rows are zeros
    void* work;                         // scratch memory of as many bytes as the rule returns
};
// Updates the matrix and returns the bytes that `work` needs. If u.work is null, it only returns
// them.
using MatrixRule = size_t(const MatrixUpdate& u, Stream stream);

}  // namespace BACKEND
#endif
#endif
