// mlp.h -- what the five steps train, how their ranks are started, and what they print.
#pragma once
#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>
#include <unistd.h>

// The model: kLayers matrices of kWidth x kWidth, with max(0, x) between them. It learns another one, the teacher.
constexpr size_t kLayers = 4, kWidth = 32, kWeights = kLayers * kWidth * kWidth;
constexpr size_t kBatch = 64, kSteps = 200;             // samples of a step; steps
constexpr float kRate = 0.02f, kMomentum = 0.9f;
using Floats = std::vector<float>;

// Returns random number i of a stream, in -1 .. 1. It is a function of both, so that every rank can make any sample.
inline float noise(uint64_t stream, uint64_t i) {
    uint64_t x = (stream << 32 | i) * 0x9e3779b97f4a7c15;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9;
    x ^= x >> 32;
    return float(uint32_t(x) >> 8) / float(1 << 23) - 1;
}
inline Floats random_weights(uint64_t stream) {
    Floats w(kWeights);
    for (size_t i = 0; i < kWeights; i++) w[i] = noise(stream, i) * 0.3f;
    return w;
}

// Computes all layers of one sample. x: (kLayers + 1, kWidth); its first row is the input.
inline void forward(const float* w, float* x) {
    for (size_t l = 0; l < kLayers; l++)
        for (size_t o = 0; o < kWidth; o++) {
            float sum = 0;
            for (size_t i = 0; i < kWidth; i++) sum += w[(l * kWidth + o) * kWidth + i] * x[l * kWidth + i];
            x[(l + 1) * kWidth + o] = l + 1 < kLayers ? std::max(0.0f, sum) : sum;
        }
}

// Adds the gradient of the loss of samples first .. first + count - 1 to g (kWeights), and returns that loss. Calls
// ready(l) when layer l's gradient is complete: the last layer is the first.
template <class Ready> double backward(float* g, const float* w, size_t first, size_t count, const Ready& ready) {
    static const Floats teacher = random_weights(1);
    std::vector<Floats> x(count, Floats((kLayers + 1) * kWidth)), dx(count, Floats(kWidth));
    double loss = 0;
    for (size_t k = 0; k < count; k++) {
        Floats want(x[k].size());
        for (size_t i = 0; i < kWidth; i++) want[i] = x[k][i] = noise(2 + first + k, i);
        forward(teacher.data(), want.data());
        forward(w, x[k].data());
        for (size_t i = 0; i < kWidth; i++) {
            dx[k][i] = x[k][kLayers * kWidth + i] - want[kLayers * kWidth + i];
            loss += 0.5 * double(dx[k][i]) * double(dx[k][i]);
        }
    }
    for (size_t l = kLayers; l-- > 0;) {
        const size_t at = l * kWidth * kWidth;
        for (size_t k = 0; k < count; k++) {
            Floats back(kWidth);
            for (size_t o = 0; o < kWidth; o++)
                for (size_t i = 0; i < kWidth; i++) {
                    g[at + o * kWidth + i] += dx[k][o] * x[k][l * kWidth + i];
                    back[i] += dx[k][o] * w[at + o * kWidth + i];
                }
            for (size_t i = 0; i < kWidth; i++) dx[k][i] = x[k][l * kWidth + i] > 0 ? back[i] : 0;
        }
        ready(l);
    }
    return loss;
}

// Prints the average loss of the last step's samples, all bits of the weights as one number, and what a rank reads and
// keeps. losses: sums, of the parts of the batch.
inline void report(size_t ranks, const std::vector<double>& losses, const Floats& w, size_t floats, size_t state) {
    double loss = 0;
    for (const double part : losses) loss += part / kBatch;
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < kWeights * sizeof(float); i++)
        hash = (hash ^ reinterpret_cast<const unsigned char*>(w.data())[i]) * 0x100000001b3;
    printf("%zu ranks  loss %.10f  weights %016llx  reads %zu floats of others a step, keeps %zu of state\n", ranks,
           loss, (unsigned long long)hash, floats / kSteps, state);
}

// Runs train(s, rank) as each rank, with an s that all share. The command line says how many ranks there are: 1, 2, 4
// or 8, which divide every batch here. A rank is a thread of this program. PyTorch's and train_gpt's ranks are
// processes, which share no memory unless they ask for it: what they do is the same.
template <class Shared> int run(int argc, char** argv, void (*train)(Shared& s, size_t rank)) {
    const int ranks = argc == 2 ? atoi(argv[1]) : 0;
    if (ranks != 1 && ranks != 2 && ranks != 4 && ranks != 8) {
        fprintf(stderr, "usage: %s RANKS, with 1, 2, 4 or 8\n", argv[0]);
        return 1;
    }
    Shared s = {size_t(ranks)};
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < s.ranks; rank++) threads.emplace_back([&s, train, rank] { train(s, rank); });
    for (std::thread& thread : threads) thread.join();
    return 0;
}
