// init.cpp -- the model that a run starts from: shape, weights, tokenizer; its config.json in
// checkpoints (app.h).
#include "src/app/program.h"
#include <algorithm>
#include <map>
#include "src/app/app.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/base/words.h"
#include "src/checkpoint/checkpoint.h"
#include "src/data/orders/order.h"

// Rank 0 reads the text files of a model's folder and broadcasts them, because other hosts may lack
// the folder.
static ModelTexts read_texts(const std::string& folder, Comm* comm) {
    if (!comm) return read_model_texts(folder);
    ModelTexts texts;
    if (comm->rank == 0) texts = read_model_texts(folder);
    for (const auto& [name, text] : kModelTexts) texts.*text = comm_first_text(comm, texts.*text);
    return texts;
}

// ---- what build/import answers: tools/text/model_folder.cpp

static const char* const kAnswer = "what build/import answers";

Init init_of_path(const std::string& path, Comm* comm, bool crc) {
    const auto waiting = [comm] {
        if (comm) comm_progress(comm, -1, "importing --init");
    };
    std::string answer;
    if (!comm || comm->rank == 0)
        answer = ask_tool("--init", require_tool("--init", "import"), {crc ? "--crc" : "--answer"},
                          path, waiting);
    if (comm) answer = comm_first_text(comm, answer);
    const Json json = parse_json(answer, kAnswer, true), shape = json.at("shape", kAnswer);
    const auto text = [&](const char* key) { return json.get_string(key, kAnswer); };
    Init init = {.folder = text("folder"),
                 .weights = text("weights"),
                 .saved = text("saved"),
                 .config = {find_model(text("model")), {}, text("config")},
                 .texts = read_texts(text("texts"), comm),
                 .crc = uint32_t(json.get_u64("crc", kAnswer)),
                 .answer = answer,
                 .adapted = bool(json.find("adapters"))};
    Shape& own = init.config.shape;
    for (const ShapeKey& key : init.config.info->keys)
        key.set(&own, shape.get_double(key.option, kAnswer));
    own.dropout = float(json.get_double("dropout", kAnswer));
    set_vocabulary(&own, int(json.get_u64("vocabulary", kAnswer)));
    init.texts.config = init.config.text;
    return init;
}

// Opens the file of a tensor. files: those that are open.
static SafeTensor open_tensor(const Json& json, std::map<std::string, SharedFile>* files) {
    const std::string path = json.get_string("file", kAnswer);
    SharedFile& file = (*files)[path];
    if (!file) file = std::make_shared<InputFile>(path);
    return {"", json.get_string("dtype", kAnswer), {}, json.get_u64("begin", kAnswer), 0, file};
}

std::shared_ptr<Init> init_of_options(Options* o, Comm* comm) {
    if (o->init.empty()) return std::make_shared<Init>();
    Init init = init_of_path(o->init, comm, o->freezes());
    init.first = true;
    if (o->freezes() && init.adapted)
        die(kExitUsage,
            "--lora: %s: got an adapter, want a whole model; build/export --merge --hf DIR makes one",
            o->init.c_str());
    options_take_model(o, *init.config.info, init.config.shape);
    return std::make_shared<Init>(std::move(init));
}

std::shared_ptr<Init> init_of_run(const std::string& checkpoint, const Options& o, Comm* comm) {
    Init init = {.folder = checkpoint, .texts = read_texts(checkpoint, comm)};
    const std::string path = path_join(checkpoint, "config.json");
    init.config = {find_model(o.model), o.shape, init.texts.config};
    const Json json = parse_json(init.texts.config, path.c_str());
    // A damaged size must not decide how much is allocated.
    for (const ShapeKey& key : init.config.info->keys) {
        Shape saved = o.shape;
        double number;
        if (*key.hf && json.find(key.hf).as_double(&number)) key.set(&saved, number);
        if (const double has = key.get(saved), want = key.get(o.shape); has != want)
            die_content(path + ": " + key.option, format("%g", has),
                        format("%g as in the run's config.json", want));
    }
    set_vocabulary(&init.config.shape, int(json.get_u64("vocab_size", path.c_str())));
    return std::make_shared<Init>(std::move(init));
}

const std::string& init_folder(const Init& init) { return init.folder; }

