// config.h -- reads and writes config.json in Hugging Face's form, from what models declare (shape.h).
#pragma once
#include <string>
#include <string_view>
#include "models/shape.h"

struct ModelConfig {
    const ModelInfo* info = nullptr;
    Shape shape;
    std::string text = "";          // the config.json that it was read from; "": a new model
};

// Returns config.json: that of config.text, with what `shape` and the members of the object `changes` say.
std::string config_json(const ModelConfig& config, const std::string& changes = "{}");
// kExitBadContent for a model that is not in models/list, a missing or bad key, or a value that is not supported here.
ModelConfig parse_config(std::string_view text, const char* what);
// Reads a folder's config.json. kExitBadContent also if the sizes need more than model.safetensors can hold: a damaged
// size must not decide how much is allocated.
ModelConfig read_config(const std::string& folder);
// Returns the text of an integer, or of a float with the fewest digits that read back as the same float.
std::string number_text(double x);
// These return the number under a key. kExitBadContent if it is missing or outside the limits.
int read_size(const Json& json, const char* key, const Limits& limits, const char* what);
float read_number(const Json& json, const char* key, const Limits& limits, const char* what);
