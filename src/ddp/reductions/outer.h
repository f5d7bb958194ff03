// outer.h -- DiLoCo (Douillard et al. 2023, arXiv 2311.08105): replicas take --local-steps steps each, and then meet.
//
//     in each step, replica r   w_r, state_r = optimizer(w_r, state_r, g_r)    g_r: its gradient, clipped by its norm
//     when replicas meet        d = mean over r of (w - w_r)                   in ddp's tree
//                               m = momentum m + d;   w = w - lr (d + momentum m);   w_r = w
//
// They meet after every --local-steps steps and after the last step. Only then do ranks exchange differences and
// weights; they exchange losses in every step. g_r is divided by the step's tokens / R, so a meeting with lr 1 and
// momentum 0 after each step of sgd is, except for rounding, a step of --reduce ordered. A replica keeps its own
// moments: they are never averaged. Forward and backward of replica r use w_r; all else uses w, of the last meeting.
#pragma once
#include "src/ddp/reductions/reduction.h"

inline const ReductionInfo outer_info = {
    .name = "outer",
    .help = "seldom, replicas take steps of their own (DiLoCo)",
    .in_bf16 = false,
    .hyper = {
        {"local-steps", 500, {"from 1 to 1000000", 1, 1e6}, "sync-every", "of each replica between two meetings"},
        {"meeting-lr", 0.7, kPositive, "outer-lr", "learning rate of the step that replicas take when they meet"},
        {"meeting-momentum", 0.9, kBelowOne, "outer-momentum", "its momentum, as Nesterov's"},
    },
    .state = {"weights"},
    .local_steps = true,
    .meeting_state = {"meeting_momentum"},
};

#ifdef BACKEND
namespace BACKEND {

void outer_create(Ddp* ddp);
void outer_begin(Ddp* ddp, int64_t step);
void outer_on_replica(const ReplicaGradient& gradient);
void outer_update(Ddp* ddp);
void outer_gathered(Ddp* ddp);

inline constexpr ReductionRule outer_rule = {outer_on_replica, outer_create, outer_begin, outer_update, outer_gathered};

}  // namespace BACKEND
#endif
