// exercises.h -- the functions that the exercises ask for. Each NAME.cpp beside this file says what its function
// computes and in which order it adds; write it there, then run `learn/check NAME`. Arrays are row by row.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

[[noreturn]] void not_written();                // what a function does until you have written it

#define EXERCISE [[gnu::weak]]                  // the checker links one exercise, and lacks the others
EXERCISE float dot(const float* a, const float* b, int n);
EXERCISE void layernorm_backward(float* dx, float* dweight, float* dbias, const float* dout, const float* x,
                                 const float* weight, const float* mean, const float* scale, int N, int C);
EXERCISE void relu2_forward(float* out, const float* x, int n);
EXERCISE void relu2_backward(float* dx, const float* dout, const float* x, int n);
EXERCISE void softmax_loss(float* losses, float* dlogits, const float* logits, const int* targets, int N, int V);
EXERCISE double learning_rate(int step, int steps, int warmup, double peak, double final_frac);
EXERCISE void lion(float* w, float* m, const float* grad, int n, float lr, float beta1, float beta2, float decay);
EXERCISE float clip_factor(const float* grads, int n, float limit);
EXERCISE std::vector<int> buckets(const std::vector<size_t>& bytes, size_t first, size_t others);
EXERCISE void tree_sum(float* sum, const std::vector<const float*>& replicas, int n);
EXERCISE std::vector<int> samples_of(int step, int rank, int ranks, int replicas, int batch);
EXERCISE void attend(float* out, const float* q, const float* k, const float* v, const int* document, int T, int D);

// resume: a trainer of four weights, whose ranks share the optimizer's state, as in a sharded update.
struct Trainer {
    int ranks;                                  // 1, 2 or 4
    float w[4] = {0.5f, -0.25f, 1, 2};          // the weights, which all ranks have
    std::vector<std::vector<float>> m, v;       // (ranks, 4 / ranks): AdamW's averages of each rank's own weights
    int step = 0;
    uint32_t random = 1;                        // the state of a generator, which says what dropout drops
    explicit Trainer(int ranks)
        : ranks(ranks), m(size_t(ranks), std::vector<float>(size_t(4 / ranks))), v(m) {}
    void train();                               // one step
};
EXERCISE std::vector<float> save(const Trainer& trainer);
EXERCISE Trainer load(const std::vector<float>& saved, int ranks);

// race: an operation waits until another one, of the other stream, has completed.
struct Wait { const char *operation, *waits_for; };
EXERCISE std::vector<Wait> waits();

// same_bits: the mean of `count` gradients of n numbers, which `ranks` ranks share evenly. Each rank makes a part, an
// array of n numbers, of its own gradients; the parts then travel, and make the mean.
EXERCISE void part_of_rank(float* part, const std::vector<const float*>& own, int n, int ranks);
EXERCISE void mean_of_parts(float* mean, const std::vector<const float*>& parts, int n, int count);
