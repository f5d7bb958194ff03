// init.cpp -- the model that a run starts from: shape, weights, tokenizer; its config.json in checkpoints (app.h).
#include "src/app/init.h"
#include <algorithm>
#include "models/tuning.h"
#include "src/app/app.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/base/tools.h"
#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/safetensors.h"

// Reads a folder's text files into init->texts. texts.config stays the model's config.json if the folder has adapters.
static void read_texts(const std::string& folder, Init* init) {
    init->texts = read_model_texts(folder);
    init->texts.config = init->config.text;
}

// Reads a folder's config.json on the first rank. Whatever it says, a lm_head.weight with other numbers than the
// embedding is a tensor of its own, as in transformers 5.
static ModelConfig config_of_folder(const std::string& folder, Comm* comm) {
    const std::string path = path_join(folder, "config.json");
    std::string text;
    if (!comm || comm->rank == 0) {
        const ModelConfig config = read_config(folder);
        const bool own = !is_tuned(folder) && has_own_head(open_model(folder), config.info->tensors(config.shape)[0]);
        text = own ? config_json(config, R"({"tie_word_embeddings":false})") : config.text;
        if (own)
            warn("%s: lm_head.weight has other numbers than the embedding and is taken for a head of its own; saved "
                 "without it, the two are one", folder.c_str());
    }
    return parse_config(comm ? comm_first_text(comm, text) : text, path.c_str());
}

static Init init_of_folder(const std::string& folder, Comm* comm) {
    Init init = {folder, config_of_folder(folder, comm)};
    read_texts(folder, &init);
    return init;
}

// Reads a model in one file: build/import converts it to a folder in a cache, and this reads that folder.
static Init init_of_file(const std::string& path, Comm* comm) {
    const auto waiting = [comm] {
        if (comm) comm_progress(comm, -1, "importing --init");
    };
    const std::string folder = ask_tool("--init", require_tool("--init", "import"), {"--answer"}, path, waiting);
    Init init = init_of_folder(folder, comm);
    init.folder = path;
    init.imported = folder;
    return init;
}

static bool is_file(const std::string& path) { return file_exists(path) && !is_directory(path); }

// Returns the CRC-32C of all files that hold a model's weights, one after another.
static uint32_t weights_checksum(const Init& init) {
    uint32_t crc = 0;
    if (is_file(init.folder)) return InputFile(init.folder).checksum();
    for (const SharedFile& file : open_model(init.folder).files) crc = file->checksum(crc);
    return crc;
}

// Checks that the adapters in init->tuned were trained on this model: that folder's config.json has the same sizes, and
// its state.json the CRC of this model's weights. Then takes that config.json, whose context may be shorter.
static void check_base(Init* init) {
    const std::string state = path_join(init->tuned, "state.json"), text = read_file(state);
    const ModelConfig own = read_config(init->tuned);
    bool same = own.info == init->config.info && own.shape.V == init->config.shape.V;
    for (const ShapeKey& key : own.info->keys)
        same &= key.option == std::string("seq-len") || key.get(own.shape) == key.get(init->config.shape);
    if (!same || parse_json(text, state.c_str(), true).get_u64("base_crc", state.c_str()) != weights_checksum(*init))
        die(kExitBadContent, "%s: its config.json or its weights have changed since; an adapter fits no others",
            init->folder.c_str());
    init->config = own;
}

static Init init_of_tuned(const std::string& folder, Comm* comm) try {
    const std::string named = checkpoint_named(read_tuned(folder).base);
    const std::string base = is_file(named) ? named : resolve_model_folder(named, kTunedConfig);
    const std::string own = path_join(folder, "tokenizer.json");
    if (is_tuned(base)) die_content("base_model_name_or_path", "the adapter " + base, "a whole model");
    Init init = is_file(base) ? init_of_file(base, comm) : init_of_folder(base, comm);
    init.tuned = folder;
    if (file_exists(path_join(folder, "state.json"))) check_base(&init);
    if (file_exists(own)) read_texts(folder, &init);
    return init;
} catch (const Error& error) {
    die(error.code, "adapter %s: %s", folder.c_str(), error.message.c_str());
}

Init init_of_path(const std::string& name, Comm* comm) {
    const std::string path = checkpoint_named(name);
    if (is_file(path)) return init_of_file(path, comm);
    const std::string folder = resolve_model_folder(path, kTunedConfig);
    return is_tuned(folder) ? init_of_tuned(folder, comm) : init_of_folder(folder, comm);
}

std::shared_ptr<Init> init_of_options(Options* o, Comm* comm) {
    if (o->init.empty()) return std::make_shared<Init>();
    Init init = init_of_path(o->init, comm);
    init.first = true;
    if (o->freezes() && !init.tuned.empty())
        die(kExitUsage, "--lora: %s: got an adapter, want a whole model; build/export --merge --hf DIR makes one",
            o->init.c_str());
    options_take_model(o, *init.config.info, init.config.shape);
    return std::make_shared<Init>(std::move(init));
}

