// config.h -- writes Hugging Face's config.json, by the keys that models declare (shape.h). config_reader.h reads it.
#pragma once
#include <string>
#include "models/shape.h"

struct ModelConfig {
    const ModelInfo* info = nullptr;
    Shape shape;
    std::string text = "";          // the config.json that this was read from; "": a new model
};

// Returns the text of config.json: config.text with the values of `shape` and with the members of the object `changes`.
std::string config_json(const ModelConfig& config, const std::string& changes = "{}");
// Returns the text of an integer, or of a float with the fewest digits that read back as the same float.
std::string number_text(double x);
