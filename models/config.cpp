// config.cpp -- see config.h.
#include "models/config.h"
#include <charconv>
#include <cmath>
#include "src/base/common.h"
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
