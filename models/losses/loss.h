// loss.h -- a loss declares once, here, what training minimises. Options, models and --dry-run read
// these declarations. Evaluation and samples do not: a score is the cross entropy of any run.
//
// A loss is NAME.h and a line in models/losses/list. NAME.h has NAME_info, a LossInfo, and in
// namespace BACKEND (within #ifdef BACKEND) NAME_rule, a LossRule. One without a form for GPUs is
// `inline LossRule* const NAME_rule = kOnGpu ? nullptr : loop`. A long one goes into NAME.cpp
// beside it, which includes this file and not NAME.h. For GPUs nvcc compiles it if it includes
// kernels/elements.h, too.
#pragma once
#include <string>
#include <vector>
#include "src/base/words.h"

struct LossInfo {
    const char *name, *help;            // as --loss has it; what --help says behind it
    std::vector<Hyper> hyper = {};      // its options
    size_t memory = 0;                  // floats that the rule keeps for each row of logits
};

inline const LossInfo cross_entropy_info = {"cross-entropy", "-log p of the next token"};

#ifdef BACKEND
#include "models/model.h"
namespace BACKEND {

// A rule writes the losses and the gradients of their sum: `backward` and `losses` are set. Each
// row must depend on its own logits and target alone.
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

// Returns the place in kLosses of a name that --loss accepts.
inline size_t loss_row(const std::string& name) { return &find_row(kLosses, name) - kLosses; }
