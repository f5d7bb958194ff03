// config_reader.cpp -- see config_reader.h.
#include "tools/text/config_reader.h"
#include "build/models.h"
#include "src/base/common.h"
#include "src/base/file.h"
#include "src/base/json.h"

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

// Returns the model's reader of the keys that `keys` and `fixed` cannot describe, or null.
static ConfigReader reader_of(const ModelInfo* info) {
#define X(name) if (info == &name##_info) return name##_read;
    MODELS(X)
#undef X
    return nullptr;
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
    if (const ConfigReader read = reader_of(config.info)) read(json, &shape, what);
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
    bool found = false;
    uint64_t bytes = 0;
    for (const std::string& name : list_directory(folder)) {
        if (!name.starts_with("model") || !name.ends_with(".safetensors")) continue;
        found = true;
        bytes += InputFile(path_join(folder, name)).size;
    }
    const uint64_t n = count_parameters(config.info->tensors(config.shape)), most = bytes / 2;      // 2 bytes each
    if (found && n > most)
        die_content(path, "a model of " + with_commas(n) + " parameters",
                    "at most " + with_commas(most) + ", all that the weights beside it have room for");
    return config;
}
