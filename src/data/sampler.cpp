// sampler.cpp -- the order of samples: a stateless permutation, and PyTorch's order for comparison.
// Prepares batches in this order while the device computes.
#include "src/data/data.h"
#include <map>
#include <mutex>
#include <numeric>
#include <random>
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

// Does what ATen's CPU kernel does: it seeds MT19937 with the low 32 bits of the seed and does a
// Fisher-Yates shuffle from the front, with 32 random bits per swap.
std::vector<int64_t> torch_randperm(int64_t n, uint64_t seed) {
    constexpr int64_t kMost = (1ll << 32) / 20;  // for this n and more ATen draws 64 bits per swap
    if (n >= kMost)
        die(kExitUsage,
            "--sampler torch: got %s samples, want less than %s; use --sampler lockstep",
            with_commas(n).c_str(), with_commas(kMost).c_str());
    std::mt19937 generator(seed);
    std::vector<int64_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = 0; i + 1 < order.size(); i++)
        std::swap(order[i], order[i + generator() % (order.size() - i)]);
    return order;
}

// Returns torch_randperm(n, seed), and keeps the last four: a step may need two epochs, and an
// audit two more.
static std::shared_ptr<const std::vector<int64_t>> torch_order(int64_t n, uint64_t seed) {
    static std::mutex mutex;
    static std::map<std::pair<int64_t, uint64_t>, std::shared_ptr<const std::vector<int64_t>>> kept;
    const std::lock_guard lock(mutex);
    auto& place = kept[{n, seed}];
    if (!place) place = std::make_shared<const std::vector<int64_t>>(torch_randperm(n, seed));
    const auto order = place;
    if (kept.size() > 4) kept.erase(kept.begin());  // the smallest seed is that of the oldest epoch
    return order;
}

uint64_t Sampler::index(uint64_t step, int micro_batch, int b) const {
    CHECK(n > 0 && micro_batch >= 0 && micro_batch < G && b >= 0 && b < B && G % R == 0,
          "sampler: micro-batch %d, sequence %d", micro_batch, b);
    const uint64_t k = micro_batch, c = (step * G + k) * B + b;
    if (!torch) return permute(c % n, n, seed, c / n);

    const uint64_t per_replica = G / R, replica = k / per_replica;
    const uint64_t q = (step * per_replica + k % per_replica) * B + b;  // sequence of the replica
    const uint64_t length = ceil_div(n, uint64_t(R)), epoch = q / length;
    const auto order = torch_order(n, seed + epoch);       // the seed that DistributedSampler uses
    return (*order)[(q % length * R + replica) % n];
}

// ---- batches

BatchLoader::BatchLoader(const Dataset& data, const Sampler& sampler, int vocab_size,
                         int first_batch, int last_batch, uint64_t first_step)
    : data(data), sampler(sampler), vocab_size(vocab_size), first_batch(first_batch),
      last_batch(last_batch), step(first_step), coming(prepare()) {}

BatchLoader::Batch BatchLoader::micro_batch(uint64_t step, int k) const {
    const size_t B = sampler.B, T = data.T;
    Batch batch = {std::vector<int>(B * T), std::vector<int>(B * T)};
    for (size_t b = 0; b < B; b++) {
        const uint64_t i = sampler.index(step, k, b);
        data.sample(i, &batch.tokens[b * T], &batch.targets[b * T], vocab_size);
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
    }
    return given.batches[taken++];
}
