// order.h -- an order of data declares once, here, which sample comes when. Options and the loader
// read these declarations.
//
// An order is NAME.h and a line in src/data/orders/list. NAME.h has NAME_info, an OrderInfo. A long
// function goes into NAME.cpp beside it. NAME.cpp, and a test, include this file alone.
// tests/fork/orders/blocks.h is one of a fork.
//
// An order is a function of its arguments alone. Any rank may ask for any sequence of the run, two
// threads at once, and a resumed run begins in the middle. The function knows no ranks, so their
// number cannot change the order. tests/scripts/test_lists.sh trains every order on 1, 2 and 4
// ranks, and resumes.
#pragma once
#include "src/data/data.h"

struct OrderInfo {
    const char* name;                   // as --sampler and the list have it
    const char* help;                   // what --help says behind the name
    Sampler::Order* sample;
    // Its options. Their values are run.hyper.at("name"), and a resume refuses to change them.
    std::vector<Hyper> hyper = {};
};

// The default: sequence k of a source with n samples is permute(k mod n) of epoch k / n. Of the
// first c sequences of a run the first source has its share, rounded; of the others the second one
// has its share among those that are left, and so on. So each source keeps to its weight everywhere
// in the run: to within half a sequence with two sources, and two with 30 (tests/unit/test_sampler.cpp).
// The numbers are whole: all machines round alike.
inline uint64_t lockstep_sample(const Sampler& run, uint64_t c) {
    using Exact = unsigned __int128;
    const auto weight = [&](size_t s) { return Exact(run.weights[s] * 0x1p60); };
    Exact left = 0;                         // the weights of this source and of those behind it
    for (size_t s = 0; s < run.weights.size(); s++) left += weight(s);
    for (size_t s = 0;; left -= weight(s++)) {
        const auto share = [&](uint64_t c) {
            return uint64_t((2 * c * weight(s) + left) / (2 * left));
        };
        const uint64_t k = share(c), n = run.first[s + 1] - run.first[s];
        if (share(c + 1) > k) return run.first[s] + permute(k % n, n, run.seed + s, k / n);
        c -= k;
    }
}
inline const OrderInfo lockstep_info = {
    "lockstep", "each epoch of a source is a permutation of its samples", lockstep_sample};

// For comparison, what DistributedSampler(shuffle=True, drop_last=False) does with R replicas:
// sequence q of a replica is entry q mod len of that replica's list for epoch q / len, where len is
// the length of the list.
uint64_t torch_sample(const Sampler& run, uint64_t c);
inline const OrderInfo torch_info = {"torch", "PyTorch's DistributedSampler", torch_sample};

// The files of the list, and ORDERS(X), which is X(lockstep) X(torch).
#include "build/orders.h"

// In the order of src/data/orders/list.
#define X(name) name##_info,
inline const OrderInfo kOrders[] = {ORDERS(X)};
#undef X
