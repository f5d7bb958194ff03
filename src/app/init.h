// init.h -- where a run's shape, weights, tokenizer and data come from: options, --init, or the checkpoint of a resume.
#pragma once
#include <functional>
#include "models/config.h"
#include "src/checkpoint/checkpoint.h"
#include "src/comm/comm.h"
#include "src/data/data.h"
#include "src/options/options.h"

struct Init {
    std::string folder;                 // has model.safetensors; or path of a model in one file; "": fresh weights
    std::string tokenizer;              // the text of its tokenizer.json; "": none
    ModelConfig config;
    Shape files = config.shape;         // shape of the weights' files; its context may be longer
    std::string adapter = "";           // the folder of an adapter that load_init merges; "": none
    std::string tokenizer_config = "", chat_template = "", generation_config = "";      // the texts of these files
    std::string special_tokens = "";    // that of special_tokens_map.json
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
// Reads --init, and puts model and shape into the options. kExitUsage if a given one differs.
Init init_of_options(Options* options, Comm* comm);
// Rank 0 reads config.json and tokenizer.json of the checkpoint to resume, and broadcasts them: other hosts may lack
// the folder. kExitBadContent if its sizes are not those of the saved options. Collective.
Init init_of_run(const std::string& checkpoint, const Options& options, Comm* comm);
// Returns the options of open_data. On a resume --tokenizer comes from the saved options and is not "given", so one
// other than the default counts as chosen. eval uses the model's own tokenizer unless one is given.
DataOptions data_options(const Options& options, const Init& init);
// Fills arena.n floats with the weights of `init`, its adapter merged into them. Of a longer position table it takes
// the first rows. Rows of tokens that `init` does not have, and those of `untrained`, get the mean of the others.
void load_init(float* weights, const Arena& arena, const Init& init, const std::vector<int>& untrained = {});
// With --lora adds to a checkpoint's files that its weights are adapters of the model in init.folder. Rank 0.
void describe_adapters(CheckpointFiles* files, const Options& options, const Init& init);
// Returns the sampler, which decides the order of the data. micro_batches: of a step, over all ranks.
Sampler data_order(const Options& options, uint64_t samples, int micro_batches);
