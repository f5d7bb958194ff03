// mixtral.h -- Mixtral (Jiang et al., arXiv 2401.04088): Llama with a sparse mixture of experts in place of the MLP. A
// model that a fork adds.
//
//     x = x + sum of g_k expert_k(h) over the K largest p_k,  h = rms(x),  p = softmax(router h),  g = p / their sum
//     expert(h) = down(silu(gate(h)) * up(h))
//     aux_loss = E sum_e f_e P_e,  f_e: choices of expert e per row, P_e: mean of p_e, both over all rows of all layers
//
// The training loss is the cross entropy plus --aux-loss times aux_loss; the loss that is reported is the first alone.
// --clip-qkv limits q, k and v before they turn (DBRX); a Mixtral elsewhere has none.
#pragma once
#include "models/llama.h"

constexpr LlamaKind kMixtral = {.bias = false, .norms = false, .experts = true};

inline int& experts(Shape& s) { return s.extra[7]; }            // E
inline int& experts_used(Shape& s) { return s.extra[8]; }       // K
inline float& aux_loss(Shape& s) { return s.real[5]; }
inline float& clip_qkv(Shape& s) { return s.real[6]; }

// The tensors by name, in the order of the table. F: Weight for weights, float* for gradients.
template <class F> struct MixtralBlock {
    F ln1w;                         // (C)
    LlamaAttentionTensors<F> att;
    F ln2w;                         // (C)
    F router;                       // (Ep,C)           Ep: E rounded up to 8
    const F* experts;               // E times gateup (2F,C) and down (C,F)
};

inline void mixtral_experts(std::vector<TensorSpec>* table, const Shape& shape, const std::string& layer) {
    Shape s = shape;
    const size_t C = size_t(s.C), F = size_t(mlp_size(s)), E = size_t(experts(s));
    const std::string moe = layer + "block_sparse_moe.";
    table->push_back({moe + "gate.weight", round_up(E, size_t(8)), C, E, false, 0.02f, true, true});
    for (size_t e = 0; e < E; e++) {
        const std::string expert = moe + "experts." + std::to_string(e) + ".";
        table->push_back({expert + "w13.weight", 2 * F, C, 2 * F, false, 0.02f, true, false,
                          {{expert + "w1.weight", F}, {expert + "w3.weight", F}}});
        table->push_back({expert + "w2.weight", C, F, C, false, 0.02f, true});
    }
}

inline constexpr ConfigReader mixtral_read = read_llama_kind<kMixtral>;

inline const ModelInfo mixtral_info = [] {
    ModelInfo info = llama_family<kMixtral>(
        "mixtral", "Mixtral", "MixtralForCausalLM", [] { return std::vector<Preset>{{"mixtral-nano", "",
            "layers 2 heads 2 channels 32 mlp-size 48 experts 4 experts-used 2 aux-loss 0.02 seq-len 32 batch-size 2 "
            "total-batch-size 512 steps 30 lr 1e-2 warmup-steps 3 eval-every 10 eval-steps 4 sample-every 0 "
            "log-every 10 save-every 10"}}; }, "mixtral-nano");
    info.keys.push_back({"experts", "num_local_experts", experts, {"from 1 to 64", 1, 64}, "num-experts",
                         "experts of a layer"});
    info.keys.push_back({"experts-used", "num_experts_per_tok", experts_used, {"from 1 to 64", 1, 64}, "top-k-experts",
                         "of which a token takes so many"});
    info.keys.push_back({"aux-loss", "router_aux_loss_coef", aux_loss, kNotNegative, "router-aux-loss-coef",
                         "weight of the loss that balances the experts", 0.001});
    info.keys.push_back({"clip-qkv", "clip_qkv", clip_qkv, kNotNegative, "",
                         "largest size of an element of q, k and v, as in DBRX; 0: none", 0});
    info.fixed = [](const Shape& c) {
        std::vector<FixedKey> keys = llama_fixed(c, kMixtral);
        keys.push_back({"router_jitter_noise", "0.0", ""});
        keys.push_back({"sliding_window", "null", ""});
        return keys;
    };
    info.check = [](Shape& c) {
        if (experts_used(c) > experts(c))
            return format("--experts-used: got %d, want at most --experts %d", experts_used(c), experts(c));
        return llama_check(c, kMixtral);
    };
    info.tensors = [](const Shape& c) { return llama_tensors(c, kMixtral, mixtral_experts); };
    info.flops_per_token = [](const Shape& c, int T) {
        Shape s = c;
        const int K = experts_used(s), F = mlp_size(s);
        mlp_size(s) = K * F;
        return llama_flops(s, T) + 6.0 * c.L * c.C * experts(s);
    };
    info.cuda = nullptr;            // rows are counted on the host
    info.measures = {{"aux_loss", [](const Shape& c) { return c.real[5]; }}, {"expert_load"}};
    // No choice of an expert and no clipped element changes within the steps of the tests' finite differences.
    info.test_shape = "kv-heads 1 mlp-size 24 untied-head 1 experts 3 experts-used 2 aux-loss 0.5 clip-qkv 2 "
                      "rope-factor 3 rope-low 1.25 rope-high 3 rope-context 64";
    return info;
}();
