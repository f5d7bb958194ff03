// config.h -- reads and writes Hugging Face's config.json, by the keys that models declare (shape.h).
#pragma once
#include <string>
#include <string_view>
#include "models/shape.h"

struct ModelConfig {
    const ModelInfo* info = nullptr;
    Shape shape;
    std::string text = "";          // the config.json that this was read from; "": a new model
};

// Returns the text of config.json: config.text with the values of `shape` and with the members of the object `changes`.
std::string config_json(const ModelConfig& config, const std::string& changes = "{}");
// kExitBadContent for a model that is not in models/list, or for a key that is missing, bad or not supported here.
ModelConfig parse_config(std::string_view text, const char* what);
// Reads a folder's config.json. kExitBadContent also if the sizes need more bytes than the files of weights have, so
// that a damaged size does not decide how much is allocated.
ModelConfig read_config(const std::string& folder);
// Returns the text of an integer, or of a float with the fewest digits that read back as the same float.
std::string number_text(double x);
// Both return the number under a key. kExitBadContent if it is missing or outside the limits.
int read_size(const Json& json, const char* key, const Limits& limits, const char* what);
float read_number(const Json& json, const char* key, const Limits& limits, const char* what);
