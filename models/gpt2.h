// gpt2.h -- the declaration of GPT-2: tensors, options, config.json. Keep this file open while
// reading gpt2.cpp.
//
// A pre-LayerNorm transformer with learned positions, tanh-GELU and a tied head (Radford et al.
// 2019):
//
//     x = wte[token] + wpe[position]
//     x = x + attproj(attention(qkv(ln1(x))))            L times
//     x = x + fcproj(gelu(fc(ln2(x))))
//     logits = lnf(x) wte^T
#pragma once
#include <algorithm>
#include <cmath>
#include "models/shape.h"

// The tensors by name, in the order of the table. F is Weight for weights and float* for gradients.
template <class F> struct Gpt2Norm { F w, b; };         // (C) (C)
template <class F> struct Gpt2Block {
    Gpt2Norm<F> ln1;
    F qkvw, qkvb;               // (3C,C) (3C)   rows: q of all heads, then k, then v
    F attprojw, attprojb;       // (C,C) (C)
    Gpt2Norm<F> ln2;
    F fcw, fcb;                 // (4C,C) (4C)
    F fcprojw, fcprojb;         // (C,4C) (C)
};
template <class F> struct Gpt2Ends {
    F wte, wpe;                 // (Vp,C) (T,C)  before the blocks; wte is also the head's weight
    Gpt2Norm<F> lnf;            //               after the blocks: the final norm
};

// Returns the table. Names are those of Hugging Face's GPT2LMHeadModel, whose Conv1D stores
// matrices transposed. The fields of TensorSpec, in this order, are in src/base/arena.h.
inline std::vector<TensorSpec> gpt2_tensors(const Shape& c) {
    const size_t C = c.C;
    // r: for projections into the residual stream.
    const float s = 0.02f, r = 0.02f / std::sqrt(2.0f * c.L);
    std::vector<TensorSpec> table = {
        {"transformer.wte.weight", size_t(c.Vp), C, size_t(c.V), false, s, true, true},
        {"transformer.wpe.weight", size_t(c.T), C, size_t(c.T), false, s, true, true},
    };
    const auto matrix = [&](const std::string& name, size_t out, size_t in, float std,
                            size_t stacked = 1) {
        table.push_back({name + ".weight", out, in, out, true, std, true, false, {}, false, {},
                         stacked});
        table.push_back({name + ".bias", 1, out, 1, false, 0, false});
    };
    const auto norm = [&](const std::string& name) {
        table.push_back({name + ".weight", 1, C, 1, false, kOnes, false});
        table.push_back({name + ".bias", 1, C, 1, false, 0, false});
    };
    for (int l = 0; l < c.L; l++) {
        const std::string h = "transformer.h." + std::to_string(l) + ".";
        norm(h + "ln_1");
        matrix(h + "attn.c_attn", 3 * C, C, s, 3);
        matrix(h + "attn.c_proj", C, C, r);
        norm(h + "ln_2");
        matrix(h + "mlp.c_fc", 4 * C, C, s);
        matrix(h + "mlp.c_proj", C, 4 * C, r);
    }
    norm("transformer.ln_f");
    return table;
}

std::vector<Preset> gpt2_presets();             // models.cpp

inline constexpr ConfigReader gpt2_read = nullptr;
inline const ModelInfo gpt2_info = {
    .name = "gpt2",
    .title = "GPT-2",
    .architecture = "GPT2LMHeadModel",
    .keys = {layers_key("n_layer"), heads_key("n_head"), channels_key("n_embd"),
             seq_len_key("n_positions")},
    .fixed = [](const Shape& c) {
        return std::vector<FixedKey>{
            {"activation_function", "\"gelu_new\"", "\"gelu_pytorch_tanh\""},
            {"layer_norm_epsilon", "1e-05", ""},
            {"n_inner", "null", std::to_string(4 * c.C)},
            {"scale_attn_weights", "true", ""}, {"scale_attn_by_inverse_layer_idx", "false", ""},
            {"add_cross_attention", "false", ""}, {"tie_word_embeddings", "true", ""},
        };
    },
    .dropouts = {"resid_pdrop", "embd_pdrop", "attn_pdrop"},
    .presets = gpt2_presets,
    .gpu_preset = "gpt2-124m",
    .cuda = any_shape,
    .check = [](Shape& c) {
        const int unit = 8 * c.NH;
        if (c.C % unit == 0 && c.C / unit <= 16) return std::string();
        return format("--heads: got %d heads for %d channels, want channels / heads to be a "
                      "multiple of 8 up to 128; try --channels %d",
                      c.NH, c.C, std::clamp(c.C / unit, 1, 16) * unit);
    },
    .tensors = gpt2_tensors,
    // 6 FLOP per parameter of a matrix product and token (2 forward, 4 backward); the tied head
    // counts once. The last term is attention's products, of which causality needs half.
    .flops_per_token = [](const Shape& c, int T) {
        return 6.0 * (12.0 * c.L * c.C * c.C + double(c.V) * c.C + double(c.L) * c.C * T);
    },
    .text = [](const Shape& c) {
        return format("%d layers x %d heads x %d channels", c.L, c.NH, c.C);
    },
    .head_size = [](const Shape& c) { return c.C / c.NH; },
    .documents = true,
    .recompute = 3,
};
