// gpt2.h -- GPT-2: what it is, declared once. Keep this file open while reading gpt2.cpp.
//
// A pre-LayerNorm transformer with learned positions, tanh-GELU and a tied head (Radford et al. 2019):
//
//     x = wte[token] + wpe[position]
//     x = x + attproj(attention(qkv(ln1(x))))            L times
//     x = x + fcproj(gelu(fc(ln2(x))))
//     logits = lnf(x) wte^T
#pragma once
#include <algorithm>
#include <cmath>
#include "models/shape.h"
#include "src/base/common.h"

// The tensors by name, in the order of the table. F: Weight for weights, float* for gradients.
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
    F wte, wpe;                 // (Vp,C) (T,C)  before the blocks; wte is the head's weight, too
    Gpt2Norm<F> lnf;            //               after them: the final norm
};

// Names and shapes are those of Hugging Face's GPT2LMHeadModel; its Conv1D holds matrices transposed.
inline std::vector<TensorSpec> gpt2_tensors(const Shape& c) {
    const size_t C = size_t(c.C);
    const float s = 0.02f, r = 0.02f / std::sqrt(2.0f * float(c.L));    // r: projections into the residual stream
    std::vector<TensorSpec> table = {
        {"transformer.wte.weight", size_t(c.Vp), C, size_t(c.V), false, s, true, true},
        {"transformer.wpe.weight", size_t(c.T), C, size_t(c.T), false, s, true, true},
    };
    const auto matrix = [&](const std::string& name, size_t out, size_t in, float std) {
        table.push_back({name + ".weight", out, in, out, true, std, true});
        table.push_back({name + ".bias", 1, out, 1, false, 0, false});
    };
    const auto norm = [&](const std::string& name) {
        table.push_back({name + ".weight", 1, C, 1, false, kOnes, false});
        table.push_back({name + ".bias", 1, C, 1, false, 0, false});
    };
    for (int l = 0; l < c.L; l++) {
        const std::string h = "transformer.h." + std::to_string(l) + ".";
        norm(h + "ln_1");
        matrix(h + "attn.c_attn", 3 * C, C, s);
        matrix(h + "attn.c_proj", C, C, r);
        norm(h + "ln_2");
        matrix(h + "mlp.c_fc", 4 * C, C, s);
        matrix(h + "mlp.c_proj", C, 4 * C, r);
    }
    norm("transformer.ln_f");
    return table;
}

// Sizes: Radford et al. 2019; batches and learning rates: Brown et al. 2020, table 2.1; steps: about 20 tokens per
// parameter (10^10 for 124M). small: nanoGPT's settings for a small text.
inline const std::string kGpt2Run = "seq-len 1024 warmup-steps 700 final-lr-frac 0 eval-every 250 sample-every 1000 "
                                    "log-every 10 save-every 1000 ";
inline const ModelInfo gpt2_info = {
    .name = "gpt2",
    .title = "GPT-2",
    .architecture = "GPT2LMHeadModel",
    .keys = {
        {"layers", "n_layer", [](Shape& s) -> int& { return s.L; }, kLayers,
         "n-layer n-layers num-layers depth num-hidden-layers", "blocks or layers"},
        {"heads", "n_head", [](Shape& s) -> int& { return s.NH; }, {"from 1 to 1024", 1, 1024},
         "n-head n-heads num-heads num-attention-heads",
         "attention heads; channels / heads is a multiple of 8 up to 128"},
        {"channels", "n_embd", [](Shape& s) -> int& { return s.C; }, kSize,
         "n-embd n-embed hidden-size d-model embed-dim model-dim", "width of the hidden state"},
        {"seq-len", "n_positions", [](Shape& s) -> int& { return s.T; }, kContext,
         "block-size max-seq-len max-seq-length context-length context n-ctx n-positions sequence-length -t",
         "context length, T; with --init at most the one it has"},
    },
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
    .presets = {
        {"nano", "", kNanoRun + "layers 4 heads 4 channels 128 seq-len 256 batch-size 2"},
        {"small", "", kSmallRun + "layers 6 heads 6 channels 384 batch-size 8 total-batch-size 16384 lr 1e-3"},
        {"gpt2-124m", "d12 gpt2 gpt2-small", kGpt2Run + "layers 12 heads 12 channels 768 batch-size 16 "
         "total-batch-size 524288 steps 18865 lr 6e-4 eval-steps 64"},
        {"gpt2-350m", "d24 gpt2-medium", kGpt2Run + "layers 24 heads 16 channels 1024 batch-size 8 "
         "total-batch-size 524288 steps 18865 lr 3e-4 eval-steps 128"},
        {"gpt2-774m", "d36 gpt2-large", kGpt2Run + "layers 36 heads 20 channels 1280 batch-size 4 "
         "total-batch-size 524288 steps 30000 lr 2.5e-4 eval-steps 256"},
        {"gpt2-1558m", "d48 gpt2-xl", kGpt2Run + "layers 48 heads 25 channels 1600 batch-size 4 "
         "total-batch-size 1048576 steps 30000 lr 2e-4 eval-steps 256"},
    },
    .gpu_preset = "gpt2-124m",
    .cuda = true,
    .check = [](Shape& c) {
        const int unit = 8 * c.NH;
        if (c.C % unit == 0 && c.C / unit <= 16) return std::string();
        return format("--heads: got %d heads for %d channels, want channels / heads to be a multiple of 8 up to 128; "
                      "try --channels %d", c.NH, c.C, std::clamp(c.C / unit, 1, 16) * unit);
    },
    .tensors = gpt2_tensors,
    // 6 per parameter in a matrix product, the tied head's once; the last term is the causal half of attention.
    .flops_per_token = [](const Shape& c, int T) {
        return 6.0 * (12.0 * c.L * c.C * c.C + double(c.V) * c.C + double(c.L) * c.C * T);
    },
    .text = [](const Shape& c) { return format("%d layers x %d heads x %d channels", c.L, c.NH, c.C); },
    .head_size = [](const Shape& c) { return c.C / c.NH; },
};
