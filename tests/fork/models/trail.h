// trail.h -- a model that a fork adds: what was read fades by half with each token, and an MLP reads the trail. A new
// document begins without what the one before has left. Its head is its own: logits are capped.
//
//     trail_t = trail_{t-1} / 2 + embedding[token_t], or embedding[token_t] where a document starts
//     z = (proj gelu(fc trail)) embedding^T
//     logits = cap tanh(z / cap), or z where --soft-cap is 0
#pragma once
#include "models/shape.h"
#include "src/base/common.h"

// The tensors by name, in the order of the table. F: Weight for weights, float* for gradients.
template <class F> struct TrailTensors { F embedding, fcw, fcb, projw, projb; };

inline std::vector<TensorSpec> trail_tensors(const Shape& c) {
    const size_t C = size_t(c.C), H = size_t(c.extra[0]);
    return {
        {"embedding.weight", size_t(c.Vp), C, size_t(c.V), false, 0.1f, true, true, {}, false,
         {.lr = 0.5f, .decay = 0, .group = 1}},
        {"fc.weight", H, C, H, false, 0.1f, true},
        {"fc.bias", 1, H, 1, false, 0, false},
        {"proj.weight", C, H, C, false, 0.1f, true},
        {"proj.bias", 1, C, 1, false, 0, false},
    };
}

inline constexpr ConfigReader trail_read = nullptr;
inline const ModelInfo trail_info = {
    .name = "trail",
    .title = "Trail",
    .architecture = "TrailLMHead",
    .keys = {
        {"channels", "hidden_size", [](Shape& s) -> int& { return s.C; }, kSize, "",
         "width of the trail, a multiple of 8"},
        {"inner", "inner_size", [](Shape& s) -> int& { return s.extra[0]; }, {"from 8 to 65536", 8, 65536}, "",
         "width of the MLP"},
        {"seq-len", "max_position_embeddings", [](Shape& s) -> int& { return s.T; }, kContext, "", "longest sequence"},
        {"soft-cap", "final_logit_softcapping", [](Shape& s) -> float& { return s.real[0]; }, kNotNegative, "",
         "what logits stay below; 0: none", 0},
    },
    .fixed = [](const Shape&) { return std::vector<FixedKey>{}; },
    .dropouts = {},
    .presets = [] { return std::vector<Preset>{{"trail-nano", "",
                 "channels 32 inner 64 soft-cap 7.5 seq-len 32 batch-size 2 total-batch-size 512 steps 30 lr 1e-2 "
                 "warmup-steps 3 eval-every 10 eval-steps 4 sample-every 0 log-every 10 save-every 10"}}; },
    .gpu_preset = "trail-nano",
    .cuda = nullptr,
    .check = [](Shape& c) {
        return std::string(c.C % 8 || c.extra[0] % 8 ? "--channels: want multiples of 8" : "");
    },
    .tensors = trail_tensors,
    .flops_per_token = [](const Shape& c, int) { return 6.0 * c.C * (2.0 * c.extra[0] + c.V); },
    .text = [](const Shape& c) { return format("%d channels, %d inside", c.C, c.extra[0]); },
    .measures = {{"documents"}},                // that start in a micro-batch
    .test_shape = "inner 24 soft-cap 0.75",
};
