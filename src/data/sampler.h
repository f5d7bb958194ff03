// sampler.h -- which sample comes next: a pure function of (seed, epoch, position), so the only state is a counter.
#pragma once
#include <cstdint>
#include <vector>

// Maps i < n to its place in a permutation of 0..n-1, which (seed, epoch) selects.
uint64_t permute(uint64_t i, uint64_t n, uint64_t seed, uint64_t epoch);
// Returns what torch.randperm(n) gives with the CPU generator. kExitUsage unless n < 2^32 / 20.
std::vector<int64_t> torch_randperm(int64_t n, uint64_t seed);

// index returns which of n samples is sequence b (0..B-1) of micro-batch k (0..G-1) of step s. That is sequence
// c = (s G + k) B + b of the run, and its sample is permute(c mod n) of epoch c / n. With `torch`, the order is that of
// DistributedSampler(shuffle=True, drop_last=False) with R replicas: sequence q of a replica is entry q mod len of the
// replica's list of epoch q / len.
struct Sampler {
    bool torch = false;
    uint64_t n = 0, seed = 0;
    int B = 0, G = 0, R = 1;
    uint64_t index(uint64_t step, int micro_batch, int b) const;
};
