// llama.h -- the declaration of the Llama family (Touvron et al. 2023). Keep this file open while
// reading llama.cpp. Mistral's attention may have a window: a token sees itself and W - 1 tokens
// before. Qwen2 also has biases for q, k and v. Qwen3 also has an RMSNorm of each head of q and k.
// --window-from says which layers of a Qwen have the window.
//
//     x = embed[token]
//     x = x + o(attention(rotate(qkv(rms(x)))))        L times
//     x = x + down(silu(gate(h)) * up(h)),  h = rms(x)
//     logits = rms(x) head^T
//
// NH / NK query heads share a key/value head. rms is RMSNorm. rotate turns pairs of elements of
// each head of q and k by an angle that grows with the position (Su et al. 2021, arXiv 2104.09864).
#pragma once
#include "models/shape.h"

// bias: of q, k and v. norms: of q's and k's heads. experts: a variant's own reader takes their
// keys of config.json. window: attention may have one. transformers ignores a Llama's.
struct LlamaKind {
    bool bias, norms, experts = false, window = false;
    bool qwen() const { return bias || norms; }
    bool mistral() const { return window && !qwen(); }
};
constexpr LlamaKind kLlama = {false, false}, kMistral = {false, false, false, true},
                    kQwen2 = {true, false, false, true}, kQwen3 = {false, true, false, true};

// The numbers of a Shape that only this family has.
inline int& kv_heads(Shape& s) { return s.extra[0]; }           // NK
inline int& head_size(Shape& s) { return s.extra[1]; }          // HS
inline int& mlp_size(Shape& s) { return s.extra[2]; }           // F
inline int& untied_head(Shape& s) { return s.extra[3]; }        // 1: the head is its own tensor
// Layers from window_from on have the window. 0: none has one.
inline int& window(Shape& s) { return s.extra[5]; }             // W
inline int& window_from(Shape& s) { return s.extra[6]; }
inline float& norm_eps(Shape& s) { return s.real[0]; }
// These are the members of Rope in llama_parts.h.
inline float& rope_theta(Shape& s) { return s.real[1]; }
inline int& rope_context(Shape& s) { return s.extra[4]; }
inline float& rope_factor(Shape& s) { return s.real[2]; }
inline float& rope_low(Shape& s) { return s.real[3]; }
inline float& rope_high(Shape& s) { return s.real[4]; }

// The sizes under the names that llama.cpp uses.
struct LlamaSizes {
    int L, C, NH, NK, HS, F;
    int W, from;                    // the window, and the first layer that has it
    int width;                      // of a row of qkv: (NH + 2 NK) HS
    explicit LlamaSizes(Shape s)
        : L(s.L), C(s.C), NH(s.NH), NK(kv_heads(s)), HS(head_size(s)), F(mlp_size(s)),
          W(window(s)), from(window_from(s)), width((NH + 2 * NK) * HS) {}
};

// The tensors by name, in the order of the table; null: this kind of model has no such tensor. F is
// Weight for weights and float* for gradients.
template <class F> struct LlamaAttentionTensors {
    F qkvw, qkvb;                   // (width,C) (width)    rows: q of all heads, then k, then v
    F qnormw, knormw;               // (HS) (HS)
    F ow;                           // (C,NH*HS)
};
template <class F> struct LlamaBlock {
    F ln1w;                         // (C)
    LlamaAttentionTensors<F> att;
    F ln2w;                         // (C)
    F gateupw, downw;               // (2F,C) (C,F)     rows: gate, then up
};
template <class F> struct LlamaEnds {
    F embedding;                    // (Vp,C)   before the blocks, and after an untied head's weight
    F normw;                        // (C)      after the blocks: the final norm
};

// Appends a block's tensors after its second norm to *table. layer: the prefix of names,
// "model.layers.0.".
using LlamaMlp = void (*)(std::vector<TensorSpec>* table, const Shape& shape,
                          const std::string& layer);
