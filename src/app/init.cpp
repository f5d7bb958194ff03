// init.cpp -- see init.h.
#include "src/app/init.h"
#include <algorithm>
#include "src/base/common.h"
#include "src/base/file.h"
#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/model_file.h"

// A model in one file. Where it has no tokenizer, but as many tokens as GPT-2, it gets GPT-2's if that is here.
static Init init_of_file(const std::string& path) {
    const ModelFile file = open_model_file(path);
    Init init = {path, "", parse_config(file.config_json, path.c_str())};
    if (const uint64_t n = count_parameters(*init.config.info, init.config.shape); n > map_file(path).size / 2)
        die_content(path, "a model of " + with_commas(n) + " parameters", "one that the file has room for");
    if (!file.vocabulary.empty()) init.tokenizer = tokenizer_json_of_gguf(file.split, file.vocabulary, path);
    else if (init.config.shape.V == 50257) try {
        init.tokenizer = tokenizer_open("gpt2", nullptr).to_json();
    } catch (const Error&) {}                           // --tokenizer may name another
    return init;
}

static Init init_of_folder(const std::string& path) {
    const std::string folder = resolve_model_folder(path), tokenizer = path_join(folder, "tokenizer.json");
    return {folder, file_exists(tokenizer) ? read_file(tokenizer) : "", read_config(folder)};
}

static bool is_file(const std::string& path) { return file_exists(path) && !is_directory(path); }

Init init_of_options(Options* o) {
    if (o->init.empty()) return {};
    const std::string path = checkpoint_named(o->init);
    const Init init = is_file(path) ? init_of_file(path) : init_of_folder(path);
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
    const Arena theirs = arena_layout(info.tensors(init.config.shape));
    if (!is_file(init.folder)) return read_safetensors(open_model(init.folder), theirs, arena, "", weights);
    read_model_file(init.folder, theirs, arena, weights);
    if (info.from_gguf) info.from_gguf(weights, arena, init.config.shape);
}
