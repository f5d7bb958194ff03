// loader.cpp -- the thread that prepares batches while the device computes.
#include "common.h"
#include "data.h"

BatchLoader::BatchLoader(const Dataset& data, const Sampler& sampler, int vocab_size, int leaf_begin, int leaf_end, uint64_t first_step)
    : data(data), sampler(sampler), audit(sampler), vocab_size(vocab_size), leaf_begin(leaf_begin), leaf_end(leaf_end),
      slots(size_t(leaf_end - leaf_begin) + 2) {
    CHECK(leaf_begin >= 0 && leaf_begin < leaf_end && leaf_end <= sampler.G && sampler.n == data.samples, "loader: leaves %d to %d of %d",
          leaf_begin, leaf_end, sampler.G);
    thread = std::thread([this, first_step] { run(first_step); });
}

BatchLoader::~BatchLoader() {
    {
        const std::lock_guard<std::mutex> lock(mutex);
        stop = true;
    }
    changed.notify_all();
    thread.join();
}

void BatchLoader::fill(const Sampler& order, uint64_t step, int leaf, Batch* batch) const {
    const size_t B = size_t(order.B), T = size_t(data.T);
    batch->tokens.resize(B * T);
    batch->targets.resize(B * T);
    for (size_t b = 0; b < B; b++)
        data.sample(order.index(step, leaf, int(b)), &batch->tokens[b * T], &batch->targets[b * T], vocab_size);
}

// Batch k lies in slot k % slots. The trainer may be reading batch taken - 1; the next ones, a step's worth, have a slot each.
void BatchLoader::run(uint64_t first_step) {
    try {
        for (uint64_t step = first_step;; step++)
            for (int leaf = leaf_begin; leaf < leaf_end; leaf++) {
                std::unique_lock<std::mutex> lock(mutex);
                changed.wait(lock, [&] { return stop || filled + 1 < taken + slots.size(); });
                if (stop) return;
                Batch* slot = &slots[filled % slots.size()];
                lock.unlock();
                fill(sampler, step, leaf, slot);
                lock.lock();
                filled++;
                changed.notify_all();
            }
    } catch (...) {                             // an Error, or no memory: next() throws it once the batches before are used up
        const std::lock_guard<std::mutex> lock(mutex);
        error = std::current_exception();
        changed.notify_all();
    }
}

const BatchLoader::Batch& BatchLoader::next() {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return filled > taken || error; });
    if (filled == taken) std::rethrow_exception(error);
    const Batch& batch = slots[taken++ % slots.size()];
    changed.notify_all();
    return batch;
}

BatchLoader::Batch BatchLoader::leaf(uint64_t step, int leaf) const {
    Batch batch;
    fill(audit, step, leaf, &batch);
    return batch;
}
