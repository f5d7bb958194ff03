// lstm.h -- the declaration of an LSTM language model with a tied head. Keep this file open while
// reading lstm.cpp.
//
//     x = embedding[token]
//     x = LSTM_l(x)                 L times (Hochreiter and Schmidhuber 1997, as in torch.nn.LSTM)
//     logits = x embedding^T
//
// The state is zero at the start of a sequence, and gradients go back through all of its T steps.
#pragma once
#include <cmath>
#include "models/shape.h"

// The tensors of a layer by name, in the order of the table. F is Weight for weights and float* for
// gradients. Rows are those of the gates i, f, g, o.
template <class F> struct LstmLayer { F wih, whh, bih, bhh; };          // (4C,C) (4C,C) (4C) (4C)

// Names and shapes are those of a PyTorch module with the members `embedding` and `lstm`.
inline std::vector<TensorSpec> lstm_tensors(const Shape& c) {
    const size_t C = c.C;
    // Muon takes the four gates as one matrix, as torch.nn.LSTM has them: one by one is worse.
    // PyTorch's variance, a third of this, stalls two layers.
    const float s = 1 / std::sqrt(float(c.C));
    std::vector<TensorSpec> table = {
        {"embedding.weight", size_t(c.Vp), C, size_t(c.V), false, s, true, true},
    };
    for (int l = 0; l < c.L; l++) {
        const std::string end = "_l" + std::to_string(l);
        for (const char* name : {"lstm.weight_ih", "lstm.weight_hh"})
            table.push_back({name + end, 4 * C, C, 4 * C, false, s, true});
        for (const char* name : {"lstm.bias_ih", "lstm.bias_hh"})
            table.push_back({name + end, 1, 4 * C, 1, false, 0, false});
    }
    return table;
}

std::vector<Preset> lstm_presets();             // models.cpp

inline constexpr ConfigReader lstm_read = nullptr;
inline const ModelInfo lstm_info = {
    .name = "lstm",
    .title = "LSTM",
    .architecture = "LSTMLMHead",
    .keys = {layers_key("num_layers"), channels_key("hidden_size"),
             seq_len_key("max_position_embeddings")},
    .fixed = [](const Shape&) {
        return std::vector<FixedKey>{{"tie_word_embeddings", "true", ""}};
    },
    .dropouts = {"dropout"},
    .presets = lstm_presets,
    .gpu_preset = "lstm-small",
    .cuda = any_shape,
    .check = [](Shape& c) {
        return c.C % 8 ? format("--channels: got %d, want a multiple of 8", c.C) : "";
    },
    .tensors = lstm_tensors,
    .flops_per_token = [](const Shape& c, int) {
        return 6.0 * (8.0 * c.L * c.C * c.C + double(c.V) * c.C);
    },
    .text = [](const Shape& c) { return format("%d layers x %d channels", c.L, c.C); },
};
