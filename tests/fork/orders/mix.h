// mix.h -- a mixture of two sources, an order of a fork: of 100 sequences --mix come from the first file of --data,
// the others from the second. An epoch of a file has each of its samples once.
#pragma once
#include "src/data/orders/order.h"

inline uint64_t mix_sample(const Sampler& run, uint64_t c) {
    if (run.first.size() != 3)
        die(kExitUsage, "--sampler mix: got %zu files of training data, want two", run.first.size() - 1);
    // floor(c share) of the run's first c sequences come from the first file.
    const auto of_first = [&](uint64_t c) { return uint64_t(double(c) * run.hyper.at("mix") / 100); };
    const uint64_t before = of_first(c), file = of_first(c + 1) == before;
    const uint64_t i = file ? c - before : before;              // how many sequences of the file came before
    const uint64_t begin = run.first[file], n = run.first[file + 1] - begin;
    if (n == 0) die(kExitUsage, "--sampler mix: got no sample of file %lu, want one or more", file + 1);
    return begin + permute(i % n, n, run.seed + file, i / n);
}

inline const OrderInfo mix_info = {
    "mix", "--mix of 100 sequences from the first of two files", mix_sample,
    {{"mix", 50, {"from 0 to 100", 0, 100}, "", "sequences of 100 that come from the first file of --data"}}};
