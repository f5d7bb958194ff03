// llama.h -- the declaration of the Llama family (Touvron et al. 2023). Keep this file open while
// reading llama.cpp. Qwen2 also has biases for q, k and v. Qwen3 also has an RMSNorm of each head
// of q and k.
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
// keys of config.json.
struct LlamaKind { bool bias, norms, experts = false; };
constexpr LlamaKind kLlama = {false, false}, kQwen2 = {true, false}, kQwen3 = {false, true};

// The numbers of a Shape that only this family has.
inline int& kv_heads(Shape& s) { return s.extra[0]; }           // NK
inline int& head_size(Shape& s) { return s.extra[1]; }          // HS
inline int& mlp_size(Shape& s) { return s.extra[2]; }           // F
inline int& untied_head(Shape& s) { return s.extra[3]; }        // 1: the head is its own tensor
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
    int width;                      // of a row of qkv: (NH + 2 NK) HS
    explicit LlamaSizes(Shape s)
        : L(s.L), C(s.C), NH(s.NH), NK(kv_heads(s)), HS(head_size(s)), F(mlp_size(s)),
          width((NH + 2 * NK) * HS) {}
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
std::vector<FixedKey> llama_fixed(Shape shape, LlamaKind kind);
std::string llama_check(Shape& shape, LlamaKind kind);
double llama_flops(const Shape& shape, int T);
std::string llama_text(const Shape& shape);

constexpr Limits kHeadSize = {"from 8 to 128", 8, 128},
                 kTheta = {"from 1 to 1e12", 1, 1e12}, kFactor = {"from 1 to 1e6", 1, 1e6};
inline const std::vector<ShapeKey> kLlamaKeys = {
    layers_key("num_hidden_layers"),
    heads_key("num_attention_heads"),
    {"kv-heads", "", kv_heads, kHeads, "num-key-value-heads n-kv-heads",
     "heads of keys and values; a divisor of --heads (not given: --heads)"},
    {"head-size", "", head_size, kHeadSize, "head-dim",
     "a multiple of 8 (not given: channels / heads)"},
    channels_key("hidden_size"),
    {"mlp-size", "intermediate_size", mlp_size, {"from 8 to 262144", 8, 262144},
     "intermediate-size ffn-dim",
     "width of the MLP, a multiple of 8 (not given: 8/3 channels)"},
    seq_len_key("max_position_embeddings"),
    {"untied-head", "", untied_head, {"0 or 1", 0, 1}, "",
     "1: the head is no copy of the embedding"},
    {"norm-eps", "rms_norm_eps", norm_eps, kTiny, "rms-norm-eps",
     "of RMSNorm (not given: 1e-5; of Qwen 1e-6)", 1e-6},
    {"rope-theta", "", rope_theta, kTheta, "rope-base", "base of the angles (not given: 10000)"},
    {"rope-factor", "", rope_factor, kFactor, "",
     "Llama 3's longer context: what slow angles are divided by (not given: 1)"},
    {"rope-low", "", rope_low, kPositive, "",
     "slow angles have fewer full turns in --rope-context (not given: 1)"},
    {"rope-high", "", rope_high, kPositive, "",
     "and fast ones, which stay, have more (not given: 4)"},
    {"rope-context", "", rope_context, kContext, "",
     "with --rope-factor: the context before (not given: 8192)"},
};

std::vector<Preset> llama_presets(), qwen2_presets(), qwen3_presets();      // models.cpp

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
        .keys = kLlamaKeys,
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
        .recompute = recompute,
        .test_shape = kKind.bias ? "kv-heads 1 mlp-size 24 rope-factor 4 rope-low 1.25 "
                                   "rope-high 3 rope-context 64"
                                 : "kv-heads 1 mlp-size 24 rope-factor 4 rope-low 1.25 "
                                   "rope-high 3 rope-context 64 untied-head 1",
    };
}

inline const ModelInfo
    llama_info = llama_family<kLlama>("llama", "Llama", "LlamaForCausalLM", llama_presets,
                                      "llama-124m", 3),
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
                              qwen2_read = read_llama_kind<kQwen2>,
                              qwen3_read = read_llama_kind<kQwen3>;
