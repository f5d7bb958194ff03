// test_config.cpp -- config.json of every model: written, read back, and refused by field.
#include <unistd.h>
#include <algorithm>
#include <cstring>
#include <set>
#include "tools/text/config_reader.h"
#include "models/llama.h"
#include "src/base/common.h"
#include "src/base/file.h"
#include "tests/models/small_shape.h"
#include "tests/test.h"

namespace {

ModelConfig parse(const std::string& text) { return parse_config(text, "config.json"); }

// Numbers that differ from key to key, and that the model takes.
ModelConfig some_config(const ModelInfo& info) {
    ModelConfig config;
    config.info = &info;
    config.shape = small_shape(info, 48);
    config.shape.L = 3;
    config.shape.T = 100;
    config.shape.NH = 6;
    for (const auto& [option, number] : {std::pair("layers", &Shape::L), {"heads", &Shape::NH}})
        if (std::ranges::find(info.keys, std::string(option), &ShapeKey::option) == info.keys.end())
            config.shape.*number = 0;
    set_vocabulary(&config.shape, 257);
    if (!info.dropouts.empty()) config.shape.dropout = 0.25f;
    EXPECT(info.check(config.shape).empty(), "%s", info.check(config.shape).c_str());
    return config;
}

// Returns the shape with another value of a key that the model takes.
Shape with_another(const ModelInfo& info, const Shape& shape, const ShapeKey& key) {
    const double old = key.get(shape);
    for (const double x : {1.1 * old, old + 1, old - 1, old + 8, 2 * old, old / 2, key.limits.high, key.limits.low}) {
        Shape other = shape;
        key.set(&other, x);
        if (!key.limits.hold(x) || key.get(other) == old) continue;
        const double set = key.get(other);
        if (info.check(other).empty() && key.get(other) == set) return other;
    }
    FAIL("%s: --%s: %s takes no value but %g of it", info.name, key.option, info.name, old);
}

// Returns the text with another value of a key; "": without the key.
std::string without(const std::string& text, const std::string& key, const std::string& value) {
    const std::string rest = text.substr(text.find("\"" + key + "\""));
    const std::string field = rest.substr(0, rest.find_first_of(",\n"));
    if (value.empty()) return replaced(text, field + ",\n", "");
    return replaced(text, field, "\"" + key + "\": " + value);
}

const std::string kGpt2 =
    R"({"model_type":"gpt2","n_layer":2,"n_head":2,"n_embd":64,"n_positions":32,"vocab_size":256})";

}  // namespace

TEST(round_trip_of_every_model) {
    for (const ModelInfo* info : all_models()) {
        ModelConfig config = some_config(*info);
        const std::string text = config_json(config, R"({"eos_token_id":[256,3]})");
        const ModelConfig back = parse(text);
        EXPECT(back.info == info && back.text == text, "%s: model or text", info->name);
        EXPECT(memcmp(&back.shape, &config.shape, sizeof back.shape) == 0, "%s: shape", info->name);
        EXPECT(config_json(back) == text, "%s: written again: %s", info->name, config_json(back).c_str());
        EXPECT(has(config_json(config), "\"eos_token_id\": null"), "%s",
               config_json(config).c_str());
    }
}

TEST(each_key_has_a_number_of_its_own) {
    for (const ModelInfo* info : all_models()) {
        Shape shape;
        std::set<const void*> numbers;
        for (const ShapeKey& key : info->keys) {
            const void* const number = std::visit([&](auto at) -> const void* { return &at(shape); }, key.at);
            EXPECT(numbers.insert(number).second, "%s: --%s has the number of another key", info->name, key.option);
        }
    }
}

