// trial.h -- a model of a test: its memory, its weights, a pass.
#pragma once
#include "models/model.h"
#include "tests/models/device.h"
#include "tests/models/small_shape.h"

// Calls f(key, name, first element, elements) for each tensor as files have it.
template <class F> void each_part(const Arena& arena, const F& f) {
    size_t key = 0;
    for (size_t t = 0; t < arena.tensors.size(); t++) {
        const TensorSpec& spec = arena.tensors[t];
        size_t at = arena.offset[t];
        for (const auto& [name, count] : parts_of(spec)) {
            const size_t n = count * (spec.rows > 1 ? spec.cols : 1);
            f(key++, name, at, n);
            at += n;
        }
    }
}

// The numbers and weights of make_llama.py and make_mixtral.py.
inline uint32_t golden_hash(size_t key, size_t i) {
    uint32_t h = uint32_t(key * 7919 + i) * 2654435761u;
    h = (h ^ h >> 15) * 2246822519u;
    return h ^ h >> 13;
}
inline std::vector<float> golden_weights(const Arena& arena, float divisor, float of_gates) {
    std::vector<float> w(arena.n);
    each_part(arena, [&](size_t key, const std::string& name, size_t at, size_t n) {
        for (size_t i = 0; i < n; i++) {
            const uint32_t h = golden_hash(key, i);
            w[at + i] = has(name, "norm") ? float(96 + h % 64) / 128
                                          : (float(h % 256) * 2 - 255) / (has(name, "gate") ? of_gates : divisor);
        }
    });
    return w;
}

namespace BACKEND {

// A model in memory, with gradients that begin as NaN, and B x T random tokens.
struct Trial {
    Device<floatX> weights;
    Device<float> grads{weights.n};
    Device<PassResult> result{1};
    Model model;
    std::vector<int> tokens, targets, begin;        // begin: Pass::begin; empty: null

    Trial(const ModelInfo& info, const Shape& shape, int B, int T, const std::vector<float>& w, int recompute = 0,
          const Trained& adapters = {}, floatX* frozen = nullptr, const ChosenLoss& loss = {}, bool training = true)
        : weights(w) {
        model_create(&model, &info, shape, B, T, recompute, weights.at, training, adapters, frozen, loss);
        model_set_gradients(&model, grads.at);
        std::vector<float> poison(grads.n);
        for (size_t t = 0; t < model.trained.tensors.size(); t++) {
            const TensorSpec& spec = model.trained.tensors[t];
            std::fill_n(&poison[model.trained.offset[t]], spec.rows * spec.cols, NAN);
        }
        grads.put(poison);
        for (int i = 0; i < B * T; i++) {
            const Random4 r = random4({1, 2, 3, 4}, uint64_t(i));
            tokens.push_back(int(r.v[0] % uint32_t(shape.V)));
            targets.push_back(int(r.v[1] % uint32_t(shape.V)));
        }
    }
    ~Trial() { model_destroy(&model); }
    const int* begins() const { return begin.empty() ? nullptr : begin.data(); }
    PassResult backward(Pass pass = {}) {
        pass.B = model.B;
        pass.T = model.T;
        pass.begin = begins();
        model_forward_backward(&model, pass, result.at, tokens.data(), targets.data());
        PassResult got;
        copy_to_host(&got, result.at, sizeof got);
        return got;
    }
};

}  // namespace BACKEND
