// init.cpp -- see init.h.
#include "src/app/init.h"
#include <algorithm>
#include <sys/mman.h>
#include <unistd.h>
#include "src/base/common.h"
#include "src/base/file.h"
#include "src/checkpoint/checkpoint.h"

Init init_of_options(Options* o) {
    if (o->init.empty()) return {};
    const std::string folder = resolve_model_folder(o->init), tokenizer = path_join(folder, "tokenizer.json");
    const Init init = {folder, file_exists(tokenizer) ? tokenizer : "", read_config(folder)};
    options_take_model(o, *init.config.info, init.config.shape);
    return init;
}

// A tokenizer is loaded from a path: this one is a file in memory.
static std::string memory_file(const std::string& text) {
    const int file = memfd_create("tokenizer.json", MFD_CLOEXEC);
    if (file < 0 || write(file, text.data(), text.size()) != ssize_t(text.size()))
        die(kExitOther, "tokenizer.json: no memory for a copy of %zu bytes", text.size());
    return format("/proc/self/fd/%d", file);
}

Init init_of_run(const std::string& checkpoint, const Options& o, Comm* comm) {
    const std::string config = checkpoint + "/config.json", tokenizer = checkpoint + "/tokenizer.json";
    const bool reads = comm->rank == 0;
    if (reads) read_config(checkpoint);                 // also against the size of the weights' file
    const std::string config_text = comm_gather_text(comm, reads ? read_file(config) : "")[0];
    const std::string own = reads && file_exists(tokenizer) ? read_file(tokenizer) : "";
    const std::string text = comm_gather_text(comm, own)[0];
    const Init init = {checkpoint, text.empty() ? "" : reads ? tokenizer : memory_file(text),
                       parse_config(config_text, config.c_str())};
    Shape has = init.config.shape, want = o.shape;
    for (const ShapeKey& key : init.config.info->keys)      // before a damaged size asks for memory
        if (o.model == init.config.info->name && key.at(has) != key.at(want))
            die_content(config + ": " + key.option, std::to_string(key.at(has)),
                        format("%d as in the run's config.json", key.at(want)));
    return init;
}

void load_init(float* weights, const Arena& arena, const Init& init, const ModelInfo& info) {
    const SafeTensors file = open_safetensors(path_join(init.folder, "model.safetensors"));
    const Arena theirs = arena_layout(info.tensors(init.config.shape));
    std::vector<float> values(theirs.n);
    read_safetensors(file, theirs, "", values.data());
    std::fill_n(weights, arena.n, 0.0f);
    for (size_t k = 0; k < arena.tensors.size(); k++)
        std::copy_n(&values[theirs.offset[k]], arena.tensors[k].rows * arena.tensors[k].cols,
                    weights + arena.offset[k]);
}
