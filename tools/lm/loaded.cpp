// loaded.cpp -- see lm.h.
#include <algorithm>
#include "src/base/file.h"
#include "tools/lm/lm.h"

namespace BACKEND {

// Fills arena.n elements of device memory with the weights of `init`.
static void load_device_weights(floatX* weights, const Arena& arena, const Init& init) {
    if (!kOnGpu) return load_stored(weights, arena, init);
    std::vector<floatX> host(arena.n);
    load_stored(host.data(), arena, init);
    copy_to_device(weights, host.data(), arena.n * sizeof(floatX));
    stream_sync(nullptr);
}

Loaded::Loaded(const Options& o, int B, size_t T, Comm* comm) {
    const std::string& path = o.paths[0];
    if (path.empty()) die(kExitNoInput, "no model: got no folder, want a run or a checkpoint");
    init = init_of_path(path, comm);
    const std::string file = path_join(init.saved, "tokenizer.json");
    try {
        if (!init.texts.tokenizer.empty()) tokenizer = tokenizer_parse(init.texts.tokenizer, file);
    } catch (const Error& error) {
        warn("samples have no text: %s", error.message.c_str());
    }
    if (tokenizer.vocab_size > init.config.shape.V)
        die_content(file, std::to_string(tokenizer.vocab_size) + " tokens",
                    "at most " + std::to_string(init.config.shape.V) + ", the model's");
    read_ends(&tokenizer, init.texts, file);
    tokenizer.names = o.special_tokens;
    tokenizer.require_names();
    Shape shape = init.config.shape;
    shape.T = int(std::min(size_t(shape.T), T));
    shape.dropout = 0;
    const Arena arena = arena_layout(init.config.info->tensors(shape));
    weights = static_cast<floatX*>(device_alloc(arena.n * sizeof(floatX), "weights"));
    load_device_weights(weights, arena, init);
    model_create(&model, init.config.info, shape, B, shape.T, 3, weights, false);
    model.documents = {tokenizer.begin, tokenizer.eot};
}

void Loaded::require_text(const char* what) const {
    if (tokenizer.kind != Tokenizer::none) return;
    refuse_older_form(init.saved);
    die(kExitUsage, "%s: %s has no tokenizer.json that is read here; sample without --prompt shows token numbers", what,
        init.saved.c_str());
}

Loaded::~Loaded() {
    model_destroy(&model);
    device_free(weights);
}

void print(const std::string& piece) {
    std::fputs(piece.c_str(), stdout);
    std::fflush(stdout);
}

}  // namespace BACKEND
