// loader.cpp -- prepares batches while the device computes.
#include "common.h"
#include "data.h"

BatchLoader::BatchLoader(const Dataset& data, const Sampler& sampler, int vocab_size, int leaf_begin, int leaf_end, uint64_t first_step)
    : data(data), sampler(sampler), audit(sampler), vocab_size(vocab_size), leaf_begin(leaf_begin), leaf_end(leaf_end), step(first_step) {
    CHECK(leaf_begin >= 0 && leaf_begin < leaf_end && leaf_end <= sampler.G && sampler.n == data.samples, "loader: leaves %d to %d of %d",
          leaf_begin, leaf_end, sampler.G);
    coming = prepare();
}

BatchLoader::Batch BatchLoader::make(const Sampler& order, uint64_t step, int leaf) const {
    const size_t B = size_t(order.B), T = size_t(data.T);
    Batch batch = {std::vector<int>(B * T), std::vector<int>(B * T)};
    for (size_t b = 0; b < B; b++)
        data.sample(order.index(step, leaf, int(b)), &batch.tokens[b * T], &batch.targets[b * T], vocab_size);
    return batch;
}

std::shared_future<std::vector<BatchLoader::Batch>> BatchLoader::prepare() {
    return std::async(std::launch::async, [this, step = step++] {
        std::vector<Batch> batches;
        for (int leaf = leaf_begin; leaf < leaf_end; leaf++) batches.push_back(make(sampler, step, leaf));
        return batches;
    }).share();
}

const BatchLoader::Batch& BatchLoader::next() {
    if (taken == 0) {
        coming.get();                   // one is over before the next begins: they use one sampler
        given = coming;
        coming = prepare();
    }
    const std::vector<Batch>& batches = given.get();
    const Batch& batch = batches[taken];
    taken = (taken + 1) % batches.size();
    return batch;
}

BatchLoader::Batch BatchLoader::leaf(uint64_t step, int leaf) const { return make(audit, step, leaf); }