void llama_mlp(std::vector<TensorSpec>* table, const Shape& shape, const std::string& layer);
std::vector<TensorSpec> llama_tensors(Shape shape, LlamaKind kind, LlamaMlp mlp = llama_mlp);
std::vector<ShapeKey> llama_keys(LlamaKind kind);
std::vector<FixedKey> llama_fixed(Shape shape, LlamaKind kind);
std::string llama_check(Shape& shape, LlamaKind kind);
double llama_flops(const Shape& shape, int T);
std::string llama_text(const Shape& shape);

constexpr Limits kHeadSize = {"from 8 to 128", 8, 128},
                 kTheta = {"from 1 to 1e12", 1, 1e12}, kFactor = {"from 1 to 1e6", 1, 1e6};

// In models.cpp
std::vector<Preset> llama_presets(), mistral_presets(), qwen2_presets(), qwen3_presets();

// Returns the declaration of one kind. Its first preset is the default on a CPU; gpu_preset is the
// default on a GPU. recompute: 3 if llama.cpp computes the model.
template <LlamaKind kKind>
ModelInfo llama_family(const char* name, const char* title, const char* architecture,
                       std::vector<Preset> (*presets)(), const char* gpu_preset,
                       int recompute = 0) {
    return {
        .name = name,
        .title = title,
        .architecture = architecture,
        .keys = llama_keys(kKind),
        .fixed = [](const Shape& c) { return llama_fixed(c, kKind); },
        .dropouts = {},
        .presets = presets,
        .gpu_preset = gpu_preset,
        .cuda = any_shape,
        .check = [](Shape& c) { return llama_check(c, kKind); },
        .tensors = [](const Shape& c) { return llama_tensors(c, kKind); },
        .flops_per_token = llama_flops,
        .text = llama_text,
        .head_size = [](const Shape& c) { return LlamaSizes(c).HS; },
        .documents = true,
        .recompute = recompute,
        .test_shape = kKind.bias     ? "kv-heads 1 mlp-size 24 rope-factor 4 rope-low 1.25 "
                                       "rope-high 3 rope-context 64 window 5 window-from 1"
                      : kKind.window ? "kv-heads 1 mlp-size 24 rope-factor 4 rope-low 1.25 "
                                       "rope-high 3 rope-context 64 untied-head 1 window 5"
                                     : "kv-heads 1 mlp-size 24 rope-factor 4 rope-low 1.25 "
                                       "rope-high 3 rope-context 64 untied-head 1",
    };
}

inline const ModelInfo
    llama_info = llama_family<kLlama>("llama", "Llama", "LlamaForCausalLM", llama_presets,
                                      "llama-124m", 3),
    mistral_info = llama_family<kMistral>("mistral", "Mistral", "MistralForCausalLM",
                                          mistral_presets, "mistral-nano", 3),
    qwen2_info = llama_family<kQwen2>("qwen2", "Qwen2", "Qwen2ForCausalLM", qwen2_presets,
                                      "qwen2.5-0.5b", 3),
    qwen3_info = llama_family<kQwen3>("qwen3", "Qwen3", "Qwen3ForCausalLM", qwen3_presets,
                                      "qwen3-0.6b", 3);

// Reads the keys of config.json that all kinds have. kExitBadContent for keys that are not
// supported here. It is in tools/text/llama_reader.cpp.
void read_llama(const Json& config, Shape* shape, LlamaKind kind, const char* what);
template <LlamaKind kKind>
void read_llama_kind(const Json& config, Shape* shape, const char* what) {
    read_llama(config, shape, kKind, what);
}
inline constexpr ConfigReader llama_read = read_llama_kind<kLlama>,
                              mistral_read = read_llama_kind<kMistral>,
                              qwen2_read = read_llama_kind<kQwen2>,
                              qwen3_read = read_llama_kind<kQwen3>;
