// 1_mean.cpp -- step 1: every rank has all weights and a part of the batch; the mean of the gradients makes them agree.
//
//     g++ -std=c++20 -O2 -pthread learn/ddp/1_mean.cpp -o 1_mean && ./1_mean 1 && ./1_mean 2 && ./1_mean 4
//
// This is what PyTorch's DistributedDataParallel does, but for its speed. A rank computes the gradient of its own
// samples. An all-reduce gives every rank the sum of all gradients, in memory that all share here, and over a network
// elsewhere. All ranks then make the same update, so that their weights stay equal without being sent.
//
// Run it with 1, 2 and 4 ranks: the losses agree in eight digits or so, and the weights in none of their hash. With one
// rank 64 samples are added one after another; with two, 32 and 32, and then the two sums. Floating-point numbers are
// rounded after each addition, so (a + b) + (c + d) is not ((a + b) + c) + d. Step 5 mends that.
#include "mlp.h"

struct Shared {
    size_t ranks;
    Floats grads = Floats(ranks * kWeights);            // (ranks, kWeights)
    std::vector<double> losses = std::vector<double>(ranks);
    std::barrier<> meeting = std::barrier(ranks);
};

// Makes g (kWeights) the sum of all ranks' g. Returns how many floats this rank has read from others.
static size_t all_reduce(Shared& s, size_t rank, float* g) {
    std::copy(g, g + kWeights, &s.grads[rank * kWeights]);
    s.meeting.arrive_and_wait();                        // all gradients are there
    std::fill(g, g + kWeights, 0.0f);
    for (size_t r = 0; r < s.ranks; r++)
        for (size_t i = 0; i < kWeights; i++) g[i] += s.grads[r * kWeights + i];
    s.meeting.arrive_and_wait();                        // all have read them: they may be overwritten
    return (s.ranks - 1) * kWeights;
}

static void train(Shared& s, size_t rank) {
    Floats w = random_weights(0), v(kWeights), g(kWeights);
    const size_t own = kBatch / s.ranks;                // samples of this rank
    size_t floats = 0;
    for (size_t step = 0; step < kSteps; step++) {
        std::fill(g.begin(), g.end(), 0.0f);
        s.losses[rank] = backward(g.data(), w.data(), step * kBatch + rank * own, own, [](size_t) {});
        floats += all_reduce(s, rank, g.data());
        for (size_t i = 0; i < kWeights; i++) {         // SGD with momentum, on every rank alike
            v[i] = kMomentum * v[i] + g[i] / float(kBatch);
            w[i] -= kRate * v[i];
        }
    }
    if (rank == 0) report(s.ranks, s.losses, w, floats, v.size());
}

int main(int argc, char** argv) { return run<Shared>(argc, argv, train); }
