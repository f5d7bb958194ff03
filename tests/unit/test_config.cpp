// test_config.cpp -- config.json of every model: written, read back, and refused by field.
#include <algorithm>
#include <cstring>
#include <set>
#include "tools/text/config_reader.h"
#include "models/llama.h"
#include "tests/models/small_shape.h"
#include "tests/test.h"

namespace {

ModelConfig parse(const std::string& text) { return parse_config(text, "config.json"); }

// Numbers that differ from key to key, and that the model takes.
ModelConfig some_config(const ModelInfo& info) {
    ModelConfig config = {&info, small_shape(info, 48)};
    config.shape.L = 3;
    config.shape.T = 100;
    config.shape.NH = 6;
    for (const auto& [option, number] : {std::pair("layers", &Shape::L), {"heads", &Shape::NH}})
        if (std::ranges::find(info.keys, std::string(option), &ShapeKey::option) == info.keys.end())
            config.shape.*number = 0;
    set_vocabulary(&config.shape, 257);
    if (!info.dropouts.empty()) config.shape.dropout = 0.25f;
    EXPECT_EQ(info.check(config.shape), "");
    return config;
}

// Returns the shape with another value of a key that the model takes.
Shape with_another(const ModelInfo& info, const Shape& shape, const ShapeKey& key) {
    const double old = key.get(shape);
    for (const double x : {1.1 * old, old + 1, old - 1, old + 8, 2 * old, old / 2, key.limits.high, key.limits.low}) {
        Shape other = shape;
        key.set(&other, x);
        const double set = key.get(other);
        if (key.limits.hold(x) && set != old && info.check(other).empty() && key.get(other) == set) return other;
    }
    FAIL("%s takes no value but %g of it", info.name, old);
}

// Returns the text with another value of a key; "": without the key.
std::string without(const std::string& text, const std::string& key, const std::string& value) {
    const std::string rest = text.substr(text.find("\"" + key + "\""));
    const std::string field = rest.substr(0, rest.find_first_of(",\n"));
    if (value.empty()) return replaced(text, field + ",\n", "");
    return replaced(text, field, "\"" + key + "\": " + value);
}

bool same(const Shape& a, const Shape& b) { return memcmp(&a, &b, sizeof a) == 0; }

const std::string kGpt2 =
    R"({"model_type":"gpt2","n_layer":2,"n_head":2,"n_embd":64,"n_positions":32,"vocab_size":256})";

}  // namespace

TEST(round_trip_of_every_model) {
    for (const ModelInfo* info : all_models()) {
        const Row row(info->name);
        const ModelConfig config = some_config(*info);
        const std::string text = config_json(config, R"({"eos_token_id":[256,3]})");
        const ModelConfig back = parse(text);
        EXPECT(back.info == info && back.text == text && same(back.shape, config.shape), "%s", text.c_str());
        EXPECT_EQ(config_json(back), text);
        EXPECT(has(config_json(config), "\"eos_token_id\": null"), "%s", config_json(config).c_str());
    }
}

// Each key alone with another value. What one half of a declaration writes, the other reads.
TEST(round_trip_of_every_key) {
    for (const ModelInfo* info : all_models()) {
        ModelConfig config = some_config(*info);
        const Shape usual = config.shape;
        std::set<const void*> numbers;
        for (const ShapeKey& key : info->keys) {
            const Row row(std::string(info->name) + ": --" + key.option);
            const void* const number = std::visit([&](auto at) -> const void* { return &at(config.shape); }, key.at);
            EXPECT(numbers.insert(number).second, "it has the number of another key");
            config.shape = with_another(*info, usual, key);
            const Shape back = parse(config_json(config)).shape;
            EXPECT_EQ(key.get(back), key.get(config.shape));
            EXPECT(same(back, config.shape), "%g comes back with another shape", key.get(config.shape));
            config.shape = usual;
            if (!*key.hf || key.absent == ShapeKey::kNone) continue;
            Shape absent = usual;
            key.set(&absent, key.absent);
            for (const char* value : {"null", ""})
                EXPECT_EQ(key.get(parse(without(config_json(config), key.hf, value)).shape), key.get(absent));
        }
    }
}

// What this program does not know, a fine-tune keeps.
TEST(config_of_a_fine_tune) {
    const std::string more = R"("eos_token_id":[3,7],"pad_token_id":9,"use_cache":true,"dtype":"bfloat16",)"
                             R"("task_specific_params":{"a": [1, {"b": null}]},"_name_or_path":"x/y")";
    ModelConfig config = parse(replaced(kGpt2, "}", "," + more + "}"));
    config.shape.T = 16;
    const std::string text = config_json(config);
    for (const char* part : {"\"eos_token_id\": [3,7],", "\"pad_token_id\": 9,", "\"use_cache\": true,",
                             "\"task_specific_params\": {\"a\": [1, {\"b\": null}]},", "\"_name_or_path\": \"x/y\",",
                             "\"n_positions\": 16,", "\"torch_dtype\": \"float32\""})
        EXPECT(has(text, part), "no %s in %s", part, text.c_str());
    for (const char* part : {"\"dtype\"", "bos_token_id"}) EXPECT(!has(text, part), "%s in %s", part, text.c_str());
    EXPECT(has(config_json(config, R"({"eos_token_id":5})"), "\"eos_token_id\": 5,"), "changed");
}

