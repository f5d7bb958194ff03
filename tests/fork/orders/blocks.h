// blocks.h -- an order of a fork: --block samples that follow one another in the data stay together, and each epoch is
// a permutation of these blocks. What remains behind the last block comes at the end of an epoch.
#pragma once
#include "src/data/orders/order.h"

inline uint64_t blocks_sample(const Sampler& run, uint64_t c) {
    if (run.weights.size() > 1)
        die(kExitUsage, "--sampler blocks: got %zu sources in --data, want one", run.weights.size());
    const uint64_t n = run.first.back(), block = uint64_t(run.hyper.at("block"));
    const uint64_t i = c % n, blocks = n / block;
    return i < blocks * block ? permute(i / block, blocks, run.seed, c / n) * block + i % block : i;
}

inline const OrderInfo blocks_info = {
    "blocks", "--block samples stay together", blocks_sample,
    {{"block", 4, {"from 1 to 1000000", 1, 1000000}, "", "samples that stay together"}}};
