// init.cpp -- see init.h.
#include "src/app/init.h"
#include <algorithm>
#include "src/base/common.h"
#include "src/base/file.h"
#include "src/checkpoint/checkpoint.h"

Init init_of_options(Options* o) {
    if (o->init.empty()) return {};
    const std::string folder = resolve_model_folder(o->init), tokenizer = path_join(folder, "tokenizer.json");
    const Init init = {folder, file_exists(tokenizer) ? read_file(tokenizer) : "", read_config(folder)};
    options_take_model(o, *init.config.info, init.config.shape);
    return init;
}

Init init_of_run(const std::string& checkpoint, const Options& o, Comm* comm) {
    const std::string config = checkpoint + "/config.json", tokenizer = checkpoint + "/tokenizer.json";
    const bool reads = comm->rank == 0;
    if (reads) read_config(checkpoint);                 // also against the size of the weights' file
    const std::string config_text = comm_gather_text(comm, reads ? read_file(config) : "")[0];
    const std::string own = reads && file_exists(tokenizer) ? read_file(tokenizer) : "";
    const Init init = {checkpoint, comm_gather_text(comm, own)[0], parse_config(config_text, config.c_str())};
    for (const ShapeKey& key : init.config.info->keys) {    // before a damaged size asks for memory
        const double has = key.get(init.config.shape), want = key.get(o.shape);
        if (o.model == init.config.info->name && has != want)
            die_content(config + ": " + key.option, format("%g", has), format("%g as in the run's config.json", want));
    }
    return init;
}

DataOptions data_options(const Options& o, const Init& init) {
    const bool chosen = o.tokenizer != "byte" && (o.command == "train" || init.tokenizer.empty());
    return {.data = o.data,
            .val_data = o.val_data,
            .tokenizer = chosen || o.is_given("tokenizer") ? o.tokenizer : "",
            .init_tokenizer = init.tokenizer,
            .init_path = path_join(init.folder, "tokenizer.json"),
            .init_vocab = init.config.shape.V,
            .vocab_size = o.shape.V,
            .init_eot = !init.folder.empty() && !init.config.no_eot,
            .seq_len = o.shape.T,
            .evaluates = o.command != "train" || o.eval_every > 0};
}

Sampler data_order(const Options& o, uint64_t samples, int micro_batches) {
    Sampler s;
    s.torch = o.sampler == "torch";
    s.n = samples;
    s.seed = o.seed;
    s.B = o.batch_size;
    s.G = micro_batches;
    s.R = o.replicas;
    return s;
}

void load_init(float* weights, const Arena& arena, const Init& init, const ModelInfo& info) {
    read_safetensors(open_model(init.folder), arena_layout(info.tensors(init.config.shape)), arena, "", weights);
}
