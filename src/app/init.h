// init.h -- a model to start from: what its folder or file says, and its weights.
#pragma once
#include <functional>
#include <string>
#include "models/config.h"
#include "src/data/data.h"

struct Init {
    std::string folder;                 // has model.safetensors; or path of a model in one file; "": fresh weights
    ModelConfig config;
    Shape files = config.shape;         // shape of the weights' files; its context may be longer
    ModelTexts texts = {};
    std::string adapter = "";           // the folder of an adapter that load_init merges; "": none
    std::string imported = "";          // the folder that was made of a model in one file; "": `folder` is one
    bool first = false;                 // a run begins with its weights
    const std::string& weights() const { return imported.empty() ? folder : imported; }
    const std::string& saved() const { return adapter.empty() ? folder : adapter; }     // the one with state.json
};

// Reads all but the weights of a run, checkpoint, Hugging Face folder, PEFT adapter or model in one file.
// kExitBadContent if an adapter was trained for other weights. waiting: called while another program imports a file.
using Waiting = std::function<void()>;
Init init_of_path(const std::string& path, const Waiting& waiting = [] {});
// Returns the CRC-32C of the files with a model's weights.
uint32_t weights_checksum(const Init& init);
// Fills arena.n floats with the weights of `init`, its adapter merged into them. Of a longer position table it takes
// the first rows. Rows of tokens that `init` does not have, and those of `untrained`, get the mean of the others.
void load_init(float* weights, const Arena& arena, const Init& init, const std::vector<int>& untrained = {});

#ifdef BACKEND
#include "models/model.h"
namespace BACKEND {

// Fills arena.n elements of device memory with the weights of `init`.
void load_device_weights(floatX* weights, const Arena& arena, const Init& init);

}  // namespace BACKEND
#endif
