// llama_config.cpp -- the Llama family's table of tensors, checks and config.json. Names and defaults are those of
// transformers (modeling_llama.py, modeling_qwen2.py, modeling_qwen3.py, modeling_rope_utils.py).
#include "models/llama.h"
#include <algorithm>
#include "models/config.h"
#include "src/base/json.h"

void llama_mlp(std::vector<TensorSpec>* table, const Shape& shape, const std::string& layer) {
    const size_t C = size_t(shape.C), F = size_t(LlamaSizes(shape).F);
    table->push_back({layer + "mlp.gate_up.weight", 2 * F, C, 2 * F, false, 0.02f, true, false,
                      {{layer + "mlp.gate_proj.weight", F}, {layer + "mlp.up_proj.weight", F}}});
    table->push_back({layer + "mlp.down_proj.weight", C, F, C, false, 0.02f, true});
}

std::vector<TensorSpec> llama_tensors(const Shape& shape, LlamaKind kind, LlamaMlp mlp) {
    const LlamaSizes c(shape);
    const size_t C = size_t(c.C), H = size_t(c.HS), Q = size_t(c.NH) * H, K = size_t(c.NK) * H;
    const float s = 0.02f;
    Shape own = shape;
    std::vector<TensorSpec> table;
    const auto vocabulary = [&](const char* name) {
        table.push_back({name, size_t(shape.Vp), C, size_t(shape.V), false, s, true, true});
    };
    const auto matrix = [&](const std::string& name, size_t out, size_t in, std::vector<TensorSpec::Part> parts = {}) {
        table.push_back({name, out, in, out, false, s, true, false, std::move(parts)});
    };
    const auto vector = [&](const std::string& name, size_t n, float first, std::vector<TensorSpec::Part> parts = {}) {
        table.push_back({name, 1, n, 1, false, first, false, false, std::move(parts)});
    };
    if (untied_head(own)) vocabulary("lm_head.weight");
    vocabulary("model.embed_tokens.weight");
    for (int l = 0; l < shape.L; l++) {
        const std::string layer = "model.layers." + std::to_string(l) + ".", att = layer + "self_attn.";
        const auto qkv = [&](const char* end) {
            return std::vector<TensorSpec::Part>{
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

// Sets options that are not given to this program's defaults, and checks all. llama_read has transformers' defaults.
std::string llama_check(Shape& shape, LlamaKind kind) {
    const auto otherwise = [](auto& number, auto value) {
        if (number == 0) number = value;
    };
    if (shape.NH == 0 || shape.C % shape.NH)
        return format("--heads: got %d heads for %d channels, want a number that divides them", shape.NH, shape.C);
    otherwise(kv_heads(shape), shape.NH);
    otherwise(head_size(shape), shape.C / shape.NH);
    otherwise(mlp_size(shape), round_up(8 * shape.C / 3, 64));
    otherwise(norm_eps(shape), kind.bias || kind.norms ? 1e-6f : 1e-5f);
    otherwise(rope_theta(shape), 10000.0f);
    otherwise(rope_factor(shape), 1.0f);
    otherwise(rope_low(shape), 1.0f);
    otherwise(rope_high(shape), 4.0f);
    otherwise(rope_context(shape), 8192);
    if (rope_factor(shape) == 1 && (rope_low(shape) != 1 || rope_high(shape) != 4 || rope_context(shape) != 8192))
        return "--rope-low, --rope-high and --rope-context: want --rope-factor above 1 with them";
    const LlamaSizes c(shape);
    if (c.NH % c.NK) return format("--kv-heads: got %d for %d heads, want a number that divides them", c.NK, c.NH);
    if (c.HS % 8 || c.HS > 128) return format("--head-size: got %d, want a multiple of 8 up to 128", c.HS);
    if (c.C % 8) return format("--channels: got %d, want a multiple of 8", c.C);
    if (c.F % 8) return format("--mlp-size: got %d, want a multiple of 8", c.F);
    if (rope_high(shape) <= rope_low(shape))
        return format("--rope-high: got %g, want more than --rope-low %g", rope_high(shape), rope_low(shape));
    return "";
}

// 6 FLOP per parameter of a matrix product. The last term is attention's products, of which causality needs half.
double llama_flops(const Shape& shape, int T) {
    const LlamaSizes c(shape);
    const double block = double(c.C) * (double(c.width) + double(c.NH) * c.HS + 3.0 * c.F);
    return 6 * (c.L * block + double(shape.V) * c.C + double(c.L) * c.NH * c.HS * T);
}

std::string llama_text(const Shape& shape) {
    const LlamaSizes c(shape);
    return format("%d layers x %d heads of %d (%d for keys) x %d channels, MLP %d", c.L, c.NH, c.HS, c.NK, c.C, c.F);
}

// ---- config.json

// transformers 5 reads rope_parameters, and older versions read rope_theta and rope_scaling. This writes all three.
std::vector<FixedKey> llama_fixed(const Shape& shape, LlamaKind kind) {
    Shape s = shape;
    const std::string theta = number_text(double(rope_theta(s)));
    std::string scaling = "\"rope_type\": \"default\"";
    if (rope_factor(s) != 1)
        scaling = format("\"rope_type\": \"llama3\", \"factor\": %s, \"low_freq_factor\": %s, "
                         "\"high_freq_factor\": %s, \"original_max_position_embeddings\": %d",
                         number_text(double(rope_factor(s))).c_str(), number_text(double(rope_low(s))).c_str(),
                         number_text(double(rope_high(s))).c_str(), rope_context(s));
    std::vector<FixedKey> keys = {
        {"hidden_act", "\"silu\"", "\"swish\""},
        {"attention_dropout", "0.0", "", false},        // read and ignored: training has no such dropout
        {"num_key_value_heads", std::to_string(kv_heads(s)), "", false},
        {"head_dim", std::to_string(head_size(s)), "", false},
        {"tie_word_embeddings", untied_head(s) ? "false" : "true", "", false},
        {"rope_theta", theta, "", false},
        {"rope_scaling", rope_factor(s) != 1 ? "{" + scaling + "}" : "null", "", false},
        {"rope_parameters", "{" + scaling + ", \"rope_theta\": " + theta + "}", "", false},
    };
    if (!kind.bias) keys.push_back({"attention_bias", "false", ""});
    if (!kind.bias && !kind.norms) keys.push_back({"mlp_bias", "false", ""});
    if (kind.bias || kind.norms) keys.push_back({"use_sliding_window", "false", ""});
    return keys;
}

static bool is_null(const Json& value) { return !value || value.kind() == Json::null; }

// kExitBadContent for keys that would change what the model computes and are not supported here.
static void refuse_others(const Json& config, LlamaKind kind, const char* what) {
    for (JsonItems i(config); i.next();) {
        const std::string key = i.key.text(), value = i.value.text();
        const bool of_experts = key.find("experts") < key.size() || key.starts_with("moe_");
        if (of_experts && !kind.experts) refuse(what, key, i.value, "no experts");
        if (key == "rope_interleaved" && value == "true") refuse(what, key, i.value, "false");
        if (key == "partial_rotary_factor" && value != "1" && value != "1.0" && value != "null")
            refuse(what, key, i.value, "1");
        if (key == "layer_types" && i.value.kind() == Json::array)
            for (JsonItems type(i.value); type.next();)
                if (type.value.text() != "full_attention") refuse(what, key, type.value, "full_attention");
    }
}

// Reads the numbers of Rope. As in transformers, a rope_scaling that is not null or empty replaces rope_parameters.
static void read_rope(const Json& config, Shape* s, LlamaKind kind, const char* what) {
    const Json old = config.find("rope_scaling"), now = config.find("rope_parameters");
    const bool older = !is_null(old) && (old.kind() != Json::object || JsonItems(old).next());
    const Json& rope = older ? old : now;
    if (!is_null(rope) && rope.kind() != Json::object)
        refuse(what, older ? "rope_scaling" : "rope_parameters", rope, "an object or null");
    rope_theta(*s) = 10000;
    for (const Json& from : {config, rope})                 // the later one wins
        if (!is_null(from.find("rope_theta"))) rope_theta(*s) = read_number(from, "rope_theta", kTheta, what);
    rope_factor(*s) = rope_low(*s) = 1;
    rope_high(*s) = 4;
    rope_context(*s) = 8192;
    if (is_null(rope)) return;
    refuse_others(rope, kind, what);
    for (JsonItems i(rope); i.next();)
        if (i.value.kind() == Json::object) refuse(what, i.key.text(), i.value, "one set of angles for all layers");
    const Json type = rope.find("rope_type") ? rope.find("rope_type") : rope.find("type");
    const bool same = type.text() == "linear" && read_number(rope, "factor", kPositive, what) == 1;
    if (!type || type.text() == "default" || same) return;
    if (type.text() != "llama3") refuse(what, "rope_type", type, "default or llama3");
    rope_factor(*s) = read_number(rope, "factor", kFactor, what);
    rope_low(*s) = read_number(rope, "low_freq_factor", kPositive, what);
    rope_high(*s) = read_number(rope, "high_freq_factor", kPositive, what);
    const char* const own = "original_max_position_embeddings";
    const Json& from = is_null(config.find(own)) ? rope : config;
    rope_context(*s) = is_null(from.find(own)) ? s->T : read_size(from, own, kContext, what);
    if (rope_high(*s) <= rope_low(*s)) refuse(what, "high_freq_factor", rope.find("high_freq_factor"),
                                              "more than low_freq_factor");
}

void llama_read(const Json& config, Shape* s, LlamaKind kind, const char* what) {
    const bool qwen = kind.bias || kind.norms;
    refuse_others(config, kind, what);
    // transformers' defaults for absent keys differ between Llama, Qwen2 and Qwen3. Qwen's are 32 key/value heads, and
    // in Qwen3 heads of 128 elements, whatever the model's size; so a Qwen must have these keys.
    const auto size = [&](const char* key, const Limits& limits, bool required, int otherwise) {
        return required || !is_null(config.find(key)) ? read_size(config, key, limits, what) : otherwise;
    };
    kv_heads(*s) = size("num_key_value_heads", kHeads, qwen, s->NH);
    head_size(*s) = size("head_dim", kHeadSize, kind.norms, s->C / s->NH);
    const Json tied = config.find("tie_word_embeddings");
    if (tied && tied.kind() != Json::boolean) refuse(what, "tie_word_embeddings", tied, "true or false");
    untied_head(*s) = tied.text() != "true";
    if (!is_null(config.find("attention_dropout"))) read_number(config, "attention_dropout", kBelowOne, what);
    read_rope(config, s, kind, what);
}
