// nccl.h -- the tree adds replicas inside a rank, and NCCL adds the ranks' sums (transport_gpu.cpp); for comparison.
#pragma once
#include "src/ddp/reductions/reduction.h"

inline const ReductionInfo nccl_info = {
    .name = "nccl",
    .help = "in the library's order; bits then depend on the ranks",
    .on_cpus = false,
    .on_gpus = true,
    .by_library = true,
};

#ifdef BACKEND
namespace BACKEND { inline constexpr ReductionRule nccl_rule = {}; }
#endif
