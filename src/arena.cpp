#include "arena.h"
#include "common.h"

Arena arena_layout(std::vector<TensorSpec> tensors) {
    Arena arena;
    arena.tensors = std::move(tensors);
    for (const TensorSpec& t : arena.tensors) {
        arena.offset.push_back(arena.n);
        const size_t units = ceil_div(t.rows * t.cols, kUnit);
        arena.decay.insert(arena.decay.end(), units, uint8_t(t.decay));
        arena.n += units * kUnit;
    }
    return arena;
}