DataOptions data_options(const Options& o, const Init& init) {
    const bool chosen =
        o.tokenizer != "byte" && (o.command == "train" || init.texts.tokenizer.empty());
    const auto number = [](int n) { return n ? std::to_string(n) : ""; };
    const std::pair<const char*, std::string> given[] = {
        {"--data=", o.data},
        {"--val-data=", o.val_data},
        {"--tokenizer=", chosen || o.is_given("tokenizer") ? o.tokenizer : ""},
        {"--rows=", o.data.empty() && o.rows != "documents" ? "" : o.rows},
        {"--chat-template=", o.chat_template == "auto" ? "" : o.chat_template},
        {"--init-path=", init.folder.empty() ? "" : path_join(init.saved, "tokenizer.json")},
        {"--init-weights=", init.first ? init.weights : ""},
        {"--init-vocab=", number(init.config.shape.V)},
        {"--vocab-size=", number(o.shape.V)},
        {"--prompt=", o.command != "train" || o.sample_every > 0 ? o.prompt : ""},
        {"--special-tokens=", o.special_tokens ? "on" : ""},
        {"--frozen-by=", o.lora ? "--lora" : ""}};
    DataOptions d = {.init = init.texts, .cache = o.dry_run ? "" : o.out_dir, .seq_len = o.shape.T,
                     .rows = o.rows, .evaluates = o.command != "train" || o.eval_every > 0};
    for (const auto& [option, value] : given)
        if (!value.empty()) d.prep.push_back(option + value);
    if (o.skip_bad_lines && !d.prep.empty())
        d.prep.push_back(format("--skip-bad-lines=%d", o.skip_bad_lines));
    return d;
}

Sampler data_order(const Options& o, const Dataset& data) {
    const OrderInfo& order = find_row(kOrders, o.sampler);
    return {.order = order.sample, .first = data.begins, .seed = o.seed, .B = o.batch_size,
            .G = int(o.micro_batches()), .R = o.replicas, .hyper = o.hyper, .weights = data.weights};
}

// Sets the rows of new tokens (theirs and after) and of the tokens in `fill` to the mean of the
// other rows, because zeros would make them likelier than most tokens. Rows of zeros do not count
// in the mean. theirs: rows in the file.
static void fill_rows(float* values, size_t theirs, const TensorSpec& own, std::vector<int> fill) {
    for (size_t row = theirs; row < own.file_rows; row++) fill.push_back(int(row));
    if (fill.empty()) return;
    const auto begin = [&](size_t row) { return values + row * own.cols; };
    for (const int row : fill) std::fill_n(begin(size_t(row)), own.cols, 0.0f);
    std::vector<double> sums(own.cols);
    double count = 0;
    for (size_t row = 0; row < theirs; row++) {
        for (size_t col = 0; col < own.cols; col++) sums[col] += double(begin(row)[col]);
        count += std::any_of(begin(row), begin(row) + own.cols, [](float x) { return x != 0; });
    }
    for (const int row : fill)
        for (size_t col = 0; col < own.cols; col++)
            begin(size_t(row))[col] = float(sums[col] / std::max(count, 1.0));
}

void load_first_weights(float* weights, const Arena& arena, const Options& o, const Init& init,
                        const Data& data) {
    if (init.folder.empty() || o.freezes()) return arena_init(weights, arena, o.seed);
    load_init(weights, arena, init, data.vocabulary.untrained);
}

void load_init(float* weights, const Arena& arena, const Init& init,
               const std::vector<int>& untrained) {
    const Json json = parse_json(init.answer, kAnswer, true);
    Shape files = init.config.shape;
    files.T = int(json.get_u64("context", kAnswer));
    const Arena theirs = arena_layout(init.config.info->tensors(files));
    std::map<std::string, SharedFile> open;
    std::vector<SafeTensor> tensors;
    for (JsonItems i(json.at("tensors", kAnswer)); i.next();)
        tensors.push_back(open_tensor(i.value, &open));
    read_tensors(tensors, theirs, arena, weights);
    for (size_t i = 0; i < arena.tensors.size(); i++) {
        const TensorSpec& own = arena.tensors[i];
        if (own.at_ends && own.rows == arena.tensors[0].rows)     // but not the table of positions
            fill_rows(weights + arena.offset[i], theirs.tensors[i].file_rows, own, untrained);
    }
    for (JsonItems i(json.find("adapters")); init.adapted && i.next();) {
        const auto number = [&i](const char* key) { return i.value.get_u64(key, kAnswer); };
        const size_t tensor = number("tensor");
        const SafeTensor A = open_tensor(i.value.find("A"), &open),
                         B = open_tensor(i.value.find("B"), &open);
        add_adapter(weights + arena.offset[tensor] + number("begin"), number("rows"),
                    arena.tensors[tensor].cols, json.get_u64("rank", kAnswer),
                    float(json.get_double("scale", kAnswer)), {A, B});
    }
}

CheckpointFiles checkpoint_files(const Options& o, const Shape& shape, const Data& data,
                                 const Init& init) {
    CheckpointFiles files;
    const ModelInfo* const info = find_model(o.model);
    files.config_json = config_json({info, shape, init.config.text}, data.vocabulary.config);
    files.texts = data.vocabulary.files;
    files.keep = o.keep;
    files.keep_every = o.keep_every;
    if (!o.freezes()) return files;
    files.weights = kTunedWeights;
    files.texts.push_back({kTunedConfig, tuned_config_json(o.lora, o.lora_alpha, o.lora_targets,
                                                           info->tensors(o.shape), init.folder)});
    files.frozen_crc = init.crc;
    return files;
}
