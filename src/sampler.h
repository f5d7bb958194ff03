// sampler.h -- which sample comes next: a pure function of (seed, epoch, position), so there is no state but a counter.
#pragma once
#include <cstdint>
#include <vector>

// lanes: sample number c of the run is permutation_{c / N}(c mod N) of N samples. The permutation is a Feistel network of
// Philox rounds over the smallest even power of two >= N, walked until the value falls below N: O(1) memory, any N >= 1.
uint64_t permute(uint64_t i, uint64_t n, uint64_t seed, uint64_t epoch);
uint64_t sample_lanes(uint64_t c, uint64_t n, uint64_t seed);

// torch: torch.utils.data.DistributedSampler(shuffle=True) with the R lanes as its replicas.
std::vector<int64_t> torch_randperm(int64_t n, uint64_t seed);     // CPU generator, n < 2^32 / 20

// What the trainer asks: the sample index of sequence b (0..B-1) of leaf k (0..G-1) of step s. With `torch`, lane j walks its own
// replica's list: its q-th sequence of the run is entry q mod len of epoch q / len (drop_last = false).
// One thread at a time (torch keeps its permutations); copies are independent.
struct Sampler {
    bool torch = false;
    uint64_t n = 0, seed = 0;
    int B = 0, G = 0, R = 1;
    uint64_t index(uint64_t step, int leaf, int b) const;
  private:
    // torch: the randperm of an even and of an odd epoch. Where a step straddles two epochs each lane needs both.
    struct Order { uint64_t epoch = ~0ull; std::vector<int64_t> list; };
    mutable Order orders[2];
};
