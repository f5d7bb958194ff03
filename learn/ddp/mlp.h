// mlp.h -- what the five steps train, and how their ranks are started and wait for each other.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
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

// Returns n zeros in memory that this process shares with the ones it starts.
template <class X> X* shared(size_t n) {
    void* const at = mmap(nullptr, n * sizeof(X), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) exit(1);
    return static_cast<X*>(at);
}
// A place where `ranks` processes wait until all of them have come, as often as they like.
struct Meeting {
    size_t ranks;
    std::atomic<size_t>* arrivals = shared<std::atomic<size_t>>(1);
    void wait() const {
        const size_t round = (*arrivals)++ / ranks + 1;
        while (*arrivals < round * ranks) usleep(1);
    }
};

// Runs f(rank) in as many processes as the command line says, and ends them all if one is lost.
template <class F> int run(size_t ranks, const F& f) {
    std::vector<pid_t> all;
    int status = 0;                                     // 0: all is well
    for (size_t rank = 0; rank < ranks && status == 0; rank++) {
        const pid_t pid = fork();
        if (pid == 0) {
            f(rank);
            fflush(stdout);
            _exit(0);
        }
        if (pid < 0) perror("fork"), status = 1;
        else all.push_back(pid);
    }
    while (status == 0 && wait(&status) > 0) {}
    for (const pid_t pid : all)
        if (status != 0) kill(pid, SIGKILL);
    return status != 0;
}
// Returns the number of ranks: 1, 2, 4 or 8. Eight divide every batch here.
inline size_t ranks_of(int argc, char** argv) {
    const int ranks = argc == 2 ? atoi(argv[1]) : 0;
    if (ranks == 1 || ranks == 2 || ranks == 4 || ranks == 8) return size_t(ranks);
    fprintf(stderr, "usage: %s RANKS, with 1, 2, 4 or 8\n", argv[0]);
    exit(1);
}
// Prints the loss of the last step, all bits of the weights as one number, and what a rank reads and keeps.
inline void report(size_t ranks, double loss, const float* w, size_t floats, size_t state) {
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < kWeights * sizeof(float); i++)
        hash = (hash ^ reinterpret_cast<const unsigned char*>(w)[i]) * 0x100000001b3;
    printf("%zu ranks  loss %.10f  weights %016llx  reads %zu floats of others a step, keeps %zu of state\n", ranks,
           loss, (unsigned long long)hash, floats / kSteps, state);
}
