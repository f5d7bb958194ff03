// order.h -- an order of data declares once, here, which sample comes when. Options and the loader
// read these declarations.
//
// An order is NAME.h and a line in src/data/orders/list. NAME.h has NAME_info, an OrderInfo. A long
// function goes into NAME.cpp beside it. NAME.cpp, and a test, include this file alone.
// tests/fork/orders/mix.h is a mixture of two files.
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

// The default: the sample of sequence c is permute(c mod n) of epoch c / n.
inline uint64_t lockstep_sample(const Sampler& run, uint64_t c) {
    const uint64_t n = run.first.back();
    return permute(c % n, n, run.seed, c / n);
}
inline const OrderInfo lockstep_info = {
    "lockstep", "each epoch is a permutation of the samples", lockstep_sample};

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