TEST(refusals_name_the_key_of_every_model) {
    for (const ModelInfo* info : all_models()) {
        const Row row(info->name);
        const ModelConfig config = some_config(*info);
        const std::string text = config_json(config);
        std::vector<ShapeKey> keys = {
            {"vocab-size", "vocab_size", [](Shape& s) -> int& { return s.V; }, kSize, "", ""}};
        std::ranges::copy_if(info->keys, std::back_inserter(keys), [](const ShapeKey& key) { return *key.hf; });
        for (const ShapeKey& key : keys) {
            const auto read = [&](const std::string& value) { parse(without(text, key.hf, value)); };
            std::vector<std::string> bad = {"-1", "\"2\"", "[1]", "true", "1e400"};
            if (!key.limits.hold(0)) bad.push_back("0");
            if (std::holds_alternative<int& (*)(Shape&)>(key.at))
                bad.insert(bad.end(), {"2147483648", "18446744073709551616", "2.5"});
            if (key.absent == ShapeKey::kNone) bad.push_back("null");
            for (const std::string& value : bad)
                expect_refusals(kExitBadContent, {{value, key.hf + std::string(": got")}}, read);
            if (key.absent == ShapeKey::kNone)
                expect_refusals(kExitBadContent, {{"", key.hf + std::string(": it is missing")}}, read);
        }
        const bool scaled = has(text, "\"rope_scaling\": {");      // then rope_parameters are not read
        for (const FixedKey& key : info->fixed(config.shape)) {
            if (scaled && key.hf == std::string("rope_parameters")) continue;
            expect_error(kExitBadContent, key.hf + std::string(": got \"x\""), [&] {
                parse(replaced(text, format("\"%s\": %s", key.hf, key.value.c_str()), format("\"%s\": \"x\"", key.hf)));
            });
        }
    }
}

