// init.h -- where a run's shape, weights, tokenizer and data come from: the options, --init, or the checkpoint of the
// run that goes on.
#pragma once
#include "models/config.h"
#include "src/app/options.h"
#include "src/comm/comm.h"
#include "src/data/data.h"

struct Init {
    std::string folder;                 // with model.safetensors; "": none, the weights are fresh
    std::string tokenizer;              // the text of its tokenizer.json; "": none
    ModelConfig config;
    Shape files = config.shape;         // of the weights' files: their context may be longer
    std::string adapter = "";           // the folder of an adapter that load_init adds; "": none
    std::string tokenizer_config = "{}", chat_template = "", generation_config = "";    // the texts of these files
    const std::string& saved() const { return adapter.empty() ? folder : adapter; }     // has state.json
};

// A run, checkpoint, Hugging Face folder, adapter of PEFT or model in one file. Error 65 for an adapter whose model has
// other weights than it was trained beside.
Init init_of_path(const std::string& path);
// CRC-32C of the files with a model's weights.
uint32_t weights_checksum(const Init& init);
// --init DIR: model and shape go into the options. Error 2 if one was given and differs.
Init init_of_options(Options* options);
// Rank 0 reads config.json and tokenizer.json of the run that goes on and broadcasts them: other hosts may lack the
// folder. Error 65 if its sizes are not those of the options, which are the saved ones. Collective.
Init init_of_run(const std::string& checkpoint, const Options& options, Comm* comm);
// What the data layer is told of the options. On a resume no option is given, so a tokenizer other than the default
// counts as chosen; eval uses the model's own unless one is given.
DataOptions data_options(const Options& options, const Init& init);
// Reads the weights into fp32 memory. Where their context is longer, the first rows of the position table are taken.
void load_init(float* weights, const Arena& arena, const Init& init);
// The order of the data. micro_batches: of a step, over all ranks.
Sampler data_order(const Options& options, uint64_t samples, int micro_batches);
