// llama_reader.cpp -- reads the Llama family's config.json: rotation, heads, and what is not supported here. Names and
// defaults are those of transformers (modeling_llama.py, modeling_qwen2.py, modeling_qwen3.py, modeling_rope_utils.py).
#include "models/llama.h"
#include "src/base/json.h"
#include "tools/text/config_reader.h"

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
    }
}

static int size_or(int otherwise, const Json& config, const char* key, const Limits& limits, const char* what) {
    return is_null(config.find(key)) ? otherwise : read_size(config, key, limits, what);
}

// Reads the window and the first layer that has it. In Qwen these are the layers from max_window_layers on, unless
// layer_types says which. A window that no layer has is none.
static void read_window(const Json& config, Shape* s, LlamaKind kind, const char* what) {
    const Json use = config.find("use_sliding_window"), types = config.find("layer_types");
    if (kind.qwen() && !is_null(use) && use.kind() != Json::boolean)
        refuse(what, "use_sliding_window", use, "true or false");
    const bool sizeless = config.find("sliding_window").text() == "null";
    const bool on = kind.window && !sizeless && (!kind.qwen() || use.text() == "true"), chooses = on && kind.qwen();
    const int W = on ? size_or(4096, config, "sliding_window", kContext, what) : 0;
    int from = chooses ? size_or(28, config, "max_window_layers", {"from 0 to 65536", 0, 65536}, what) : 0;
    int n = 0, whole = 0;               // layers of layer_types, and those of them without a window
    for (JsonItems type(types); type.next(); n++) {
        const bool full = type.value.text() == "full_attention";
        if (full ? whole < n : !chooses || type.value.text() != "sliding_attention")
            refuse(what, "layer_types", type.value, chooses ? "full_attention, behind it sliding_attention"
                                                            : "full_attention");
        whole += full;
    }
    if (chooses && !is_null(types)) from = whole;
    if (chooses && !is_null(types) && n != s->L) refuse(what, "layer_types", types, format("%d of them", s->L));
    if (from >= s->L) return;
    window(*s) = W;
    window_from(*s) = from;
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

void read_llama(const Json& config, Shape* s, LlamaKind kind, const char* what) {
    refuse_others(config, kind, what);
    read_window(config, s, kind, what);
    // transformers' defaults for absent keys differ between the kinds. Mistral's are 8 key/value heads, and Qwen's 32,
    // and in Qwen3 heads of 128 elements, whatever the model's size; so a Qwen must have these keys.
    const auto size = [&](const char* key, const Limits& limits, bool required, int otherwise) {
        return required ? read_size(config, key, limits, what) : size_or(otherwise, config, key, limits, what);
    };
    const char* const kv = "num_key_value_heads";
    kv_heads(*s) = size(kv, kHeads, kind.qwen(), kind.mistral() && !config.find(kv) ? 8 : s->NH);
    head_size(*s) = size("head_dim", kHeadSize, kind.norms, s->C / s->NH);
    const Json tied = config.find("tie_word_embeddings");
    if (tied && tied.kind() != Json::boolean) refuse(what, "tie_word_embeddings", tied, "true or false");
    untied_head(*s) = tied.text() != "true";
    if (!is_null(config.find("attention_dropout"))) read_number(config, "attention_dropout", kBelowOne, what);
    read_rope(config, s, kind, what);
}