TEST(configs_of_gpt2) {
    const auto with = [](const std::string& more) { return replaced(kGpt2, "}", "," + more + "}"); };
    const Shape shape = parse(kGpt2).shape;
    EXPECT(shape.C == 64 && shape.Vp == 256 && shape.dropout == 0.1f);
    parse(with(R"("n_inner":256,"activation_function":"gelu_pytorch_tanh","layer_norm_epsilon":1e-5,)"
               R"("scale_attn_weights":true,"eos_token_id":50256)"));
    const Refusals texts = {
        {"", "byte 0"}, {"[]", "model_type: it is missing"},
        {replaced(kGpt2, "gpt2", "elsewhere"), "model_type: got \"elsewhere\""},
        {replaced(kGpt2, "gpt2", "\\u001b[2J"), "model_type: got \"\\u001b[2J\""},
        {replaced(kGpt2, "\"n_head\":2", "\"n_head\":3"), "got 3 heads for 64 channels"}};
    expect_refusals(kExitBadContent, texts, parse);
    const Refusals keys = {
        {R"("n_inner":128)", "n_inner: got 128, want null"},
        {R"("activation_function":"gelu")", "activation_function: got \"gelu\""},
        {R"("activation_function":"\u001b[2J")", "activation_function: got \"\\u001b[2J\""},
        {R"("activation_function":null)", "activation_function: got null"},
        {R"("layer_norm_epsilon":1e-6)", "layer_norm_epsilon: got 1e-6"},
        {R"("layer_norm_epsilon":"1e-5")", "layer_norm_epsilon"},
        {R"("scale_attn_weights":false)", "scale_attn_weights: got false, want true"},
        {R"("tie_word_embeddings":false)", "tie_word_embeddings"},
        {R"("scale_attn_by_inverse_layer_idx":true)", "scale_attn_by_inverse_layer_idx: got true"},
        {R"("add_cross_attention":1)", "add_cross_attention: got 1"}, {R"("resid_pdrop":1)", "resid_pdrop: got 1"},
        {R"("attn_pdrop":-0.1)", "attn_pdrop"}, {R"("quantization_config":{})", "quantization_config"}};
    expect_refusals(kExitBadContent, keys, [&](const std::string& more) { parse(with(more)); });
}

// Forms of published config.json, and what stands for what in them (transformers 5.23).
TEST(configs_of_llama) {
    const std::string base = R"({"model_type":"llama","hidden_size":64,"intermediate_size":96,"num_hidden_layers":2,)"
                             R"("num_attention_heads":4,"max_position_embeddings":128,"vocab_size":256})";
    const auto read = [&](const std::string& more) {
        return parse(more.empty() ? base : replaced(base, "}", "," + more + "}")).shape;
    };
    Shape usual = read("");
    EXPECT(kv_heads(usual) == 4 && head_size(usual) == 16 && untied_head(usual) == 1 && norm_eps(usual) == 1e-6f,
           "what is absent");
    const std::string llama3 = R"({"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0)";
    const char* const plain = "10000 1 1 4 8192";
    const std::pair<std::string, const char*> good[] = {
        {"", plain}, {R"("rope_theta":500000.0,"rope_scaling":null)", "500000 1 1 4 8192"},
        {R"("rope_parameters":{"rope_type":"default","rope_theta":500})", "500 1 1 4 8192"},
        {R"("rope_scaling":)" + llama3 + R"(,"original_max_position_embeddings":64})", "10000 8 1 4 64"},
        {R"("rope_theta":50,"rope_scaling":)" + llama3 + "}", "50 8 1 4 128"},
        {R"("original_max_position_embeddings":32,"rope_scaling":)" + llama3 + "}", "10000 8 1 4 32"},
        {R"("rope_parameters":{"rope_theta":500},"rope_scaling":)" + llama3 + "}", "10000 8 1 4 128"},
        {R"("rope_scaling":{},"rope_parameters":)" + llama3 + R"(,"rope_theta":500})", "500 8 1 4 128"},
        {R"("rope_scaling":{"type":"default"})", plain},
        {R"("rope_scaling":{"type":"linear","factor":1.0},"hidden_act":"swish","loss_scale":NaN)", plain},
        {R"("layer_types":null,"sliding_window":32)", plain}, {R"("quantization_config":null)", plain},
        {R"("attention_dropout":0.1)", plain}, {R"("partial_rotary_factor":1.0)", plain},
        {R"("layer_types":["full_attention","full_attention"])", plain}};
    for (const auto& [more, want] : good) {
        const Row row(more);
        Shape s = read(more);
        EXPECT_EQ(format("%g %g %g %g %d", double(rope_theta(s)), double(rope_factor(s)), double(rope_low(s)),
                         double(rope_high(s)), rope_context(s)), want);
    }
    const Refusals bad = {
        {R"("rope_scaling":{"rope_type":"yarn","factor":2})", "rope_type: got \"yarn\""},
        {R"("rope_scaling":{"type":"linear","factor":2})", "rope_type: got \"linear\""},
        {R"("rope_scaling":{"rope_type":"llama3","factor":8})", "low_freq_factor: it is missing"},
        {R"("rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":4})",
         "high_freq_factor"},
        {R"("rope_scaling":3)", "rope_scaling: got 3"},
        {R"("rope_parameters":{"full_attention":{"rope_theta":500}})", "full_attention"},
        {R"("rope_parameters":{"rope_type":"default","partial_rotary_factor":0.5})", "partial_rotary_factor: got 0.5"},
        {R"("partial_rotary_factor":0.25)", "partial_rotary_factor: got 0.25"},
        {R"("rope_interleaved":true)", "rope_interleaved"},
        {R"("layer_types":["full_attention","chunked_attention"])", "layer_types: got \"chunked_attention\""},
        {R"("num_local_experts":8)", "num_local_experts"}, {R"("moe_intermediate_size":8)", "moe_intermediate_size"},
        {R"("hidden_act":"gelu")", "hidden_act: got \"gelu\""}, {R"("mlp_bias":true)", "mlp_bias: got true"},
        {R"("num_key_value_heads":3)", "--kv-heads: got 3"}, {R"("head_dim":12)", "--head-size: got 12"},
        {R"("head_dim":256)", "head_dim: got 256"}, {R"("rms_norm_eps":0)", "rms_norm_eps: got 0"}};
    expect_refusals(kExitBadContent, bad, read);
    const std::string qwen = replaced(base, "llama", "qwen3");
    expect_refusals(kExitBadContent, {
        {qwen, "num_key_value_heads: it is missing"},
        {replaced(qwen, "}", ",\"num_key_value_heads\":4}"), "head_dim: it is missing"}}, parse);
}

