// shape.h -- what a model declares once, for all backends. Options, --help, config.json, all
// checks, --dry-run and the tools info and export read it. models/list names the models.
#pragma once
#include <string>
#include <variant>
#include <vector>
#include "src/base/arena.h"
#include "src/base/common.h"

struct Json;                        // src/base/json.h

struct Shape {
    int L = 0, NH = 0, C = 0;       // layers, heads, channels
    int T = 0;                      // context: tokens of the longest sequence
    // Vocabulary. Vp: V rounded up to 16, the rows in memory; rows V..Vp-1 stay zero.
    int V = 0, Vp = 0;
    float dropout = 0;              // probability of dropping an element
    int extra[10] = {};             // whole numbers of one model or family; its `keys` name them
    float real[8] = {};             // real numbers, likewise
};

// The tensors that a run trains: those of its model's table, or pairs of narrow matrices while the
// table is frozen. A matrix W (out,in) of the table may have a pair, A (rank,in) and B (out,rank):
// layers compute with W + scale B A.
struct Trained : Arena {
    // It is used if the table is frozen. begins[i] is the number of trained tensors that come
    // before tensor i of the table. The last element is the number of all trained tensors.
    std::vector<int> begins = {};
    int rank = 0;                   // 0: the table is trained
    float scale = 0;
    const char* file = "model.safetensors";     // of a checkpoint, which has them
    std::string text = "";          // what the console says of pairs; "" for the table
    bool freezes() const { return rank > 0; }
};

// A number of the shape, with its option and its key in config.json. This row alone writes and
// reads the key.
using ShapeNumber = std::variant<int& (*)(Shape&), float& (*)(Shape&)>;
struct ShapeKey {
    // "heads", "n_head". If hf is "", ModelInfo::fixed writes the number and NAME_read reads it.
    const char *option, *hf;
    ShapeNumber at;
    Limits limits;
    // elsewhere: what other trainers call the option, for "did you mean".
    const char *elsewhere, *help;
    // The value if config.json lacks the key or has null; kNone: that is an error.
    double absent = kNone;
    static constexpr double kNone = -1e300;
    double get(Shape shape) const {
        return std::visit([&](auto number) { return double(number(shape)); }, at);
    }
    void set(Shape* shape, double x) const {
        std::visit([&](auto number) { number(*shape) = x; }, at);
    }
};

// A key of config.json whose value the model or its shape fixes, as JSON text. also: a text that
// means the same, or "".
struct FixedKey {
    const char* hf;
    std::string value, also;
    bool compare = true;            // reading refuses other values; false: NAME_read reads the key
};

// Options that go together, as words: "layers 4 heads 4 ...". aliases: other names, as words.
// vocabulary: that of the published model of this name, or 0. The data decide what a run has; a
// --dry-run without data counts this one.
struct Preset { const char *name, *aliases; std::string options; int vocabulary = 0; };

// Reads keys of config.json that ModelInfo's `keys` and `fixed` cannot describe. Throws
// kExitBadContent. A model NAME has NAME_read, which is nullptr if there are no such keys. Only
// tools call it.
using ConfigReader = void (*)(const Json& config, Shape* shape, const char* what);

// A number that a training pass computes beside the loss. metrics.jsonl and the console show its
// mean over the step's micro-batches.
struct Measure {
    const char* name;               // "aux_loss"
    // Null, or its weight in what backward differentiates: a pass of N tokens has the gradient of
    // loss + weight N measure. tests/models/test_model.cpp checks that.
    float (*weight)(const Shape& shape) = nullptr;
};
constexpr size_t kMeasures = 4;                     // the most measures that a model may have

inline std::string any_shape(const Shape&) { return ""; }       // for ModelInfo::cuda

struct ModelInfo {
    const char *name, *title;       // name: for --model, models/list and config.json's model_type
    const char* architecture;       // config.json's architectures[0]; a new function has a new name
    std::vector<ShapeKey> keys;     // the numbers of the shape that are options
    std::vector<FixedKey> (*fixed)(const Shape& shape);     // the other keys of config.json
    // config.json's keys for the one dropout rate; empty: no dropout.
    std::vector<const char*> dropouts;
    std::vector<Preset> (*presets)();       // the first is the default on a CPU
    const char* gpu_preset;         // the default on a GPU
    // Returns "", or what of the shape has no CUDA kernel, "--window 64": --device gpu is then
    // refused. Null: the model has none.
    std::string (*cuda)(const Shape& shape);
    // Sets numbers that are 0 and follow from others. Returns "", or an error: "--heads: got ...".
    std::string (*check)(Shape& shape);
    // Returns every tensor once, in memory order. The first is the head's weight (Vp,C), or
    // embedding and head in one.
    std::vector<TensorSpec> (*tensors)(const Shape& shape);
    // Returns those of forward and backward, if sequences have T tokens.
    double (*flops_per_token)(const Shape& shape, int T);
    std::string (*text)(const Shape& shape);        // "12 layers x 12 heads x 768 channels"
    // Returns the head size of attention; null: the model has no attention.
    int (*head_size)(const Shape& shape) = nullptr;
    bool documents = false;         // the model keeps documents apart: it computes by Pass::begin
    int recompute = 0;              // the highest level of --recompute that saves memory
    std::vector<Measure> measures = {};
    // Options for the tests of all models, written as in a preset: "mlp-size 24". The tests set 2
    // layers, 2 heads, 16 channels, 12 positions and 19 tokens; keys that are not named get their
    // smallest value. Small values make a test fast, but every operation must have an effect. If
    // one option enables another, name both: rope-factor, rope-low.
    const char* test_shape = "";
};

const std::vector<const ModelInfo*>& all_models();      // in the order of models/list
const ModelInfo* find_model(const std::string& name);   // null: no model has this name
void set_vocabulary(Shape* shape, int V);               // sets V and Vp

// Return the options that several models have: models.cpp. hf: the model's key in config.json.
ShapeKey layers_key(const char* hf);
ShapeKey heads_key(const char* hf);
ShapeKey channels_key(const char* hf);
ShapeKey seq_len_key(const char* hf);
