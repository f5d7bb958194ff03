// init.h -- a model to start from: what its folder or file says, and its weights.
#pragma once
#include <string>
#include "models/config.h"
#include "src/data/data.h"

struct Init {
    std::string folder;                 // has model.safetensors; or the path of a model in one file; "": random weights
    ModelConfig config;
    Shape files = config.shape;         // the shape that the files of weights have; its context may be longer
    ModelTexts texts = {};
    std::string tuned = "";             // a folder of PEFT: load_init adds what it has to the weights; "": none
    std::string imported = "";          // the folder that build/import made from a model in one file; else ""
    bool first = false;                 // a run begins with its weights
    const std::string& weights() const { return imported.empty() ? folder : imported; }
    const std::string& saved() const { return tuned.empty() ? folder : tuned; }     // has state.json, if a run wrote it
};

// Reads a run, checkpoint, Hugging Face folder, PEFT folder or model in one file, but not its weights. kExitBadContent
// if a run's PEFT folder was trained on other weights. comm: the ranks that read it together; null: one process.
Init init_of_path(const std::string& path, Comm* comm = nullptr);
// Fills arena.n floats with the weights of `init`, of a PEFT folder the sum. Of a longer position table it takes
// the first rows. Rows of tokens that `init` does not have, and of the tokens `untrained`, get the mean of the others.
void load_init(float* weights, const Arena& arena, const Init& init, const std::vector<int>& untrained = {});

#ifdef BACKEND
#include "models/model.h"
namespace BACKEND {

// Does what load_init does, but stores the weights in floatX, the type that models compute with.
void load_stored(floatX* weights, const Arena& arena, const Init& init);

}  // namespace BACKEND
#endif