std::shared_ptr<Init> init_of_run(const std::string& checkpoint, const Options& o, Comm* comm) {
    Init init = {checkpoint, config_of_folder(checkpoint, comm)};
    if (comm->rank == 0) read_texts(checkpoint, &init);
    for (const auto& [name, text] : kModelTexts) init.texts.*text = comm_first_text(comm, init.texts.*text);
    for (const ShapeKey& key : init.config.info->keys) {    // a damaged size must not decide how much is allocated
        const double has = key.get(init.config.shape), want = key.get(o.shape);
        if (o.model == init.config.info->name && has != want)
            die_content(checkpoint + "/config.json: " + key.option, format("%g", has),
                        format("%g as in the run's config.json", want));
    }
    return std::make_shared<Init>(std::move(init));
}

const std::string& init_folder(const Init& init) { return init.folder; }

DataOptions data_options(const Options& o, const Init& init) {
    const bool chosen = o.tokenizer != "byte" && (o.command == "train" || init.texts.tokenizer.empty());
    return {.data = o.data,
            .val_data = o.val_data,
            .tokenizer = chosen || o.is_given("tokenizer") ? o.tokenizer : "",
            .chat_template = o.chat_template,
            .init = init.texts,
            .init_path = path_join(init.saved(), "tokenizer.json"),
            .init_weights = init.first ? init.weights() : "",
            .prompt = o.command != "train" || o.sample_every > 0 ? o.prompt : "",
            .task = o.task,
            .cache = o.dry_run ? "" : o.out_dir,
            .init_vocab = init.config.shape.V,
            .vocab_size = o.shape.V,
            .seq_len = o.shape.T,
            .skip_bad_lines = o.skip_bad_lines,
            .special_tokens = o.special_tokens,
            .frozen_by = o.lora ? "--lora" : "",
            .evaluates = o.command != "train" || o.eval_every > 0};
}

Data data_of_options(const Options& o, const Init& init, Comm* comm) {
    const int V = o.shape.V ? o.shape.V : o.vocabulary;
    if (!o.dry_run || !V || o.is_given("tokenizer") || o.data + o.init + o.resume != "")
        return open_data(data_options(o, init), comm);
    return {.train = {.description = "none given; a run takes the built-in stories, in bytes"}, .vocab_size = V};
}

Sampler data_order(const Options& o, uint64_t samples) {
    return {.torch = o.sampler == "torch", .n = samples, .seed = o.seed, .B = o.batch_size,
            .G = int(o.micro_batches()), .R = o.replicas};
}

// Sets the rows of new tokens (theirs and after) and of the tokens in `fill` to the mean of the other rows, because
// zeros would make them likelier than most tokens. Rows of zeros do not count in the mean. theirs: rows in the file.
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
        for (size_t col = 0; col < own.cols; col++) begin(size_t(row))[col] = float(sums[col] / std::max(count, 1.0));
}

void load_first_weights(float* weights, const Arena& arena, const Options& o, const Init& init, const Data& data) {
    if (init.folder.empty() || o.freezes()) return arena_init(weights, arena, o.seed);
    load_init(weights, arena, init, data.vocabulary.untrained);
}

void load_init(float* weights, const Arena& arena, const Init& init, const std::vector<int>& untrained) {
    const Arena theirs = arena_layout(init.config.info->tensors(init.files));
    read_safetensors(open_model(init.weights()), arena, "", weights, &theirs);
    for (size_t i = 0; i < arena.tensors.size(); i++) {
        const TensorSpec& own = arena.tensors[i];
        if (own.at_ends && own.rows == arena.tensors[0].rows)     // but not the table of positions
            fill_rows(weights + arena.offset[i], theirs.tensors[i].file_rows, own, untrained);
    }
    if (!init.tuned.empty()) load_tuned(weights, arena, init.tuned);
}

std::string model_config_json(const ModelInfo* info, const Shape& shape, const Data& data, const Init& init) {
    const std::string text = config_json({info, shape, init.config.text}, data.vocabulary.config);
    const Shape back = parse_config(text, "config.json").shape;
    for (const ShapeKey& key : info->keys)      // a size that is lost here would give every later command another model
        if (key.get(back) != key.get(shape))
            die(kExitOther, "config.json: --%s: got %g from what was just written, want %g; give its row in %s_info a "
                "name, or write it in `fixed` and read it in `read`", key.option, key.get(back), key.get(shape),
                info->name);
    return text;
}

void describe_frozen(CheckpointFiles* files, const Options& o, const Init& init) {
    if (!o.freezes()) return;
    files->weights = kTunedWeights;
    const std::vector<TensorSpec> table = find_model(o.model)->tensors(o.shape);
    files->texts.push_back({kTunedConfig, tuned_config_json(o.lora, o.lora_alpha, o.lora_targets, table, init.folder)});
    files->frozen_crc = weights_checksum(init);
}
