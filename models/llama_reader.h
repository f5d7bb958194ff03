// llama_reader.h -- for variants of the Llama family whose own NAME_read reads more keys.
#pragma once
#include "models/llama.h"

// Reads the keys of config.json that all kinds have. kExitBadContent for keys that are not supported here.
void read_llama(const Json& config, Shape* shape, LlamaKind kind, const char* what);
