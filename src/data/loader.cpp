// loader.cpp -- prepares batches while the device computes.
#include "src/data/data.h"
#include <future>

BatchLoader::BatchLoader(const Dataset& data, const Sampler& sampler, int vocab_size, int first_batch, int last_batch,
                         uint64_t first_step)
    : data(data), sampler(sampler), vocab_size(vocab_size), first_batch(first_batch),
      last_batch(last_batch), step(first_step), coming(prepare()) {}

BatchLoader::Batch BatchLoader::micro_batch(uint64_t step, int k) const {
    const size_t B = size_t(sampler.B), T = size_t(data.T);
    Batch batch = {std::vector<int>(B * T), std::vector<int>(B * T)};
    for (size_t b = 0; b < B; b++) {
        const uint64_t i = sampler.index(step, k, int(b));
        data.sample(i, &batch.tokens[b * T], &batch.targets[b * T], vocab_size);
    }
    return batch;
}

std::function<BatchLoader::Step()> BatchLoader::prepare() {
    return [made = std::async([this, step = step++] {       // if no thread can be started, next() runs this
        Step made;
        for (int k = first_batch; k < last_batch; k++) made.batches.push_back(micro_batch(step, k));
        for (int k = 0; k < sampler.G; k++)
            for (int b = 0; b < sampler.B; b++) made.targets += data.trained(sampler.index(step, k, b), vocab_size);
        return made;
    }).share()] { return made.get(); };
}

const BatchLoader::Batch& BatchLoader::next() {
    if (taken == given.batches.size()) {
        given = coming();                   // throws the thread's Error
        coming = prepare();
        taken = 0;
    }
    return given.batches[taken++];
}
