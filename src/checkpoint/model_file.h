// model_file.h -- models that are one file of another program. Read with distrust; tools/export.cpp writes them.
//
//     GGUF    "GGUF", u32 version 3, u64 tensors, u64 keys     little-endian; a text is u64 length and bytes
//             key       text name, u32 type, value             an array: u32 type, u64 count, elements
//             tensor    text name, u32 dimensions, u64 size of each (fastest first), u32 type, u64 offset
//             data      begin, like each tensor, at a multiple of 32; offsets count from there
//     llm.c   int32[256]: 20240326, version 3 (fp32) or 5 (bf16), T, V, L, NH, C, Vp; then each kind of tensor of GPT-2
//             for all layers, matrices as (outputs, inputs); the rows V..Vp-1 of wte are padding
#pragma once
#include <map>
#include <span>
#include "src/checkpoint/safetensors.h"

struct ModelFile {
    std::string config_json;        // as a Hugging Face folder would say it
    std::string split, vocabulary;  // GGUF's name of the split, and the end of tokenizer.json from "vocab" on, or empty
    SafeTensors weights = {};       // by GGUF's names; no matrix is transposed
    std::string chat_template = ""; // Jinja; GGUF's
};
ModelFile open_model_file(const std::string& path);         // kExitNoInput; kExitBadContent: neither, or not as above
// Fills arena.n floats; `theirs`: the file's tensors, as read_safetensors has them. Llama's q and k keep GGUF's order.
void read_model_file(const std::string& path, Arena theirs, const Arena& arena, float* values);

// What stands in front of a GGUF file's data. kExitBadContent as above.
struct GgufContents {
    std::map<std::string, std::string> keys;    // each value as JSON; null for NaN and infinities
    std::vector<SafeTensor> tensors;            // begin: behind the begin of the data; bytes: 0 of other types
    uint64_t data = 0;                          // where these begin
};
GgufContents read_gguf_head(const std::string& path);

// A number under "ARCHITECTURE.name", and the key of config.json that says the same.
struct GgufKey { const char *name, *hf; bool real = false; };           // real: f32, else u32
std::span<const GgufKey> gguf_keys(const std::string& architecture);    // its name is config.json's model_type
// "transformer.h.0.attn.c_attn.weight" -> "blk.0.attn_qkv.weight"; "" for a name that GGUF has none for.
std::string gguf_name(const std::string& hf);
