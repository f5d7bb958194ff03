// shape.h -- what a model declares once, free of any backend. Options, --help, config.json, all checks, dry run, info
// and export read it; models/list names the models.
#pragma once
#include <string>
#include <variant>
#include <vector>
#include "src/base/arena.h"
#include "src/base/common.h"

struct Json;                        // src/base/json.h

struct Shape {
    int L = 0, NH = 0, C = 0;       // layers, heads, channels
    int T = 0;                      // context: the longest sequence
    int V = 0, Vp = 0;              // vocabulary; Vp: its rows in memory, V rounded up to 16; rows V..Vp-1 stay zero
    float dropout = 0;
    int extra[8] = {};              // numbers that only one model has; its `keys` name them
    float real[8] = {};
};

// What a run trains: a model's own tensors, or narrow ones beside its matrices while its own are frozen (tuning.h).
struct Tuning {
    int rank = 0;                   // of the narrow ones, a multiple of 8; 0: the model's own are trained
    double alpha = 0;               // the narrow ones count alpha / rank times; 0 becomes twice the rank
    std::string targets = "all";    // ends of names, "q_proj,k_proj"; "all": every matrix but embedding and head
    bool freezes() const { return rank > 0; }
    const char* weights_file() const;       // in a checkpoint, with the trained tensors
};

// A number of the shape: an option, and a key of config.json, where it is written and read by this row alone.
using ShapeNumber = std::variant<int& (*)(Shape&), float& (*)(Shape&)>;
struct ShapeKey {
    const char *option, *hf;        // "heads", "n_head"; hf "": ModelInfo::fixed writes it and ModelInfo::read reads it
    ShapeNumber at;
    Limits limits;
    const char *elsewhere, *help;   // elsewhere: what other trainers call the option, for "did you mean"
    double absent = kNone;          // what config.json means where it lacks the key, or has null; kNone: it may not
    static constexpr double kNone = -1e300;
    double get(Shape shape) const {
        return std::visit([&](auto number) { return double(number(shape)); }, at);
    }
    void set(Shape* shape, double x) const {
        std::visit([&](auto number) { number(*shape) = std::decay_t<decltype(number(*shape))>(x); }, at);
    }
};

// A key of config.json whose value this model fixes, as JSON text. `also`: another text that means the same, or "".
struct FixedKey {
    const char* hf;
    std::string value, also;
    bool compare = true;            // false: ModelInfo::read reads it instead
};

// Options that go together, as words: "layers 4 heads 4 ...".
struct Preset { const char *name, *aliases; std::string options; };

constexpr size_t kMeasures = 4;                     // as many as a model may have

struct ModelInfo {
    const char *name, *title;                       // name: in --model, models/list, and config.json's model_type
    const char* architecture;                       // config.json's architectures[0]; a new function has a new name
    std::vector<ShapeKey> keys;
    std::vector<FixedKey> (*fixed)(const Shape& shape);
    std::vector<const char*> dropouts;              // config.json's keys for the one dropout rate; empty: no dropout
    std::vector<Preset> (*presets)();               // the first is the default on a CPU
    const char* gpu_preset;                         // the default on a GPU
    bool cuda;                                      // its operations run on GPUs; false: --device gpu is refused
    // Sets numbers that are 0 and follow from others. Returns "", or what is wrong: "--heads: got ..., want ...".
    std::string (*check)(Shape& shape);
    // Every parameter once, in memory order. The first is the head's weight (Vp,C), which may be the embedding, too.
    std::vector<TensorSpec> (*tensors)(const Shape& shape);
    double (*flops_per_token)(const Shape& shape, int T);       // forward and backward
    std::string (*text)(const Shape& shape);        // "12 layers x 12 heads x 768 channels"
    int (*head_size)(const Shape& shape) = nullptr;     // of attention; null: no attention
    // Reads keys of config.json that `keys` and `fixed` cannot describe. Throws kExitBadContent. Null: no such keys.
    void (*read)(const Json& config, Shape* shape, const char* what) = nullptr;
    bool gguf = false;                              // GGUF has a form for it, by the same name
    // Names of numbers that a training pass gives beside the loss: "aux_loss". metrics.jsonl and the console have their
    // mean over the step's micro-batches.
    std::vector<const char*> measures = {};
    // What tests of all models take beside 2 layers of 2 heads, 16 channels, 12 positions and 19 tokens: as a preset's
    // options, "mlp-size 24". So small that a test is fast, so large that every operation matters; a key that is not
    // named is as small as its limits allow. Name both where one enables the other: rope-low needs a rope-factor.
    const char* test_shape = "";
};

const std::vector<const ModelInfo*>& all_models();              // in the order of models/list
const ModelInfo* find_model(const std::string& name);           // null if there is none of that name
void set_vocabulary(Shape* shape, int V);                       // sets V and Vp

// The options that several models have: presets.cpp. hf: the model's key of config.json.
ShapeKey layers_key(const char* hf);
ShapeKey heads_key(const char* hf);
ShapeKey channels_key(const char* hf);
ShapeKey seq_len_key(const char* hf);
