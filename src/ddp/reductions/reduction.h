// reduction.h -- what a reduction declares once: how the gradients of replicas meet. Options, ddp, checkpoints and
// --dry-run read it from here.
//
// A reduction is NAME.h and a line in src/ddp/reductions/list. NAME.h has NAME_info, a ReductionInfo, and in namespace
// BACKEND NAME_rule, a ReductionRule: what it does otherwise than the tree. Long functions go into NAME.cpp beside it.
//
// A rule may change the gradient of a replica, before it enters the tree, and nothing where ranks meet: a rank has more
// or fewer replicas in another start of the same run, a replica is always the same. The audit finds a sum that breaks
// this. What a rule itself makes depend on ranks or on the start, such as a static variable, only a comparison finds:
// tests/scripts/test_lists.sh trains every reduction of the list on 1, 2 and 4 ranks, and resumes.
#pragma once
#include <string>
#include <vector>
#include "optimizers/optimizer.h"

struct ReductionInfo {
    const char* name;                   // of --reduce and of the list
    const char* help;                   // of --reduce, behind the name
    bool on_cpus = true, on_gpus = false, in_bf16 = true;       // where it runs; elsewhere it is refused
    bool by_library = false;            // the transport's library adds, in its own order: bits depend on the ranks
    std::vector<Hyper> hyper = {};      // its options; values: ddp->settings.hyper.at("name"), by ddp.h
    // Arrays of n floats that each replica has, zeros at first. A checkpoint has them as "TENSOR.NAME.replica3", so
    // that a run goes on with any number of ranks. On CPUs only.
    std::vector<const char*> state = {};
    // Replicas update weights of their own, the first array of `state`, in every step; the arrays of the optimizer
    // follow it. Those that an update has when replicas meet are meeting_state.
    bool local_steps = false;
    std::vector<const char*> meeting_state = {};
};

const std::vector<const ReductionInfo*>& all_reductions();      // in the order of src/ddp/reductions/list
const ReductionInfo& find_reduction(const std::string& name);   // of a name that --reduce accepts

#ifdef BACKEND
#include "src/ddp/transport.h"
namespace BACKEND {

struct Ddp;

// The gradient of one replica, complete: a sum over the tokens of its micro-batches.
struct ReplicaGradient {
    int replica;                        // its number in the run
    float* grads;                       // (n)  to be changed in place; padding must stay zero
    Range range;                        // of grads and of each array: all of it
    float* const* state;                // this replica's arrays, in the order of ReductionInfo::state
    const StepState* step;              // seed, step, tokens; where kernels can read it
    Ddp* ddp;
};

struct ReductionRule {
    // Called once per step and replica, in the order of a rank's replicas. What it writes must depend on the arguments
    // alone. Null: gradients enter the tree as they are. With one, reductions do not begin during backward.
    void (*on_replica)(const ReplicaGradient& gradient) = nullptr;
    // For rules with local_steps. One that is null does nothing.
    void (*create)(Ddp* ddp) = nullptr;                 // fills Ddp::replicas
    void (*begin)(Ddp* ddp, int64_t step) = nullptr;    // sets Ddp::meets
    void (*update)(Ddp* ddp) = nullptr;                 // when they meet, in place of the optimizer: this rank's slices
    void (*gathered)(Ddp* ddp) = nullptr;               // when all ranks have the weights of a meeting
};

}  // namespace BACKEND
#endif
