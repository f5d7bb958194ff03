// sampler.h -- which sample comes next: a pure function of (seed, epoch, position), so the only state is a counter.
#pragma once
#include <cstdint>
#include <vector>

// The place of i < n in the permutation of 0..n-1 keyed by (seed, epoch).
uint64_t permute(uint64_t i, uint64_t n, uint64_t seed, uint64_t epoch);
// torch.randperm of the CPU generator; kExitUsage unless n < 2^32 / 20.
std::vector<int64_t> torch_randperm(int64_t n, uint64_t seed);

// The sample index of sequence b (0..B-1) of micro-batch k (0..G-1) of step s: of sample number c = (s G + k) B + b of
// the run, perm_{c / n}(c mod n). `torch`: DistributedSampler(shuffle=True) with the R replicas as its replicas: the
// q-th sequence of a replica is entry q mod len of its list of epoch q / len (drop_last = false). One thread at a time
// (torch keeps its permutations); copies are independent.
struct Sampler {
    bool torch = false;
    uint64_t n = 0, seed = 0;
    int B = 0, G = 0, R = 1;
    struct Order { uint64_t epoch; std::vector<int64_t> list; };
    mutable Order orders[2] = {{~0ull, {}}, {~0ull, {}}};  // torch: of an even and an odd epoch; a step may need both
    uint64_t index(uint64_t step, int micro_batch, int b) const;
};
