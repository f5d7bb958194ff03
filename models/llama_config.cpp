// llama_config.cpp -- the Llama family's table of tensors, checks and config.json. Names and
// defaults are those of transformers (modeling_llama.py, modeling_qwen2.py, modeling_qwen3.py,
// modeling_rope_utils.py).
#include "models/llama.h"
#include <algorithm>
#include "models/config.h"
#include "src/base/words.h"

std::vector<ShapeKey> llama_keys(LlamaKind kind) {
    std::vector<ShapeKey> keys = {
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
        {"rope-theta", "", rope_theta, kTheta, "rope-base",
         "base of the angles (not given: 10000)"},
        {"rope-factor", "", rope_factor, kFactor, "",
         "Llama 3's longer context: what slow angles are divided by (not given: 1)"},
        {"rope-low", "", rope_low, kPositive, "",
         "slow angles have fewer full turns in --rope-context (not given: 1)"},
        {"rope-high", "", rope_high, kPositive, "",
         "and fast ones, which stay, have more (not given: 4)"},
        {"rope-context", "", rope_context, kContext, "",
         "with --rope-factor: the context before (not given: 8192)"},
    };
    const Limits sizes = {"from 0 to 2147483647", 0, 2147483647},
                 layers = {"from 0 to 4095", 0, 4095};
    if (kind.window)
        keys.push_back({"window", "", window, sizes, "sliding-window",
                        "tokens that a token sees, itself and those before; 0: all"});
    if (kind.qwen())
        keys.push_back({"window-from", "", window_from, layers, "max-window-layers",
                        "the first layer that has --window"});
    return keys;
}

void llama_mlp(std::vector<TensorSpec>* table, const Shape& shape, const std::string& layer) {
    const size_t C = shape.C, F = LlamaSizes(shape).F;
    table->push_back({layer + "mlp.gate_up.weight", 2 * F, C, 2 * F, false, 0.02f, true, false,
                      {{layer + "mlp.gate_proj.weight", F}, {layer + "mlp.up_proj.weight", F}}});
    table->push_back({layer + "mlp.down_proj.weight", C, F, C, false, 0.02f, true});
}

std::vector<TensorSpec> llama_tensors(Shape shape, LlamaKind kind, LlamaMlp mlp) {
    const LlamaSizes c(shape);
    const size_t C = c.C, H = c.HS, Q = size_t(c.NH) * H, K = size_t(c.NK) * H;
    const float s = 0.02f;
    std::vector<TensorSpec> table;
    const auto vocabulary = [&](const char* name) {
        table.push_back({name, size_t(shape.Vp), C, size_t(shape.V), false, s, true, true});
    };
    using Parts = std::vector<TensorSpec::Part>;
    const auto matrix = [&](const std::string& name, size_t out, size_t in, Parts parts = {}) {
        table.push_back({name, out, in, out, false, s, true, false, parts});
    };
    const auto vector = [&](const std::string& name, size_t n, float first, Parts parts = {}) {
        table.push_back({name, 1, n, 1, false, first, false, false, parts});
    };
    if (untied_head(shape)) vocabulary("lm_head.weight");
    vocabulary("model.embed_tokens.weight");
    for (int l = 0; l < shape.L; l++) {
        const std::string layer = "model.layers." + std::to_string(l) + ".";
        const std::string att = layer + "self_attn.";
        const auto qkv = [&](const char* end) {
            return Parts{
                {att + "q_proj" + end, Q}, {att + "k_proj" + end, K}, {att + "v_proj" + end, K}};
        };
        vector(layer + "input_layernorm.weight", C, kOnes);
        matrix(att + "qkv.weight", Q + 2 * K, C, qkv(".weight"));
        if (kind.bias) vector(att + "qkv.bias", Q + 2 * K, 0, qkv(".bias"));
        if (kind.norms) vector(att + "q_norm.weight", H, kOnes);
        if (kind.norms) vector(att + "k_norm.weight", H, kOnes);
        matrix(att + "o_proj.weight", C, Q);
        vector(layer + "post_attention_layernorm.weight", C, kOnes);
        mlp(&table, shape, layer);
    }
    vector("model.norm.weight", C, kOnes);
    return table;
}

