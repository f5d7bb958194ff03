// sampler.cpp -- the order of samples: our stateless permutation, and PyTorch's for those who compare.
#include "sampler.h"
#include <bit>
#include <random>
#include <utility>
#include "common.h"
#include "rng.h"

// Luby and Rackoff (1988): a Feistel network is a bijection whatever its round function is, and four rounds of a random one
// look random. Eight, because with few samples a half is only a bit or two wide. Cycle walking (Black and Rogaway 2002):
// whoever leaves 0..n-1 is permuted again; the domain is below 4 n, so this takes under four turns on average.
uint64_t permute(uint64_t i, uint64_t n, uint64_t seed, uint64_t epoch) {
    CHECK(i < n, "permute: got %llu, want less than %llu", (unsigned long long)i, (unsigned long long)n);
    constexpr uint64_t kRounds = 8;
    const int half = (int(std::bit_width(n - 1)) + 1) / 2;          // bits; 4^half >= n
    const uint64_t mask = (1ull << half) - 1;
    const RandomKey key = {seed, kRandomData, uint32_t(epoch), uint32_t(epoch >> 32)};
    do {
        uint64_t left = i >> half, right = i & mask;
        for (uint64_t round = 0; round < kRounds; round++) {
            left ^= random4(key, round << 32 | right).v[0] & mask;
            std::swap(left, right);
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}

uint64_t sample_lanes(uint64_t c, uint64_t n, uint64_t seed) { return permute(c % n, n, seed, c / n); }

// As ATen's CPU kernel: MT19937 seeded with the low 32 bits, a Fisher-Yates shuffle from the front, 32 random bits a swap.
std::vector<int64_t> torch_randperm(int64_t n, uint64_t seed) {
    constexpr int64_t kMost = (1ll << 32) / 20;                     // from here on ATen draws 64 bits a swap
    if (n >= kMost)
        die(kExitUsage, "--sampler torch: got %s samples, want less than %s; use --sampler lanes", with_commas(uint64_t(n)).c_str(),
            with_commas(uint64_t(kMost)).c_str());
    std::mt19937 generator{uint32_t(seed)};
    std::vector<int64_t> order(size_t(n), 0);
    for (int64_t i = 0; i < n; i++) order[size_t(i)] = i;
    for (int64_t i = 0; i < n - 1; i++) std::swap(order[size_t(i)], order[size_t(i + int64_t(generator() % uint64_t(n - i)))]);
    return order;
}

uint64_t Sampler::index(uint64_t step, int leaf, int b) const {
    CHECK(n > 0 && leaf >= 0 && leaf < G && b >= 0 && b < B && G % R == 0, "sampler: leaf %d, sequence %d", leaf, b);
    if (!torch) return sample_lanes((step * uint64_t(G) + uint64_t(leaf)) * uint64_t(B) + uint64_t(b), n, seed);

    const uint64_t per_lane = uint64_t(G / R), lane = uint64_t(leaf) / per_lane;
    const uint64_t q = (step * per_lane + uint64_t(leaf) % per_lane) * uint64_t(B) + uint64_t(b);   // number within the lane
    const uint64_t length = ceil_div(n, uint64_t(R)), epoch = q / length;
    Order& order = orders[epoch % 2];
    if (order.epoch != epoch) order = {epoch, torch_randperm(int64_t(n), seed + epoch)};     // torch's: epoch 1 of seed 0 is epoch 0 of seed 1
    return uint64_t(order.list[(q % length * uint64_t(R) + lane) % n]);
}
