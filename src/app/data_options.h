// data_options.h -- what the data layer is told of the options.
#pragma once
#include <string>
#include "src/app/options.h"
#include "src/data/data.h"

// init_tokenizer, init_vocab: of the model to start from (data.h). On a resume no option is given, so a tokenizer other
// than the default counts as chosen; eval uses the model's own unless one is given.
inline DataOptions data_options(const Options& o, const std::string& init_tokenizer, int init_vocab) {
    const bool chosen = o.tokenizer != "byte" && (o.command == "train" || init_tokenizer.empty());
    return {.data = o.data,
            .val_data = o.val_data,
            .tokenizer = chosen || o.is_given("tokenizer") ? o.tokenizer : "",
            .init_tokenizer = init_tokenizer,
            .init_vocab = init_vocab,
            .vocab_size = o.shape.V,
            .seq_len = o.shape.T,
            .evaluates = o.command != "train" || o.eval_every > 0};
}

// The order of the data. micro_batches: of a step, over all ranks.
inline Sampler sampler(const Options& o, uint64_t samples, int micro_batches) {
    Sampler s;
    s.torch = o.sampler == "torch";
    s.n = samples;
    s.seed = o.seed;
    s.B = o.batch_size;
    s.G = micro_batches;
    s.R = o.replicas;
    return s;
}
