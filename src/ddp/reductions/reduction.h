// reduction.h -- a reduction declares once, here, how the gradients of replicas are combined.
// Options, ddp, checkpoints and --dry-run read these declarations.
//
// A reduction is NAME.h and a line in src/ddp/reductions/list. NAME.h has NAME_info, a
// ReductionInfo, and in namespace BACKEND NAME_rule, a ReductionRule: functions that change what
// the tree does. Long ones go into NAME.cpp beside it. The two that this file has itself,
// ordered and nccl, change nothing.
//
// A rule may change the gradient of a replica before it enters the tree. It must not change the
// sums across ranks: the next start of a run may have another number of replicas per rank, but it
// has the same replicas. The audit finds a sum that breaks this. If the rule itself depends on
// ranks or on the start, by a static variable for example, only a comparison finds it:
// tests/scripts/test_lists.sh trains every reduction on 1, 2 and 4 ranks, and resumes.
#pragma once
#include <string>
#include <vector>
#include "optimizers/optimizer.h"

struct ReductionInfo {
    const char* name;                   // as --reduce and the list have it
    const char* help;                   // what --help says behind the name
    bool on_cpus = true, on_gpus = false;   // where it runs; elsewhere it is refused
    bool by_library = false;            // the transport's library adds, in its own order: bits
                                        // depend on the ranks
    std::vector<Hyper> hyper = {};      // its options; a value is ddp->hyper.at("name") (ddp.h)
    // Arrays of n floats that each replica has, zeros at first. A checkpoint has them as
    // "TENSOR.NAME.replica3", so that a run goes on with any number of ranks. On CPUs only.
    std::vector<const char*> state = {};
};

// The default: one fixed tree (ddp.h) adds the replicas, with the same bits on any number of ranks.
inline const ReductionInfo ordered_info = {
    .name = "ordered", .help = "in one fixed tree", .on_gpus = true};

// For comparison: the tree adds replicas inside a rank, and NCCL adds the ranks' sums
// (transport_gpu.cpp).
inline const ReductionInfo nccl_info = {
    .name = "nccl",
    .help = "in the library's order; bits then depend on the ranks",
    .on_cpus = false,
    .on_gpus = true,
    .by_library = true,
};

#ifdef BACKEND
#include "src/ddp/ddp.h"
namespace BACKEND {

// The complete gradient of one replica: a sum over the tokens of its micro-batches.
struct ReplicaGradient {
    int replica;                        // its number in the run
    float* grads;                       // (n)  the rule changes it in place; padding must stay zero
    Range range;                        // all elements of grads and of each array: [0, n)
    float* const* state;                // this replica's arrays, in the order of
                                        // ReductionInfo::state
    const StepState* step;              // has seed, step and tokens, in memory that
                                        // kernels can read
    Ddp* ddp;
};

struct ReductionRule {
    // Called once per step and replica, in the order of a rank's replicas. What it writes must
    // depend on the arguments alone. Null: gradients enter the tree unchanged. If it is set,
    // reductions do not overlap with backward.
    void (*on_replica)(const ReplicaGradient& gradient) = nullptr;
};

inline constexpr ReductionRule ordered_rule = {}, nccl_rule = {};

}  // namespace BACKEND
#endif

// The files of the list, and REDUCTIONS(X), which is X(ordered) X(nccl).
#include "build/reductions.h"

// In the order of src/ddp/reductions/list.
#define X(name) name##_info,
inline const ReductionInfo kReductions[] = {REDUCTIONS(X)};
#undef X
