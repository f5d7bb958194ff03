// optimizers.cpp -- the list of optimizers. ./configure writes build/optimizers.h from optimizers/list: OPTIMIZERS(X)
// is X(adamw) X(sgd) ...
#include "build/optimizers.h"

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
