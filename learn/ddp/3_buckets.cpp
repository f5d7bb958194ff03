// 3_buckets.cpp -- step 3: the gradient travels in buckets while backward still computes the rest.
//
//     g++ -std=c++20 -O2 -pthread learn/ddp/3_buckets.cpp -o 3_buckets && ./3_buckets 1 && ./3_buckets 4
//     diff learn/ddp/2_accumulate.cpp learn/ddp/3_buckets.cpp
//
// In step 2 a rank first computes and then communicates, so that the network waits for the processor and the processor
// for the network. But backward completes the last layer's gradient first, and nothing changes it any more. A bucket is
// a part of the gradient that is sent in one piece, here a layer. When the last micro-batch has completed a bucket, a
// second thread starts its all-reduce, and the first goes on with the layer before. On a GPU the second thread is a
// second CUDA stream. All ranks must take the buckets in the same order, or they add different ones; a network library
// may wait forever then.
//
// The bits are those of step 2: each element is the same sum of the same terms, whenever it is made.
#include "mlp.h"

constexpr size_t kMicro = 8;                            // samples of a micro-batch
constexpr size_t kBuckets = kLayers, kBucket = kWeights / kBuckets;     // bucket b is layer kLayers - 1 - b

struct Shared {
    size_t ranks;
    Floats grads = Floats(ranks * kWeights);            // (ranks, kWeights)
    std::vector<double> losses = std::vector<double>(ranks);
    std::barrier<> meeting = std::barrier(ranks);
};

// Makes elements begin .. begin + n - 1 of g the sum of all ranks' g. Returns how many floats this rank has read.
static size_t all_reduce(Shared& s, size_t rank, float* g, size_t begin, size_t n) {
    std::copy(g + begin, g + begin + n, &s.grads[rank * kWeights + begin]);
    s.meeting.arrive_and_wait();                        // all ranks' parts are there
    std::fill(g + begin, g + begin + n, 0.0f);
    for (size_t r = 0; r < s.ranks; r++)
        for (size_t i = begin; i < begin + n; i++) g[i] += s.grads[r * kWeights + i];
    s.meeting.arrive_and_wait();                        // all have read them: they may be overwritten
    return (s.ranks - 1) * n;
}

static void train(Shared& s, size_t rank) {
    Floats w = random_weights(0), v(kWeights), g(kWeights);
    const size_t own = kBatch / s.ranks;                // samples of this rank
    size_t floats = 0;
    std::atomic<size_t> complete = 0, reduced = 0;      // buckets since the first step
    std::thread communication([&] {
        for (size_t bucket = 0; bucket < kSteps * kBuckets; bucket++) {
            while (complete <= bucket) usleep(1);
            floats += all_reduce(s, rank, g.data(), (kBuckets - 1 - bucket % kBuckets) * kBucket, kBucket);
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
        for (size_t i = 0; i < kWeights; i++) {         // SGD with momentum, on every rank alike
            v[i] = kMomentum * v[i] + g[i] / float(kBatch);
            w[i] -= kRate * v[i];
        }
    }
    communication.join();
    s.meeting.arrive_and_wait();                        // all losses are there: complete++ came before they were stored
    if (rank == 0) report(s.ranks, s.losses, w, floats, v.size());
}

int main(int argc, char** argv) { return run<Shared>(argc, argv, train); }
