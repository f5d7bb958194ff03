// model_files.cpp -- the small files that stand beside a checkpoint's weights, as Hugging Face and llama.cpp read them.
#include "models/tuning.h"
#include "src/app/app.h"
#include "src/app/init.h"
#include "src/checkpoint/checkpoint.h"

std::string model_config_json(const ModelInfo* info, const Shape& shape, const Data& data, const Init& init) {
    const Vocabulary& v = data.vocabulary;
    const int end = v.chats ? v.end : v.eot;
    int begin = v.begin;                                // the same as bos_token in tokenizer_config.json
    if (begin < 0) begin = init.config.bot >= 0 ? init.config.bot : v.eot;
    return config_json({info, shape, end, begin});
}

void describe_frozen(CheckpointFiles* files, const Options& o, const Init& init) {
    if (!o.tuning.freezes()) return;
    files->weights = o.tuning.weights_file();
    files->texts.push_back({kTunedConfig, tuned_config_json(o.tuning, find_model(o.model)->tensors(o.shape),
                                                            init.folder)});
    files->frozen_crc = weights_checksum(init);
}
