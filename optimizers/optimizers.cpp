// optimizers.cpp -- the list of optimizers. ./configure writes build/optimizers.h from
// optimizers/list. In it OPTIMIZERS(X) is X(adamw) X(sgd) ...
#include "build/optimizers.h"
#include <algorithm>

// A stage must not use more arrays than kArrays declares. The matrix rule itself may use arrays
// that no stage uses.
#define X(name)                                                                                    \
    static_assert(std::ranges::max(name##_rule::kState) <= int(std::size(name##_rule::kArrays)), \
                  "optimizers/" #name ".h: kState uses more arrays than kArrays names");
OPTIMIZERS(X)
#undef X

const std::vector<const OptimizerInfo*>& all_optimizers() {
#define X(name) &name##_info,
    static const std::vector<const OptimizerInfo*> optimizers = {OPTIMIZERS(X)};
#undef X
    return optimizers;
}

int find_optimizer(const std::string& name) {
    for (size_t i = 0; i < all_optimizers().size(); i++)
        if (name == all_optimizers()[i]->name) return int(i);
    return -1;
}

Arena state_layout(const OptimizerInfo& info, const StateSpec& array, const Arena& weights) {
    std::vector<TensorSpec> table = weights.tensors;
    for (TensorSpec& t : table) {
        const Per per = t.rows > 1 ? array.matrix : array.vector;
        if (per == Per::element || !info.whole || !info.whole(t)) continue;
        t.transposed = false;
        if (per == Per::row) t.cols = 1;
        else t.parts.clear();
        if (per == Per::column) t.rows = t.file_rows = 1;
        if (per == Per::none) t.rows = t.file_rows = 0;
    }
    return arena_layout(std::move(table));
}