// Sets options that are not given to this program's defaults, and checks all. llama_read has
// transformers' defaults.
std::string llama_check(Shape& shape, LlamaKind kind) {
    const auto otherwise = [](auto& number, auto value) {
        if (number == 0) number = value;
    };
    if (shape.NH == 0 || shape.C % shape.NH)
        return format("--heads: got %d heads for %d channels, want a number that divides them",
                      shape.NH, shape.C);
    otherwise(kv_heads(shape), shape.NH);
    otherwise(head_size(shape), shape.C / shape.NH);
    otherwise(mlp_size(shape), round_up(8 * shape.C / 3, 64));
    otherwise(norm_eps(shape), kind.qwen() ? 1e-6f : 1e-5f);
    otherwise(rope_theta(shape), 10000.0f);
    otherwise(rope_factor(shape), 1.0f);
    otherwise(rope_low(shape), 1.0f);
    otherwise(rope_high(shape), 4.0f);
    otherwise(rope_context(shape), 8192);
    if (rope_factor(shape) == 1 &&
        (rope_low(shape) != 1 || rope_high(shape) != 4 || rope_context(shape) != 8192))
        return "--rope-low, --rope-high and --rope-context: want --rope-factor above 1 with them";
    const LlamaSizes c(shape);
    if (c.NH % c.NK)
        return format("--kv-heads: got %d for %d heads, want a number that divides them", c.NK,
                      c.NH);
    if (c.HS % 8 || c.HS > 128)
        return format("--head-size: got %d, want a multiple of 8 up to 128", c.HS);
    if (c.C % 8) return format("--channels: got %d, want a multiple of 8", c.C);
    if (c.F % 8) return format("--mlp-size: got %d, want a multiple of 8", c.F);
    if (rope_high(shape) <= rope_low(shape))
        return format("--rope-high: got %g, want more than --rope-low %g", rope_high(shape),
                      rope_low(shape));
    if (c.from > 0 && (c.W == 0 || c.from >= c.L))
        return format("--window-from: got %d, want less than --layers %d, and --window with it",
                      c.from, c.L);
    return "";
}

// 6 FLOP per parameter of a matrix product. The last term is attention's products, 12 FLOP per
// element of a key that a query sees: without a window T / 2 keys, with one W (1 - W / 2T).
double llama_flops(const Shape& shape, int T) {
    const LlamaSizes c(shape);
    const double block = c.C * (c.width + double(c.NH) * c.HS + 3.0 * c.F);
    const double W = c.W > 0 ? std::min(c.W, T) : T;
    const double keys = double(c.from) * T + (c.L - c.from) * W * (2 - W / T);
    return 6 * (c.L * block + double(shape.V) * c.C + keys * c.NH * c.HS);
}

std::string llama_text(const Shape& shape) {
    const LlamaSizes c(shape);
    const std::string from = c.from > 0 ? format(" from layer %d on", c.from) : "";
    return format("%d layers x %d heads of %d (%d for keys) x %d channels, MLP %d", c.L, c.NH, c.HS,
                  c.NK, c.C, c.F) +
           (c.W > 0 ? format(", window %d", c.W) + from : "");
}

// ---- config.json

// transformers 5 reads rope_parameters, and older versions read rope_theta and rope_scaling. This
// writes all three. Newer versions read layer_types, and older ones max_window_layers.
std::vector<FixedKey> llama_fixed(Shape s, LlamaKind kind) {
    const std::string theta = number_text(rope_theta(s));
    std::string scaling = "\"rope_type\": \"default\"";
    if (rope_factor(s) != 1)
        scaling = format("\"rope_type\": \"llama3\", \"factor\": %s, \"low_freq_factor\": %s, "
                         "\"high_freq_factor\": %s, \"original_max_position_embeddings\": %d",
                         number_text(rope_factor(s)).c_str(), number_text(rope_low(s)).c_str(),
                         number_text(rope_high(s)).c_str(), rope_context(s));
    std::vector<FixedKey> keys = {
        {"hidden_act", "\"silu\"", "\"swish\""},
        // Read and ignored: training has no such dropout.
        {"attention_dropout", "0.0", "", false},
        {"num_key_value_heads", std::to_string(kv_heads(s)), "", false},
        {"head_dim", std::to_string(head_size(s)), "", false},
        {"tie_word_embeddings", untied_head(s) ? "false" : "true", "", false},
        {"rope_theta", theta, "", false},
        {"rope_scaling", rope_factor(s) != 1 ? "{" + scaling + "}" : "null", "", false},
        {"rope_parameters", "{" + scaling + ", \"rope_theta\": " + theta + "}", "", false},
    };
    if (!kind.bias) keys.push_back({"attention_bias", "false", ""});
    if (!kind.qwen()) keys.push_back({"mlp_bias", "false", ""});
    const int W = window(s);
    const auto add = [&](const char* key, const std::string& value) {
        keys.push_back({key, value, "", false});
    };
    if (kind.qwen()) add("use_sliding_window", W > 0 ? "true" : "false");
    if (kind.mistral() || W > 0) add("sliding_window", W > 0 ? std::to_string(W) : "null");
    if (!kind.qwen() || W == 0) return keys;
    Words types(s.L, "\"sliding_attention\"");
    std::fill_n(types.begin(), window_from(s), "\"full_attention\"");
    add("max_window_layers", std::to_string(window_from(s)));
    add("layer_types", "[" + join(types, ", ") + "]");
    return keys;
}