// What config.json says of windows: the window and the first layer that has it. Qwen's layers from max_window_layers on
// have it, or those of layer_types; all of Mistral's have it, and none of Llama's (transformers 5.24).
TEST(windows) {
    const auto read = [](const char* type, const std::string& more) {
        const std::string base = R"({"model_type":"%s","hidden_size":64,"intermediate_size":96,"num_hidden_layers":2,)"
                                 R"("head_dim":16,"num_attention_heads":4,"num_key_value_heads":4,"vocab_size":256,)"
                                 R"("max_position_embeddings":128%s%s})";
        return parse(format(base.c_str(), type, more.empty() ? "" : ",", more.c_str()));
    };
    const std::string on = R"("use_sliding_window":true)", types = R"("layer_types":["full_attention",)",
                      full = types + R"("full_attention"])", mixed = types + R"("sliding_attention"])",
                      sliding = replaced(mixed, "full", "sliding");
    const std::tuple<const char*, std::string, const char*> good[] = {
        {"qwen", on, "0 0"}, {"qwen", on + R"(,"max_window_layers":2)", "0 0"},
        {"qwen", on + R"(,"max_window_layers":28,"sliding_window":4096)", "0 0"},
        {"qwen", on + R"(,"max_window_layers":0,"sliding_window":null)", "0 0"},
        {"qwen", on + R"(,"max_window_layers":null)", "0 0"}, {"qwen", on + R"(,"max_window_layers":0,)" + full, "0 0"},
        {"qwen", R"("use_sliding_window":false,"max_window_layers":0)", "0 0"},
        {"qwen", R"("use_sliding_window":null,"max_window_layers":0)", "0 0"},
        {"qwen", on + R"(,"max_window_layers":1)", "4096 1"},
        {"qwen", on + R"(,"max_window_layers":0,"sliding_window":64,"layer_types":null)", "64 0"},
        {"qwen", on + R"(,"sliding_window":64,)" + mixed, "64 1"}, {"qwen", on + "," + sliding, "4096 0"},
        {"mistral", "", "4096 0"}, {"mistral", R"("sliding_window":null)", "0 0"},
        {"mistral", R"("sliding_window":7)", "7 0"}, {"mistral", R"("sliding_window":7,)" + full, "7 0"},
        {"llama", R"("sliding_window":7,"use_sliding_window":true)", "0 0"}};
    for (const auto& [type, more, want] : good)
        for (const char* kind : {"qwen2", "qwen3", "mistral", "llama"}) {
            if (!has(kind, type)) continue;
            const Row row(kind + (" " + more));
            const ModelConfig config = read(kind, more);
            Shape s = config.shape;
            EXPECT_EQ(format("%d %d", window(s), window_from(s)), want);
            const std::string text = config_json(config);
            EXPECT(same(parse(text).shape, s), "%s", text.c_str());
            const bool says = has(text, R"("use_sliding_window": true)");
            if (has(kind, "qwen")) EXPECT(says == (window(s) > 0), "%s", text.c_str());
        }
    for (const char* kind : {"qwen2", "qwen3"})
        expect_refusals(kExitBadContent, {
            {on + R"(,"max_window_layers":-1)", "max_window_layers: got -1"},
            {on + R"(,"max_window_layers":"2")", "max_window_layers: got \"2\""},
            {on + R"(,"max_window_layers":0,"sliding_window":0)", "sliding_window: got 0"},
            {on + "," + replaced(mixed, "sliding", "chunked"), "layer_types: got \"chunked_attention\""},
            {on + R"(,"layer_types":["sliding_attention","full_attention"])", "full_attention\", want full"},
            {on + R"(,"layer_types":["sliding_attention"])", "layer_types: got an array, want 2 of them"},
            {on + R"(,"layer_types":"x")", "layer_types: got \"x\""}, {mixed, "layer_types: got \"sliding_attention\""},
            {R"("use_sliding_window":1)", "use_sliding_window: got 1"},
            {R"("use_sliding_window":"true")", "use_sliding_window: got \"true\""}},
            [&](const std::string& more) { read(kind, more); });
    expect_refusals(kExitBadContent, {
        {R"("sliding_window":0)", "sliding_window: got 0"}, {R"("sliding_window":"x")", "sliding_window: got \"x\""},
        {sliding, "layer_types: got \"sliding_attention\", want full_attention"}},
        [&](const std::string& more) { read("mistral", more); });
}

// Mistral's 8 key/value heads are its own default.
TEST(heads_of_mistral) {
    const std::string base = R"({"model_type":"mistral","hidden_size":256,"intermediate_size":96,"vocab_size":256,)"
                             R"("num_hidden_layers":2,"num_attention_heads":16,"max_position_embeddings":128})";
    Shape absent = parse(base).shape, null = parse(replaced(base, "}", ",\"num_key_value_heads\":null}")).shape;
    EXPECT(kv_heads(absent) == 8 && kv_heads(null) == 16, "%d %d", kv_heads(absent), kv_heads(null));
}

TEST(a_folder) {
    const Folder dir;
    expect_error(kExitNoInput, "config.json", [&] { read_config(dir.path); });
    dir.add("config.json", kGpt2);
    EXPECT_EQ(read_config(dir.path).shape.T, 32);
    dir.add("model.safetensors", "four");
    expect_error(kExitBadContent, "parameters, want at most 2", [&] { read_config(dir.path); });
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
