// sampler.cpp -- a stateless permutation, of which orders of samples are made. Prepares batches in
// the run's order while the device computes.
#include "src/data/data.h"
#include "src/base/common.h"

// Applies a Feistel network of Philox rounds, over the smallest power of four >= n, until the value
// is below n (cycle walking, Black and Rogaway 2002). On average that takes fewer than four
// applications. A network has eight rounds, because with few samples each half of the value has
// only a bit or two.
uint64_t permute(uint64_t i, uint64_t n, uint64_t seed, uint64_t epoch) {
    CHECK(i < n, "permute: got %lu, want less than %lu", i, n);
    const int half = (std::bit_width(n - 1) + 1) / 2;  // bits; 4^half >= n
    const uint64_t mask = (1ull << half) - 1;
    const RandomKey key = {seed, kRandomData, uint32_t(epoch), uint32_t(epoch >> 32)};
    do {
        uint64_t left = i >> half, right = i & mask;
        for (uint64_t round = 0; round < 8; round++) {
            left ^= random4(key, round << 32 | right).v[0] & mask;
            std::swap(left, right);
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}

// ---- batches

BatchLoader::BatchLoader(const Dataset& data, const Sampler& sampler, int vocab_size,
                         int first_batch, int last_batch, uint64_t first_step)
    : data(data), sampler(sampler), vocab_size(vocab_size), first_batch(first_batch),
      last_batch(last_batch), step(first_step), coming(prepare()) {}

BatchLoader::Batch BatchLoader::micro_batch(uint64_t step, int k) const {
    const size_t B = sampler.B, T = data.T;
    Batch batch = {std::vector<int>(B * T), std::vector<int>(B * T), {}, {}};
    if (data.apart) batch.begin.resize(B * T);
    for (size_t b = 0; b < B; b++) {
        const uint64_t i = batch.samples.emplace_back(sampler.index(step, k, b));
        data.sample(i, &batch.tokens[b * T], &batch.targets[b * T], vocab_size, nullptr,
                    data.apart ? &batch.begin[b * T] : nullptr);
    }
    return batch;
}

std::shared_future<BatchLoader::Step> BatchLoader::prepare() {
    return std::async([this, step = step++] {   // if no thread can be started, next() runs this
        Step made;
        for (int k = first_batch; k < last_batch; k++) made.batches.push_back(micro_batch(step, k));
        for (int k = 0; k < sampler.G; k++)
            for (int b = 0; b < sampler.B; b++)
                made.targets += data.trained(sampler.index(step, k, b), vocab_size);
        return made;
    }).share();
}

const BatchLoader::Batch& BatchLoader::next() {
    if (taken == given.batches.size()) {
        given = coming.get();               // throws the thread's Error
        coming = prepare();
        taken = 0;
        numbers.clear();                    // it keeps its memory
        for (const Batch& batch : given.batches)
            numbers.insert(numbers.end(), batch.samples.begin(), batch.samples.end());
    }
    return given.batches[taken++];
}
