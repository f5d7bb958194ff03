// sampler.h -- decides which sample comes next: a pure function of (seed, epoch, position). The only state is the step.
#pragma once
#include <cstdint>
#include <vector>

// Returns element i < n of a permutation of 0..n-1 that (seed, epoch) selects.
uint64_t permute(uint64_t i, uint64_t n, uint64_t seed, uint64_t epoch);
// Returns what torch.randperm(n) returns with a CPU generator of this seed. kExitUsage unless n < 2^32 / 20.
std::vector<int64_t> torch_randperm(int64_t n, uint64_t seed);

// index() returns which of n samples is sequence b (0..B-1) of micro-batch k (0..G-1) of step s. This is sequence
// c = (s G + k) B + b of the run, and its sample is permute(c mod n) of epoch c / n. With `torch`, the order is that of
// DistributedSampler(shuffle=True, drop_last=False) with R replicas: the sample of sequence q of a replica is entry
// q mod len of that replica's list for epoch q / len, where len is the length of the list.
struct Sampler {
    bool torch = false;
    uint64_t n = 0, seed = 0;
    int B = 0, G = 0, R = 1;
    uint64_t index(uint64_t step, int micro_batch, int b) const;
};