// Each key alone with another value. What one half of a declaration writes, the other reads.
TEST(round_trip_of_every_key) {
    for (const ModelInfo* info : all_models()) {
        ModelConfig config = some_config(*info);
        const Shape usual = config.shape;
        for (const ShapeKey& key : info->keys) {
            config.shape = with_another(*info, usual, key);
            const Shape back = parse(config_json(config)).shape;
            EXPECT(key.get(back) == key.get(config.shape), "%s: --%s %g comes back as %g", info->name, key.option,
                   key.get(config.shape), key.get(back));
            EXPECT(memcmp(&back, &config.shape, sizeof back) == 0, "%s: --%s %g comes back with another shape",
                   info->name, key.option, key.get(config.shape));
            config.shape = usual;
            if (!*key.hf || key.absent == ShapeKey::kNone) continue;
            for (const char* value : {"null", ""})
                EXPECT(key.get(parse(without(config_json(config), key.hf, value)).shape) == [&] {
                    Shape absent = usual;
                    key.set(&absent, key.absent);
                    return key.get(absent);
                }(), "%s: without %s", info->name, key.hf);
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
    for (const char* part : {"\"dtype\"", "bos_token_id"})
        EXPECT(!has(text, part), "%s in %s", part, text.c_str());
    EXPECT(config_json(config, R"({"eos_token_id":5})").find("\"eos_token_id\": 5,") != std::string::npos, "changed");
}

TEST(refusals_name_the_key_of_every_model) {
    for (const ModelInfo* info : all_models()) {
        const std::string text = config_json(some_config(*info));
        std::vector<ShapeKey> keys = {
            {"vocab-size", "vocab_size", [](Shape& s) -> int& { return s.V; }, kSize, "", ""}};
        for (const ShapeKey& key : info->keys)
            if (*key.hf) keys.push_back(key);
        for (const ShapeKey& key : keys) {
            const bool whole = std::holds_alternative<int& (*)(Shape&)>(key.at), needed = key.absent == ShapeKey::kNone;
            const auto refused = [&](const std::string& value) {
                expect_error(kExitBadContent, key.hf + std::string(": got"),
                             [&] { parse(without(text, key.hf, value)); });
            };
            for (const char* value : {"-1", "\"2\"", "[1]", "true", "1e400"}) refused(value);
            if (!key.limits.hold(0)) refused("0");
            if (whole) for (const char* value : {"2147483648", "18446744073709551616", "2.5"}) refused(value);
            if (!needed) continue;
            refused("null");
            expect_error(kExitBadContent, key.hf + std::string(": it is missing"),
                         [&] { parse(without(text, key.hf, "")); });
        }
        const bool scaled = has(text, "\"rope_scaling\": {");      // then rope_parameters are not read
        for (const FixedKey& key : info->fixed(some_config(*info).shape)) {
            if (scaled && key.hf == std::string("rope_parameters")) continue;
            expect_error(kExitBadContent, key.hf + std::string(": got \"x\""), [&] {
                parse(replaced(text, format("\"%s\": %s", key.hf, key.value.c_str()), format("\"%s\": \"x\"", key.hf)));
            });
        }
    }
}

TEST(configs_of_gpt2) {
    const auto with = [](const std::string& more) { return replaced(kGpt2, "}", "," + more + "}"); };
    EXPECT(parse(kGpt2).shape.C == 64 && parse(kGpt2).shape.Vp == 256 &&
               parse(kGpt2).shape.dropout == 0.1f);
    parse(with(R"("n_inner":256,"activation_function":"gelu_pytorch_tanh","layer_norm_epsilon":1e-5,)"
               R"("scale_attn_weights":true,"eos_token_id":50256)"));
    const struct { std::string text; const char* part; } bad[] = {
        {"", "byte 0"}, {"[]", "model_type: it is missing"},
        {replaced(kGpt2, "gpt2", "elsewhere"), "model_type: got \"elsewhere\""},
        {replaced(kGpt2, "gpt2", "\\u001b[2J"), "model_type: got \"\\u001b[2J\""},
        {replaced(kGpt2, "\"n_head\":2", "\"n_head\":3"), "got 3 heads for 64 channels"},
        {with("\"n_inner\":128"), "n_inner: got 128, want null"},
        {with("\"activation_function\":\"gelu\""), "activation_function: got \"gelu\""},
        {with("\"activation_function\":\"\\u001b[2J\""), "activation_function: got \"\\u001b[2J\""},
        {with("\"activation_function\":null"), "activation_function: got null"},
        {with("\"layer_norm_epsilon\":1e-6"), "layer_norm_epsilon: got 1e-6"},
        {with("\"layer_norm_epsilon\":\"1e-5\""), "layer_norm_epsilon"},
        {with("\"scale_attn_weights\":false"), "scale_attn_weights: got false, want true"},
        {with("\"tie_word_embeddings\":false"), "tie_word_embeddings"},
        {with("\"scale_attn_by_inverse_layer_idx\":true"), "scale_attn_by_inverse_layer_idx: got true"},
        {with("\"add_cross_attention\":1"), "add_cross_attention: got 1"},
        {with("\"resid_pdrop\":1"), "resid_pdrop: got 1"}, {with("\"attn_pdrop\":-0.1"), "attn_pdrop"},
        {with("\"quantization_config\":{}"), "quantization_config"}};
    for (const auto& c : bad) expect_error(kExitBadContent, c.part, [&] { parse(c.text); });
}

// Forms of published config.json, and what stands for what in them (transformers 5.23).
TEST(configs_of_llama) {
    const std::string base = R"({"model_type":"llama","hidden_size":64,"intermediate_size":96,"num_hidden_layers":2,)"
                             R"("num_attention_heads":4,"max_position_embeddings":128,"vocab_size":256)";
    const auto with = [&](const std::string& more) { return base + (more.empty() ? "" : ",") + more + "}"; };
    const auto rope = [&](const std::string& more) {
        Shape s = parse(with(more)).shape;
        return format("%g %g %g %g %d", double(rope_theta(s)), double(rope_factor(s)), double(rope_low(s)),
                      double(rope_high(s)), rope_context(s));
    };
    Shape s = parse(with("")).shape;
    EXPECT(kv_heads(s) == 4 && head_size(s) == 16 && untied_head(s) == 1 && norm_eps(s) == 1e-6f, "what is absent");
    const std::string llama3 = R"({"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0)";
    const struct { std::string text; const char* want; } good[] = {
        {"", "10000 1 1 4 8192"},
        {R"("rope_theta":500000.0,"rope_scaling":null)", "500000 1 1 4 8192"},
        {R"("rope_parameters":{"rope_type":"default","rope_theta":500})", "500 1 1 4 8192"},
        {R"("rope_scaling":)" + llama3 + R"(,"original_max_position_embeddings":64})", "10000 8 1 4 64"},
        {R"("rope_theta":50,"rope_scaling":)" + llama3 + "}", "50 8 1 4 128"},
        {R"("original_max_position_embeddings":32,"rope_scaling":)" + llama3 + "}", "10000 8 1 4 32"},
        {R"("rope_parameters":{"rope_theta":500},"rope_scaling":)" + llama3 + "}", "10000 8 1 4 128"},
        {R"("rope_scaling":{},"rope_parameters":)" + llama3 + R"(,"rope_theta":500})", "500 8 1 4 128"},
        {R"("rope_scaling":{"type":"default"})", "10000 1 1 4 8192"},
        {R"("rope_scaling":{"type":"linear","factor":1.0},"hidden_act":"swish","loss_scale":NaN)", "10000 1 1 4 8192"},
    };
    for (const auto& c : good) EXPECT(rope(c.text) == c.want, "%s: %s", c.text.c_str(), rope(c.text).c_str());
    for (const char* fine : {R"("layer_types":null,"sliding_window":32)", R"("quantization_config":null)",
                             R"("attention_dropout":0.1)", R"("partial_rotary_factor":1.0)",
                             R"("layer_types":["full_attention","full_attention"])"})
        parse(with(fine));
    const struct { const char *text, *part; } bad[] = {
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
        {R"("head_dim":256)", "head_dim: got 256"}, {R"("rms_norm_eps":0)", "rms_norm_eps: got 0"},
    };
    for (const auto& c : bad) expect_error(kExitBadContent, c.part, [&] { parse(with(c.text)); });
    const std::string qwen = replaced(with(""), "llama", "qwen3");
    expect_error(kExitBadContent, "num_key_value_heads: it is missing", [&] { parse(qwen); });
    expect_error(kExitBadContent, "head_dim: it is missing",
                 [&] { parse(replaced(qwen, "}", ",\"num_key_value_heads\":4}")); });
}

TEST(a_folder) {
    Folder dir;
    expect_error(kExitNoInput, "config.json", [&] { read_config(dir.path); });
    write_file_atomic(path_join(dir.path, "config.json"), kGpt2);
    EXPECT_EQ(read_config(dir.path).shape.T, 32);
    write_file_atomic(path_join(dir.path, "model.safetensors"), "four");
    expect_error(kExitBadContent, "parameters, want at most 2", [&] { read_config(dir.path); });
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
