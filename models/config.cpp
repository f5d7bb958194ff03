// config.cpp -- see config.h.
#include "models/config.h"
#include <charconv>
#include <cmath>
#include "src/base/common.h"
#include "src/base/file.h"
#include "src/base/json.h"

std::string number_text(double x) {
    char digits[64];
    if (x == std::floor(x) && std::fabs(x) < 1e15) return std::to_string(int64_t(x));
    return {digits, std::to_chars(digits, std::end(digits), float(x)).ptr};
}

std::string config_json(const ModelConfig& config, const std::string& changes) {
    const ModelInfo& info = *config.info;
    const Shape& shape = config.shape;
    JsonMembers all;
    if (!config.text.empty()) all = json_members(parse_json(config.text, "config.json"));
    const auto add = [&](const std::string& key, const std::string& value) { set_member(&all, key, value); };
    add("architectures", format("[\"%s\"]", info.architecture));
    add("model_type", json_quote(info.name));
    add("vocab_size", std::to_string(shape.V));
    for (const ShapeKey& key : info.keys)
        if (*key.hf) add(key.hf, number_text(key.get(shape)));
    for (const FixedKey& key : info.fixed(shape)) add(key.hf, key.value);
    for (const char* key : info.dropouts) add(key, json_number(double(shape.dropout)));
    if (config.text.empty())
        for (const char* key : {"bos_token_id", "eos_token_id"}) add(key, "null");
    for (const auto& [key, value] : json_members(parse_json(changes, "changes"))) add(key, value);
    add("dtype", "");                                   // removes it: the newer name of torch_dtype
    add("torch_dtype", "\"float32\"");
    std::vector<std::string> lines;
    for (const auto& [key, value] : all) lines.push_back("\n  " + json_quote(key) + ": " + value);
    return "{" + join(lines, ",") + "\n}\n";
}

int read_size(const Json& json, const char* key, const Limits& limits, const char* what) {
    const Json value = json.at(key, what);
    if (uint64_t n; value.as_u64(&n) && limits.hold(double(n))) return int(n);
    refuse(what, key, value, format("an integer %s", limits.want));
}

float read_number(const Json& json, const char* key, const Limits& limits, const char* what) {
    const Json value = json.at(key, what);
    if (double x; value.as_double(&x) && limits.hold(x)) return float(x);
    refuse(what, key, value, format("a number %s", limits.want));
}

static void read_key(const Json& json, const ShapeKey& key, Shape* shape, const char* what) {
    const Json value = json.find(key.hf);
    const bool there = value && value.kind() != Json::null, whole = std::holds_alternative<int& (*)(Shape&)>(key.at);
    if (!there && key.absent != ShapeKey::kNone) key.set(shape, key.absent);
    else if (whole) key.set(shape, read_size(json, key.hf, key.limits, what));
    else key.set(shape, double(read_number(json, key.hf, key.limits, what)));
}

static bool same_value(const Json& json, const std::string& want) {
    double x, y;
    return json_shown(json) == want || (json.as_double(&x) && parse_whole(want, &y) && x == y);
}

static void read_dropout(const Json& json, const ModelInfo& info, Shape* shape, const char* what) {
    for (const char* key : info.dropouts) {
        double x = 0.1;                                 // Hugging Face's default
        if (const Json value = json.find(key); value && (!value.as_double(&x) || !kBelowOne.hold(x)))
            refuse(what, key, value, format("a number %s", kBelowOne.want));
        if (key == info.dropouts[0]) shape->dropout = float(x);
        if (float(x) != shape->dropout)
            warn("%s: %s: got %g, but %s, %g, is taken for all", what, key, x, info.dropouts[0],
                 double(shape->dropout));
    }
}

ModelConfig parse_config(std::string_view text, const char* what) {
    const Json json = parse_json(text, what), type = json.at("model_type", what);
    ModelConfig config;
    std::string known;
    for (const ModelInfo* model : all_models()) known += (known.empty() ? "" : " or ") + json_quote(model->name);
    if (type.kind() == Json::string) config.info = find_model(type.text());
    if (!config.info) refuse(what, "model_type", type, known);
    const ModelInfo& info = *config.info;
    Shape& shape = config.shape;
    for (const ShapeKey& key : info.keys)
        if (*key.hf) read_key(json, key, &shape, what);
    if (info.read) info.read(json, &shape, what);
    set_vocabulary(&shape, read_size(json, "vocab_size", {"from 1 to 16777216", 1, 1 << 24}, what));
    if (const std::string wrong = info.check(shape); !wrong.empty())
        die(kExitBadContent, "%s: %s", what, wrong.c_str());
    for (const FixedKey& key : info.fixed(shape)) {     // an absent key has Hugging Face's default
        const Json value = json.find(key.hf);
        if (!value || !key.compare || same_value(value, key.value) || same_value(value, key.also)) continue;
        refuse(what, key.hf, value, key.value);
    }
    const Json quantized = json.find("quantization_config");
    if (quantized && quantized.kind() != Json::null) refuse(what, "quantization_config", quantized, "none");
    read_dropout(json, info, &shape, what);
    config.text = text;
    return config;
}

ModelConfig read_config(const std::string& folder) {
    const std::string path = path_join(folder, "config.json");
    const ModelConfig config = parse_config(read_file(path), path.c_str());
    const std::vector<std::string> files = expand_glob(path_join(folder, "model*.safetensors"));
    uint64_t bytes = 0;
    for (const std::string& file : files) bytes += InputFile(file).size;
    const uint64_t n = count_parameters(config.info->tensors(config.shape)), most = bytes / 2;      // 2 bytes each
    if (!files.empty() && n > most)
        die_content(path, "a model of " + with_commas(n) + " parameters",
                    "at most " + with_commas(most) + ", all that the weights beside it have room for");
    return config;
}
