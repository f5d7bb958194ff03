// optimizer.h -- what an optimizer declares once. Options, kernels, ddp and checkpoints read it from here.
//
// An optimizer is NAME.h and a line in optimizers/list. NAME.h has NAME_info, an OptimizerInfo, and struct NAME_rule:
//
//     static constexpr StateSpec kArrays[]    its state: any number of arrays
//     static constexpr int kState[]           how many of them, from the first, each stage reads and writes
//     RULE void element(int stage, float& w, float* state, float grad, const Rates& rates, const StepState& step)
//
// Stage 0 updates one weight. grad is a sum over the step's tokens; grad * step.grad_scale is the clipped mean. A
// backend inlines the rule into its own loop (kernels.h, update), so bits cannot depend on where a slice or a thread's
// part begins.
//
// An optimizer can also have a rule for whole matrices: NAME_matrix, in NAME.cpp and namespace BACKEND, which calls
// operations of kernels.h. Its elementwise parts are the stages after stage 0. What kernels.h does not have is written
// once for CPUs and GPUs with kernels/elements.h: NAME_host.cpp, and NAME.cu that includes it. An optimizer without
// such a rule has inline constexpr auto NAME_matrix = nullptr.
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

// A state array. Tensors of the elementwise rule have a number per element in it.
enum class Per { element, row, column, none };
struct StateSpec {
    const char* name;                                           // in optim.safetensors: "TENSOR.exp_avg"
    Per matrix = Per::element, vector = Per::element;           // of tensors with the matrix rule; a vector has one row
    bool from_weights = false;                                  // it starts as a copy of the weights; false: as zeros
};

// One row of a table of functions f<RULE, STAGE>: all stages of one optimizer. It stands in X of OPTIMIZERS(X), which
// is X(adamw) X(sgd) X(muon) (build/optimizers.h).
#define OPTIMIZER_STAGES(f, name) {f<name##_rule, 0>, f<name##_rule, 1>, f<name##_rule, 2>, f<name##_rule, 3>}
constexpr int kMaxStages = 4;

// kernels/cpu compiles this file once per instruction set, with ISA defined: it needs the rules only, and must not
// define inline functions that other files share.
#ifndef ISA

// A hyperparameter: an option, its default, and what other trainers call it, for "did you mean". tuning: its default
// with --init; 0: the same.
struct Hyper { const char* option; double value; Limits limits; const char *elsewhere, *help; double tuning = 0; };

struct OptimizerInfo {
    const char* name;                   // of --optimizer and optimizers/list
    std::span<const StateSpec> state;   // its rule's kArrays
    std::vector<Hyper> hyper;
    // Sets step->values, which the rule reads, from the values of `hyper` for update number `update` (from 1).
    // schedule: this step's learning rate as a fraction of --lr. sums: numbers that it keeps from step to step.
    void (*prepare)(StepState* step, const double* hyper, int64_t update, double schedule, double* sums);
    double lr_factor = 1;               // multiplies the default --lr, which presets and --init state for AdamW
    bool (*whole)(const TensorSpec& tensor) = nullptr;  // whether the matrix rule updates it, whole and on one rank
    int sums = 0;                       // how many; they start as 0, and state.json has them
    // The stage that exchanges the weights and array 0, if array 0 is what a user gets, as an average is: evaluation,
    // samples and model.safetensors have array 0, and optim.safetensors has the weights by its name. 0: none.
    int exchange = 0;
};

const std::vector<const OptimizerInfo*>& all_optimizers();      // in the order of optimizers/list
int find_optimizer(const std::string& name);                    // its place in that order; -1: there is none
// Where the tensors of a state array lie.
Arena state_layout(const OptimizerInfo& info, const StateSpec& array, const Arena& weights);

#ifdef BACKEND
#include "kernels/kernels.h"
namespace BACKEND {

// A matrix (rows, cols), what update() takes for it, and scratch memory. State arrays are as long as StateSpec says.
struct MatrixUpdate : Update {
    int optimizer;
    size_t rows, cols, file_rows;       // file_rows: without padding rows, which are zeros
    void* work;
};
// Updates the matrix, and returns how many bytes `work` needs. With work = null it only returns them.
using MatrixRule = size_t(const MatrixUpdate& u, Stream stream);

}  // namespace BACKEND
#endif
#endif
