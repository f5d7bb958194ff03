// ordered.h -- the default: one fixed tree (ddp.h) adds the replicas, with the same bits on any number of ranks.
#pragma once
#include "src/ddp/reductions/reduction.h"

inline const ReductionInfo ordered_info = {.name = "ordered", .help = "in one fixed tree", .on_gpus = true};

#ifdef BACKEND
namespace BACKEND { inline constexpr ReductionRule ordered_rule = {}; }
#endif
