// models.cpp -- the list of models, the options that several models share, with their names in
// other trainers, and the presets of all models. A fork's model may declare its own presets in its
// header. ./configure writes build/models.h from models/list; in it MODELS(X) is X(gpt2) X(lstm)
// ...
#include "build/models.h"

const std::vector<const ModelInfo*>& all_models() {
#define X(name) &name##_info,
    static const std::vector<const ModelInfo*> models = {MODELS(X)};
#undef X
    return models;
}

const ModelInfo* find_model(const std::string& name) {
    for (const ModelInfo* model : all_models())
        if (name == model->name) return model;
    return nullptr;
}

void set_vocabulary(Shape* shape, int V) {
    shape->V = V;
    shape->Vp = round_up(V, 16);
}

// ---- options; hf: the model's key of config.json

ShapeKey layers_key(const char* hf) {
    return {"layers", hf, [](Shape& s) -> int& { return s.L; }, kLayers,
            "n-layer n-layers num-layers depth num-hidden-layers", "blocks or layers"};
}
ShapeKey heads_key(const char* hf) {
    return {"heads", hf, [](Shape& s) -> int& { return s.NH; }, kHeads,
            "n-head n-heads num-heads num-attention-heads",
            "attention heads; channels / heads is a multiple of 8 up to 128"};
}
ShapeKey channels_key(const char* hf) {
    return {"channels", hf, [](Shape& s) -> int& { return s.C; }, kSize,
            "n-embd n-embed hidden-size d-model embed-dim model-dim", "width of the hidden state"};
}
ShapeKey seq_len_key(const char* hf) {
    return {"seq-len", hf, [](Shape& s) -> int& { return s.T; }, kContext,
            "block-size max-seq-len max-seq-length context-length context n-ctx n-positions "
            "sequence-length -t",
            "context length, T; with --init at most the one it has"};
}

// ---- presets; "small" has nanoGPT's settings for a small text

static const std::string
    kNanoRun = "total-batch-size 4096 steps 480 lr 5e-3 warmup-steps 50 final-lr-frac 0.05 "
               "beta2 0.99 eval-every 240 eval-steps 0 sample-every 160 log-every 10 "
               "save-every 240 ",
    kSmallRun = "seq-len 256 steps 5000 warmup-steps 100 final-lr-frac 0.1 beta2 0.99 dropout 0.2 "
                "eval-every 250 eval-steps 100 sample-every 500 log-every 10 save-every 1000 ";

// Sizes are those of Radford et al. 2019, batches and learning rates those of Brown et al. 2020,
// table 2.1. A run takes about 20 tokens per parameter, and at least about 10^10.
static const std::string kGpt2Run = "seq-len 1024 warmup-steps 700 final-lr-frac 0 eval-every 250 "
                                    "sample-every 1000 log-every 10 save-every 1000 ";
std::vector<Preset> gpt2_presets() {
    return {
        {"nano", "", kNanoRun + "layers 4 heads 4 channels 128 seq-len 256 batch-size 2"},
        {"small", "", kSmallRun + "layers 6 heads 6 channels 384 batch-size 8 "
         "total-batch-size 16384 lr 1e-3"},
        {"gpt2-124m", "d12 gpt2 gpt2-small", kGpt2Run + "layers 12 heads 12 channels 768 "
         "batch-size 16 total-batch-size 524288 steps 18865 lr 6e-4 eval-steps 64", 50257},
        {"gpt2-350m", "d24 gpt2-medium", kGpt2Run + "layers 24 heads 16 channels 1024 batch-size 8 "
         "total-batch-size 524288 steps 18865 lr 3e-4 eval-steps 128", 50257},
        {"gpt2-774m", "d36 gpt2-large", kGpt2Run + "layers 36 heads 20 channels 1280 batch-size 4 "
         "total-batch-size 524288 steps 30000 lr 2.5e-4 eval-steps 256", 50257},
        {"gpt2-1558m", "d48 gpt2-xl", kGpt2Run + "layers 48 heads 25 channels 1600 batch-size 4 "
         "total-batch-size 1048576 steps 30000 lr 2e-4 eval-steps 256", 50257},
    };
}

std::vector<Preset> lstm_presets() {
    return {
        {"lstm-nano", "", kNanoRun + "layers 2 channels 256 seq-len 128 batch-size 8"},
        {"lstm-small", "", kSmallRun + "layers 3 channels 640 batch-size 32 total-batch-size 65536 "
         "lr 2e-3"},
    };
}

// The Llama family. Sizes are published ones, except in the nano and 124m presets. Batches,
// learning rates and tokens (about 20 per parameter, at least about 10^10) are chosen as for GPT-2.
static const std::string
    kLlamaNano = kNanoRun + "layers 4 heads 4 kv-heads 2 channels 128 mlp-size 384 seq-len 256 "
                            "batch-size 2",
    kLlamaRun = "total-batch-size 524288 warmup-steps 700 final-lr-frac 0 eval-every 250 "
                "sample-every 1000 log-every 10 save-every 1000 ";
std::vector<Preset> llama_presets() {
    return {
        {"llama-nano", "", kLlamaNano},
        // As many tokens and parameters as gpt2-124m, and GPT-2's vocabulary.
        {"llama-124m", "", kLlamaRun + "layers 12 heads 12 kv-heads 4 channels 768 mlp-size 2432 "
         "seq-len 1024 batch-size 16 eval-steps 64 steps 18865 lr 6e-4", 50257},
        {"smollm2-135m", "", kLlamaRun + "layers 30 heads 9 kv-heads 3 channels 576 mlp-size 1536 "
         "rope-theta 100000 seq-len 2048 batch-size 8 eval-steps 64 steps 20000 lr 6e-4", 49152},
        {"smollm2-360m", "", kLlamaRun + "layers 32 heads 15 kv-heads 5 channels 960 mlp-size 2560 "
         "rope-theta 100000 seq-len 2048 batch-size 8 eval-steps 64 steps 20000 lr 3e-4", 49152},
        {"llama3.2-1b", "", kLlamaRun + "layers 16 heads 32 kv-heads 8 channels 2048 mlp-size 8192 "
         "rope-theta 500000 rope-factor 32 seq-len 2048 batch-size 4 eval-steps 128 steps 48000 "
         "lr 2e-4", 128256},
    };
}
std::vector<Preset> mistral_presets() {
    return {{"mistral-nano", "", kLlamaNano + " window 64"}};
}
std::vector<Preset> qwen2_presets() {
    return {
        {"qwen2-nano", "", kLlamaNano},
        {"qwen2.5-0.5b", "", kLlamaRun + "layers 24 heads 14 kv-heads 2 channels 896 mlp-size 4864 "
         "rope-theta 1000000 norm-eps 1e-6 seq-len 2048 batch-size 8 eval-steps 64 steps 20000 "
         "lr 3e-4", 151936},
    };
}
std::vector<Preset> qwen3_presets() {
    return {
        {"qwen3-nano", "", kLlamaNano},
        {"qwen3-0.6b", "", kLlamaRun + "layers 28 heads 16 kv-heads 8 head-size 128 channels 1024 "
         "mlp-size 3072 rope-theta 1000000 norm-eps 1e-6 seq-len 2048 batch-size 8 eval-steps 64 "
         "steps 24000 lr 3e-4", 151936},
    };
}
