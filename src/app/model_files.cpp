// model_files.cpp -- see model_files.h.
#include "src/app/model_files.h"
#include "src/app/adapter.h"

std::string model_config_json(const ModelInfo* info, const Shape& shape, const Data& data, const Init& init) {
    return config_json({info, shape, init.config.text}, data.vocabulary.config);
}

void describe_adapters(CheckpointFiles* files, const Options& o, const Init& init) {
    if (!o.lora.rank) return;
    files->adapter_json = adapter_config_json(o.lora, find_model(o.model)->tensors(o.shape), init.folder);
    files->base_crc = weights_checksum(init);
}
