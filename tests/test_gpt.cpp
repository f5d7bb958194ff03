// test_gpt.cpp -- the model as a whole, built against a backend: its gradient, accumulation, generation, and what it tells the reduction.
#include <cmath>
#include <cstring>
#include <vector>
#include "gpt.h"
#include "rng.h"
#include "test.h"

using namespace BACKEND;

namespace {

const GptConfig kSmall = {2, 2, 16, 12, 19, 32, 0};

struct Fixture {
    GptConfig config;
    Gpt model;
    std::vector<float> init;
    floatX* weights;
    std::vector<float> grads;
    std::vector<int> tokens, targets;
    StepState state = {.seed = 5, .step = 3, .lr = 0, .grad_scale = 0, .bias1 = 0, .bias2 = 0};

    Fixture(GptConfig c, int B, int T) : config(c) {
        const Arena arena = arena_layout(gpt_tensors(config));
        weights = static_cast<floatX*>(device_alloc(arena.n * sizeof(floatX), "weights"));
        gpt_create(&model, config, B, T, 0, weights, true);
        init.resize(arena.n);
        arena_init(init.data(), arena, 1);
        for (size_t t = 0; t < arena.tensors.size(); t++)       // larger weights and non-zero biases: nothing hides in zeros
            for (size_t i = 0; i < arena.tensors[t].file_rows * arena.tensors[t].cols; i++)
                init[arena.offset[t] + i] = init[arena.offset[t] + i] * 4 + 0.1f * (uniform01(random4({9, 9, uint32_t(t), 0}, i).v[0]) - 0.5f);
        store_floats(weights, init.data(), init.size());
        grads.assign(arena.n, NAN);
        for (size_t t = 0; t < arena.tensors.size(); t++) {     // padding is zero from the start; tensors are poisoned
            const size_t end = t + 1 < arena.tensors.size() ? arena.offset[t + 1] : arena.n;
            for (size_t i = arena.offset[t] + arena.tensors[t].rows * arena.tensors[t].cols; i < end; i++) grads[i] = 0;
        }
        gpt_set_gradients(&model, grads.data());
        for (int i = 0; i < B * T; i++) {
            tokens.push_back(int(random4({1, 2, 3, 4}, uint64_t(i)).v[0] % uint32_t(config.V)));
            targets.push_back(int(random4({1, 2, 3, 4}, uint64_t(i)).v[1] % uint32_t(config.V)));
        }
    }
    ~Fixture() { gpt_destroy(&model); device_free(weights); }
    double backward(bool accumulate = false, const OnTensors& ready = nullptr) {
        double loss;
        gpt_forward_backward(&model, &loss, tokens.data(), targets.data(), accumulate, &state, 0, nullptr, ready, nullptr);
        return loss;
    }
    double loss() { return gpt_loss(&model, tokens.data(), targets.data(), model.B, model.T, nullptr, nullptr); }
};

}  // namespace

TEST(parameters_of_gpt2) {
    const GptConfig gpt2 = {12, 12, 768, 1024, 50257, 50272, 0};
    EXPECT(gpt_parameters(gpt2) == 124439808, "%zu", gpt_parameters(gpt2));
    EXPECT(gpt_parameters({48, 25, 1600, 1024, 50257, 50272, 0}) == 1557611200, "%zu", gpt_parameters({48, 25, 1600, 1024, 50257, 50272, 0}));
    EXPECT(std::fabs(gpt_flops_per_token(gpt2, 1024) / 803e6 - 1) < 0.01, "%g", gpt_flops_per_token(gpt2, 1024));
}

TEST(first_weights) {
    const Arena arena = arena_layout(gpt_tensors({4, 4, 64, 64, 257, 272, 0}));
    std::vector<float> w(arena.n, NAN);
    arena_init(w.data(), arena, 1337);
    for (size_t t = 0; t < arena.tensors.size(); t++) {
        const TensorSpec& spec = arena.tensors[t];
        double sum = 0, squares = 0;
        const size_t n = spec.file_rows * spec.cols;
        for (size_t i = 0; i < n; i++) { sum += w[arena.offset[t] + i]; squares += double(w[arena.offset[t] + i]) * w[arena.offset[t] + i]; }
        const double std = std::sqrt(squares / double(n));
        if (spec.init_std > 0) EXPECT(std::fabs(std / spec.init_std - 1) < 5 / std::sqrt(2.0 * double(n)), "%s: std %g", spec.name.c_str(), std);
        else EXPECT(sum == (spec.init_std == kOnes ? double(n) : 0), "%s: sum %g", spec.name.c_str(), sum);
        for (size_t i = n; i < (t + 1 < arena.tensors.size() ? arena.offset[t + 1] : arena.n) - arena.offset[t]; i++)
            EXPECT(w[arena.offset[t] + i] == 0, "%s: padding %zu", spec.name.c_str(), i);
        EXPECT(spec.decay == (spec.file_rows > 1), "%s", spec.name.c_str());
    }
}

TEST(fresh_model_is_near_ln_v) {
    Fixture f(kSmall, 2, 12);
    std::vector<float> w(f.init.size());
    arena_init(w.data(), f.model.arena, 3);
    store_floats(f.weights, w.data(), w.size());
    EXPECT(std::fabs(f.loss() / 24 - std::log(19.0)) < 0.05, "%g", f.loss() / 24);
}

