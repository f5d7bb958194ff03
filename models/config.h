// config.h -- config.json as Hugging Face writes it, driven by what models declare (shape.h).
#pragma once
#include <string>
#include <string_view>
#include "models/shape.h"

struct ModelConfig {
    const ModelInfo* info = nullptr;
    Shape shape;
    int eot = -1;                   // the end-of-text token; -1: none is named
    int bot = -1;                   // what a text begins with; -1: the same
    bool no_eot = false;            // config.json says that there is none
};

std::string config_json(const ModelConfig& config);
// kExitBadContent for a model that is not in models/list, for a missing or bad key, for a value not computed here.
ModelConfig parse_config(std::string_view text, const char* what);
// Reads a folder's config.json. kExitBadContent also if the sizes need more than model.safetensors can hold: a damaged
// size must not decide how much is allocated.
ModelConfig read_config(const std::string& folder);
// A size, or a float in as few digits as read it back.
std::string number_text(double x);
// The number under a key. kExitBadContent if it is missing or outside the limits.
int read_size(const Json& json, const char* key, const Limits& limits, const char* what);
float read_number(const Json& json, const char* key, const Limits& limits, const char* what);
