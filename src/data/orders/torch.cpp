// torch.cpp -- PyTorch's order, for comparison.
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include "src/data/orders/order.h"

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

// Returns entry i of torch_randperm(n, seed), and keeps the last four: a step may need two epochs,
// and an audit two more.
static uint64_t torch_entry(uint64_t i, int64_t n, uint64_t seed) {
    static std::mutex mutex;
    static std::map<std::pair<int64_t, uint64_t>, std::vector<int64_t>> kept;
    const std::lock_guard lock(mutex);
    std::vector<int64_t>& order = kept[{n, seed}];
    if (order.empty()) order = torch_randperm(n, seed);
    const uint64_t entry = order[i];
    if (kept.size() > 4) kept.erase(kept.begin());  // the smallest seed is that of the oldest epoch
    return entry;
}

uint64_t torch_sample(const Sampler& run, uint64_t c) {
    if (run.weights.size() > 1)
        die(kExitUsage, "--sampler torch: got %zu sources in --data, want one; use --sampler lockstep",
            run.weights.size());
    const uint64_t n = run.first.back(), R = run.R, part = run.G / run.R * run.B;
    const uint64_t replica = c / part % R, q = c / part / R * part + c % part;
    const uint64_t length = ceil_div(n, R), epoch = q / length;
    // The seed is the one that DistributedSampler uses.
    return torch_entry((q % length * R + replica) % n, n, run.seed + epoch);
}
