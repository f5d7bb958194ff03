// init.h -- a model to start from: what its folder or file says, and its weights.
#pragma once
#include <string>
#include "models/config.h"
#include "src/data/data.h"

struct Init {
    std::string folder = "";            // of the whole model, or the path of a model in one file; "": random weights
    std::string weights = "";           // the folder with its weights; of a file the one that build/import made
    std::string saved = "";             // the folder with adapters, or `folder`; it has state.json, if a run wrote it
    ModelConfig config = {};
    ModelTexts texts = {};              // texts.config is config.text
    uint32_t crc = 0;                   // CRC-32C of the files of weights, if it was asked for
    std::string answer = "";            // what build/import says, with the places of all tensors in files
    bool adapted = false;               // load_init adds the adapters of `answer` to the weights
    bool first = false;                 // a run begins with its weights
};

// Asks build/import for a run, checkpoint, Hugging Face folder, PEFT folder or model in one file. Its errors are thrown
// here. comm: the ranks that need it together, of which rank 0 reads it; null: one process. crc: sets Init::crc.
Init init_of_path(const std::string& path, Comm* comm = nullptr, bool crc = false);
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