// Central differences of a few weights of every tensor. fp32 rounding of the summed loss is about 1e-6 x 60; with a step of 1e-2 the
// difference is exact to about 1e-2, and its curvature error is of the same size for weights this large.
TEST(gradient_of_every_tensor) {
    Fixture f(kSmall, 2, 11);
    const double loss = f.backward();
    EXPECT(std::fabs(loss - f.loss()) < 1e-4, "%.9g forward and backward, %.9g forward", loss, f.loss());
    for (size_t t = 0; t < f.model.arena.tensors.size(); t++) {
        const TensorSpec& spec = f.model.arena.tensors[t];
        const size_t n = spec.file_rows * spec.cols;
        for (size_t k = 0; k < 4; k++) {
            const size_t i = f.model.arena.offset[t] + (k * 7919 + 3) % n;
            const float h = 1e-2f;
            std::vector<float> w = f.init;
            w[i] = f.init[i] + h; store_floats(f.weights, w.data(), w.size());
            const double up = f.loss();
            w[i] = f.init[i] - h; store_floats(f.weights, w.data(), w.size());
            const double down = f.loss();
            const double want = (up - down) / (2 * double(h)), tol = 0.02 + 0.03 * std::fabs(want);
            EXPECT(std::fabs(f.grads[i] - want) <= tol, "%s[%zu]: got %g, want %g", spec.name.c_str(), i - f.model.arena.offset[t], double(f.grads[i]), want);
        }
        store_floats(f.weights, f.init.data(), f.init.size());
    }
    for (size_t i = 0; i < f.grads.size(); i++) EXPECT(std::isfinite(f.grads[i]), "element %zu is %g: not written", i, double(f.grads[i]));
}

TEST(padding_rows_have_no_gradient) {
    Fixture f(kSmall, 2, 11);
    f.backward();
    for (size_t i = size_t(kSmall.V) * size_t(kSmall.C); i < size_t(kSmall.Vp) * size_t(kSmall.C); i++) EXPECT(f.grads[i] == 0, "wte[%zu] is %g", i, double(f.grads[i]));
}

TEST(accumulate_adds_the_same_sum) {
    Fixture f(kSmall, 2, 12);
    f.backward();
    const std::vector<float> once = f.grads;
    f.backward(true);
    for (size_t i = 0; i < once.size(); i++)
        EXPECT(std::fabs(f.grads[i] - 2 * once[i]) <= 4e-6 * (1 + std::fabs(once[i])), "[%zu]: %g after two, %g after one", i, double(f.grads[i]), double(once[i]));
    f.backward(false);
    EXPECT(std::memcmp(f.grads.data(), once.data(), once.size() * sizeof(float)) == 0, "the same leaf again gives other bits");
}

TEST(dropout_is_a_function_of_step_and_leaf) {
    GptConfig config = kSmall;
    config.dropout = 0.2f;
    Fixture f(config, 2, 12);
    const double loss = f.backward();
    const std::vector<float> grads = f.grads;
    EXPECT(f.backward() == loss && std::memcmp(f.grads.data(), grads.data(), grads.size() * sizeof(float)) == 0, "the same leaf again gives other bits");
    f.state.step++;
    EXPECT(f.backward() != loss, "another step has the same masks");
    EXPECT(f.loss() == f.loss(), "evaluation is not repeatable");
}

TEST(tensors_are_ready_from_the_end) {
    Fixture f(kSmall, 1, 12);
    int next = int(f.model.arena.tensors.size());
    bool order = true;
    f.backward(false, [&](int first, int last) {
        order &= last == next && first < last;
        next = first;
    });
    EXPECT(order && next == 0, "ranges do not run from the table's end to its start: stopped at %d", next);
}

// Logits of the last position, from the whole forward pass: the loss against each possible target is -log softmax.
TEST(generation_equals_the_full_forward) {
    Fixture f(kSmall, 1, 12);
    GptCache cache;
    gpt_cache_create(&cache, f.config);
    std::vector<float> logits(size_t(f.config.V));
    const int pieces[][2] = {{0, 5}, {5, 1}, {6, 1}, {7, 5}};
    for (const auto& [first, n] : pieces) {
        gpt_generate_step(&f.model, &cache, f.tokens.data() + first, first, n, logits.data(), nullptr);
        double largest = -1e30, sum = 0;
        for (const float x : logits) largest = std::max(largest, double(x));
        for (const float x : logits) sum += std::exp(double(x) - largest);
        std::vector<float> losses(size_t(first + n));
        for (int v = 0; v < f.config.V; v++) {
            std::vector<int> targets(size_t(first + n), v);
            gpt_loss(&f.model, f.tokens.data(), targets.data(), 1, first + n, losses.data(), nullptr);
            const double want = double(losses.back()), got = largest + std::log(sum) - double(logits[size_t(v)]);
            EXPECT(std::fabs(got - want) <= 1e-5 * (1 + want), "position %d, token %d: got %g, want %g", first + n - 1, v, got, want);
        }
    }
    gpt_cache_destroy(&cache);
}

TEST(a_prompt_longer_than_the_activations) {
    GptConfig config = kSmall;
    Fixture small(config, 1, 5), large(config, 1, 12);
    std::vector<float> a(size_t(config.V)), b(size_t(config.V));
    GptCache one, two;
    gpt_cache_create(&one, config); gpt_cache_create(&two, config);
    gpt_generate_step(&small.model, &one, large.tokens.data(), 0, 12, a.data(), nullptr);
    gpt_generate_step(&large.model, &two, large.tokens.data(), 0, 12, b.data(), nullptr);
    expect_near(a.data(), b.data(), a.size(), 2e-5, "logits");
    gpt_cache_destroy(&one); gpt_cache_destroy(&two);
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
