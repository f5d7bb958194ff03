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
    const auto uses = [k = &array - info.state.data()](int arrays) { return k < arrays; };
    std::vector<TensorSpec> table = weights.tensors;
    for (TensorSpec& t : table) {
        const bool whole = info.whole && info.whole(t);
        const auto stages = whole ? info.stages.subspan(1) : info.stages.first(1);
        const Per per = whole ? array.matrix : Per::none;
        if (per == Per::element || array.from_weights || std::ranges::any_of(stages, uses))
            continue;
        t.transposed = false;
        if (per == Per::row) t.cols = 1;
        else t.rows = t.file_rows = per == Per::column;
        if (per != Per::row || !t.matrix) t.parts.clear();
    }
    return arena_layout(std::move(table));
}
