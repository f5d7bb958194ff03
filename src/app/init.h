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
    std::string tuned = "";             // the folder of what was trained beside it, which load_init merges; "": none
    std::string imported = "";          // the folder that was made of a model in one file; "": `folder` is one
    bool first = false;                 // a run begins with its weights
    const std::string& weights() const { return imported.empty() ? folder : imported; }
    const std::string& saved() const { return tuned.empty() ? folder : tuned; }     // the one with state.json
};

// Reads all but the weights of a run, checkpoint, Hugging Face folder, PEFT folder or model in one file.
// kExitBadContent if `tuned` was trained beside other weights. waiting: called while another program imports a file.
using Waiting = std::function<void()>;
Init init_of_path(const std::string& path, const Waiting& waiting = [] {});
// Fills arena.n floats with the weights of `init`, with what was trained beside them. Of a longer position table it
// takes the first rows. Rows of tokens that `init` does not have, and those of `untrained`, get the mean of the others.
void load_init(float* weights, const Arena& arena, const Init& init, const std::vector<int>& untrained = {});

// Adds what is in a folder of PEFT's form to its model's weights. kExitBadContent if it does not fit them.
void load_tuned(float* weights, const Arena& arena, const std::string& folder);

#ifdef BACKEND
#include "models/model.h"
namespace BACKEND {

// The same as load_init, in the type that models compute with.
void load_stored(floatX* weights, const Arena& arena, const Init& init);

}  // namespace BACKEND
#endif
