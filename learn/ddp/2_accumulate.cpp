// 2_accumulate.cpp -- step 2: a rank's part is computed in micro-batches, and only their sum is sent.
//
//     g++ -std=c++20 -O2 -pthread learn/ddp/2_accumulate.cpp -o 2_accumulate && ./2_accumulate 1 && ./2_accumulate 4
//     diff learn/ddp/1_mean.cpp learn/ddp/2_accumulate.cpp
//
// The activations of a large batch do not fit into a GPU's memory, so that it is computed piece by piece. backward adds
// each piece's gradient to the same buffer. An all-reduce after each of 8 pieces would give the same sum, and send 8
// times the bytes. PyTorch's no_sync() leaves it out; here there is one all-reduce a step. The bits are those of step
// 1: a rank adds its samples in the same order.
//
// The gradient is divided once, by the samples of the whole step. Means of means would be wrong as soon as two ranks or
// two micro-batches have different numbers of samples, or of tokens that count.
#include "mlp.h"

constexpr size_t kMicro = 8;                            // samples of a micro-batch

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
        s.losses[rank] = 0;
        for (size_t at = 0; at < own; at += kMicro)     // "+=" into g, and no communication
            s.losses[rank] += backward(g.data(), w.data(), step * kBatch + rank * own + at, kMicro, [](size_t) {});
        floats += all_reduce(s, rank, g.data());
        for (size_t i = 0; i < kWeights; i++) {         // SGD with momentum, on every rank alike
            v[i] = kMomentum * v[i] + g[i] / float(kBatch);
            w[i] -= kRate * v[i];
        }
    }
    if (rank == 0) report(s.ranks, s.losses, w, floats, v.size());
}

int main(int argc, char** argv) { return run<Shared>(argc, argv, train); }
