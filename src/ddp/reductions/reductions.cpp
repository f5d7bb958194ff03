// reductions.cpp -- the list of reductions. ./configure writes build/reductions.h from src/ddp/reductions/list:
// REDUCTIONS(X) is X(ordered) X(nccl) ...
#include "build/reductions.h"

const std::vector<const ReductionInfo*>& all_reductions() {
#define X(name) &name##_info,
    static const std::vector<const ReductionInfo*> reductions = {REDUCTIONS(X)};
#undef X
    return reductions;
}

const ReductionInfo& find_reduction(const std::string& name) {
    for (const ReductionInfo* reduction : all_reductions())
        if (name == reduction->name) return *reduction;
    die(kExitOther, "internal error: no reduction %s", name.c_str());
}
