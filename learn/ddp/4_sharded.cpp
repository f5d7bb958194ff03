// 4_sharded.cpp -- step 4: each rank updates a part of the weights, and keeps the optimizer's state of that part alone.
//
//     g++ -std=c++20 -O2 -pthread learn/ddp/4_sharded.cpp -o 4_sharded && ./4_sharded 1 && ./4_sharded 4
//     diff learn/ddp/3_buckets.cpp learn/ddp/4_sharded.cpp
//
// In step 3 every rank sums every element and makes every update: the same work W times, and the momentum W times in
// memory. An all-reduce is two halves. After the first, a reduce-scatter, a rank has the sum of its slice of each
// bucket. The second, an all-gather, would give all slices to all ranks. Between them there is room for the update: a
// rank updates its slices of the weights, and what is gathered are weights. That is ZeRO-1 (Rajbhandari et al. 2020).
// A rank reads 2 (W - 1) / W of the elements, and keeps 1 / W of the state. A good all-reduce, as NCCL's, reads no more
// than that; step 3's reads all elements W - 1 times.
//
// The bits are those of step 3: an update looks at one element, whoever makes it.
#include "mlp.h"

constexpr size_t kMicro = 8;                            // samples of a micro-batch
constexpr size_t kBuckets = kLayers, kBucket = kWeights / kBuckets;     // bucket b is layer kLayers - 1 - b

struct Shared {
    size_t ranks;
    Floats grads = Floats(ranks * kWeights);            // (ranks, kWeights)
    Floats weights = Floats(kWeights);
    std::vector<double> losses = std::vector<double>(ranks);
    std::barrier<> meeting = std::barrier(ranks), updated = std::barrier(ranks);
};

// Makes elements begin .. begin + n - 1 of g the sum of all ranks' g. Returns how many floats this rank has read.
static size_t reduce(Shared& s, float* g, size_t begin, size_t n) {
    std::fill(g + begin, g + begin + n, 0.0f);
    for (size_t r = 0; r < s.ranks; r++)
        for (size_t i = begin; i < begin + n; i++) g[i] += s.grads[r * kWeights + i];
    return (s.ranks - 1) * n;
}

static void train(Shared& s, size_t rank) {
    const size_t slice = kBucket / s.ranks;             // of a bucket; this rank's slices lie at its own places in g
    Floats w = random_weights(0), v(kBuckets * slice), g(kWeights);
    const size_t own = kBatch / s.ranks;                // samples of this rank
    size_t floats = 0;
    std::atomic<size_t> complete = 0, reduced = 0;      // buckets since the first step
    std::thread communication([&] {
        for (size_t bucket = 0; bucket < kSteps * kBuckets; bucket++) {
            while (complete <= bucket) usleep(1);
            const size_t begin = (kBuckets - 1 - bucket % kBuckets) * kBucket;
            std::copy(&g[begin], &g[begin] + kBucket, &s.grads[rank * kWeights + begin]);
            s.meeting.arrive_and_wait();                // all ranks' parts are there, until the last wait of the step
            floats += reduce(s, g.data(), begin + rank * slice, slice);
            reduced++;
        }
    });
    for (size_t step = 0; step < kSteps; step++) {
        std::fill(g.begin(), g.end(), 0.0f);
        s.losses[rank] = 0;
        for (size_t at = 0; at < own; at += kMicro)     // the last one completes the buckets
            s.losses[rank] += backward(g.data(), w.data(), step * kBatch + rank * own + at, kMicro,
                                       [&](size_t) { if (at + kMicro == own) complete++; });
        while (reduced < (step + 1) * kBuckets) usleep(1);
        for (size_t k = 0; k < v.size(); k++) {         // SGD with momentum, of this rank's slices
            const size_t i = k / slice * kBucket + rank * slice + k % slice;
            v[k] = kMomentum * v[k] + g[i] / float(kBatch);
            s.weights[i] = w[i] - kRate * v[k];
        }
        s.updated.arrive_and_wait();                    // all slices are there: the all-gather
        w = s.weights;
        floats += kWeights - v.size();
        s.updated.arrive_and_wait();                    // all have read weights and gradients: they may be overwritten
    }
    communication.join();
    s.meeting.arrive_and_wait();                        // all losses are there
    if (rank == 0) report(s.ranks, s.losses, w, floats, v.size());
}

int main(int argc, char** argv) { return run<Shared>(argc, argv, train); }
