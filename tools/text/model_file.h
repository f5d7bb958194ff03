// model_file.h -- reads models that are a single file of another program. It trusts no number in them. tools/import.cpp
// makes folders of such files, tools/export.cpp writes them.
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
#include "tools/text/tensor_files.h"

struct ModelFile {
    std::string config_json;        // as a Hugging Face folder would contain it
    std::string split, vocabulary;  // GGUF's name of the split; tokenizer.json's end from "vocab" on; or empty
    SafeTensors weights = {};       // named as in GGUF; no matrix is transposed
    std::string chat_template = ""; // Jinja; GGUF's
    int begin = -1;                 // the token before a text; -1: none
    std::vector<float> divisors = {};       // of the angles: GGUF's rope_freqs.weight
};
ModelFile open_model_file(const std::string& path);         // kExitNoInput; kExitBadContent: it is not as above
// Fills arena.n floats with the file's weights. theirs: see read_tensors. The rows of Llama's q and k stay in
// GGUF's order: the llama.cpp project rotates neighbouring elements of a head, where transformers pairs its two halves.
// scratch: a file in which Q8_0 becomes F32, exactly, and which is removed again.
void read_model_file(const std::string& path, Arena theirs, const Arena& arena, float* values,
                     const std::string& scratch);

// The part of a GGUF file before its data. kExitBadContent: it is not as above.
struct GgufContents {
    std::map<std::string, std::string> keys;    // each value as JSON; null for NaN and infinities
    std::vector<SafeTensor> tensors;            // begin: from `data` on; bytes: 0 if not F32, F16, BF16
    uint64_t data = 0;                          // where the tensors' data begin in the file
};
GgufContents read_gguf_head(const std::string& path);

// The name of a number "ARCHITECTURE.name" in GGUF, and the key of config.json with the same value.
struct GgufKey { const char *name, *hf; bool real = false; };           // real: f32, else u32
std::span<const GgufKey> gguf_keys(const std::string& architecture);
// Returns GGUF's architecture for a model_type of config.json. A Mistral without a window is a Llama there.
std::string gguf_architecture(const std::string& model_type);
// Translates "transformer.h.0.attn.c_attn.weight" to "blk.0.attn_qkv.weight"; returns "" if GGUF has no such tensor.
std::string gguf_name(const std::string& hf);
// Whether the rows of Hugging Face's tensor are in another order in GGUF, in heads.
bool gguf_turns(const std::string& architecture, const std::string& hf);
// Returns which of Hugging Face's rows is row i of such a tensor: rows 2j and 2j+1 of a head are its j and j + head/2.
inline size_t row_of_gguf(size_t i, size_t head) { return i / head * head + i % 2 * (head / 2) + i % head / 2; }
