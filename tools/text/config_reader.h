// config_reader.h -- reads config.json of Hugging Face's models, by the keys that models declare (shape.h).
#pragma once
#include <string>
#include <string_view>
#include "models/config.h"

// kExitBadContent for a model that is not in models/list, or for a key that is missing, bad or not supported here.
ModelConfig parse_config(std::string_view text, const char* what);
// Reads a folder's config.json. kExitBadContent also if the sizes need more bytes than the files of weights have, so
// that a damaged size does not decide how much is allocated.
ModelConfig read_config(const std::string& folder);
// Both return the number under a key. kExitBadContent if it is missing or outside the limits.
int read_size(const Json& json, const char* key, const Limits& limits, const char* what);
float read_number(const Json& json, const char* key, const Limits& limits, const char* what);
