// loss.h -- a loss declares once, here, what training minimises. Options, models and --dry-run read
// these declarations. Evaluation and samples do not: a score is the cross entropy of any run.
//
// A loss is NAME.h and a line in models/losses/list. NAME.h has NAME_info, a LossInfo, and in
// namespace BACKEND NAME_rule, a LossRule. A long one goes into NAME.cpp beside it, which includes
// this file alone. For GPUs nvcc compiles it if it includes kernels/elements.h, too.
#pragma once
#include <string>
#include <vector>
#include "src/base/words.h"

struct LossInfo {
    const char *name, *help;            // as --loss has it; what --help says behind it
    bool on_gpus = false;               // else a GPU is refused
    std::vector<Hyper> hyper = {};      // its options
    size_t memory = 0;                  // floats that the rule keeps for each row of logits
};

inline const LossInfo cross_entropy_info = {
    .name = "cross-entropy", .help = "-log p of the next token", .on_gpus = true};

// The loss of a run, with the values of its options.
struct ChosenLoss {
    const LossInfo* info = &cross_entropy_info;
    std::vector<double> hyper = {};
};

#ifdef BACKEND
#include "kernels/kernels.h"
namespace BACKEND {

// Rows of logits, and what is wanted of them.
struct LossRows {
    floatX* logits;             // (n,Vp)
    float* losses;              // (n)      null: none are wanted, as in generation
    const int* targets;         // (n)      in 0..V-1, or -1 for a row whose loss and gradient are 0
    int n, V, Vp;
    bool backward;              // the logits become their gradient, 0 in columns V..Vp-1
    float* memory;              // (LossInfo::memory,n)
    const double* hyper;        // in the order of LossInfo::hyper
};
// A rule writes the losses and the gradients of their sum. `backward` is always set. Each row must
// depend on its own logits and target alone.
using LossRule = void(const LossRows& rows);

inline void cross_entropy_rule(const LossRows& r) {
    classifier(r.losses, r.logits, r.targets, r.n, r.V, r.Vp, r.backward);
}

}  // namespace BACKEND
#endif

// The files of the list, and LOSSES(X), which is X(cross_entropy) X(z_loss).
#include "build/losses.h"

// In the order of models/losses/list.
#define X(name) name##_info,
inline const LossInfo kLosses[] = {LOSSES(X)};
#undef X
