// init.cpp -- where a run's shape, weights, tokenizer and data come from; what checkpoints say of them (app.h, init.h).
#include "src/app/init.h"
#include <algorithm>
#include "models/tuning.h"
#include "src/app/app.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/base/tools.h"
#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/safetensors.h"

static std::string read_beside(const std::string& folder, const char* name) {
    const std::string path = path_join(folder, name);
    return file_exists(path) ? read_file(path) : "";
}

static void read_tokenizer_files(const std::string& folder, Init* init) {
    init->tokenizer = read_beside(folder, "tokenizer.json");
    init->tokenizer_config = read_beside(folder, "tokenizer_config.json");
    init->chat_template = read_beside(folder, "chat_template.jinja");
    init->generation_config = read_beside(folder, "generation_config.json");
}

static Init init_of_folder(const std::string& folder) {
    Init init = {folder, "", read_config(folder)};
    read_tokenizer_files(folder, &init);
    return init;
}

// build/import makes a folder of a model in one file, and keeps it in a cache.
static Init init_of_file(const std::string& path, const Waiting& waiting) {
    const std::string folder = ask_tool("--init", require_tool("--init", "import"), {"--answer"}, path, waiting);
    Init init = init_of_folder(folder);
    init.folder = path;
    init.imported = folder;
    return init;
}

static bool is_file(const std::string& path) { return file_exists(path) && !is_directory(path); }

// Returns the CRC-32C of the files with a model's weights.
static uint32_t weights_checksum(const Init& init) {
    uint32_t crc = 0;
    if (is_file(init.folder)) return InputFile(init.folder).checksum();
    for (const SharedFile& file : open_model(init.folder).files) crc = file->checksum(crc);
    return crc;
}

// Checks that init->tuned was trained beside this model: compares it with the config.json there, and its weights' CRC
// with the one in state.json.
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

static Init init_of_tuned(const std::string& folder, const Waiting& waiting) try {
    const std::string named = checkpoint_named(read_tuned(folder).base);
    const std::string base = is_file(named) ? named : resolve_model_folder(named, kTunedConfig);
    if (is_tuned(base)) die_content("base_model_name_or_path", "the adapter " + base, "a whole model");
    Init init = is_file(base) ? init_of_file(base, waiting) : init_of_folder(base);
    if (file_exists(path_join(folder, "tokenizer.json"))) read_tokenizer_files(folder, &init);
    init.tuned = folder;
    if (file_exists(path_join(folder, "state.json"))) check_base(&init);
    return init;
} catch (const Error& error) {
    die(error.code, "adapter %s: %s", folder.c_str(), error.message.c_str());
}

Init init_of_path(const std::string& name, const Waiting& waiting) {
    const std::string path = checkpoint_named(name);
    if (is_file(path)) return init_of_file(path, waiting);
    const std::string folder = resolve_model_folder(path, kTunedConfig);
    return is_tuned(folder) ? init_of_tuned(folder, waiting) : init_of_folder(folder);
}

std::shared_ptr<Init> init_of_options(Options* o, Comm* comm) {
    if (o->init.empty()) return std::make_shared<Init>();
    Init init = init_of_path(o->init, [comm] { comm_progress(comm, -1, "importing --init"); });
    if (o->tuning.freezes() && !init.tuned.empty())
        die(kExitUsage, "--lora: %s: got an adapter, want a whole model; build/export --merge --hf DIR makes one",
            o->init.c_str());
    options_take_model(o, *init.config.info, init.config.shape);
    return std::make_shared<Init>(std::move(init));
}

std::shared_ptr<Init> init_of_run(const std::string& checkpoint, const Options& o, Comm* comm) {
    const std::string config = checkpoint + "/config.json";
    const bool reads = comm->rank == 0;
    if (reads) read_config(checkpoint);                 // checks it, also against the size of the weights' file
    const std::string config_text = comm_first_text(comm, reads ? read_file(config) : "");
    Init init = {checkpoint, "", parse_config(config_text, config.c_str())};
    if (reads) read_tokenizer_files(checkpoint, &init);
    for (std::string* text : {&init.tokenizer, &init.tokenizer_config, &init.chat_template, &init.generation_config})
        *text = comm_first_text(comm, *text);
    for (const ShapeKey& key : init.config.info->keys) {    // a damaged size must not ask for memory
        const double has = key.get(init.config.shape), want = key.get(o.shape);
        if (o.model == init.config.info->name && has != want)
            die_content(config + ": " + key.option, format("%g", has), format("%g as in the run's config.json", want));
    }
    return std::make_shared<Init>(std::move(init));
}

const std::string& init_folder(const Init& init) { return init.folder; }

DataOptions data_options(const Options& o, const Init& init) {
    const bool chosen = o.tokenizer != "byte" && (o.command == "train" || init.tokenizer.empty());
    return {.data = o.data,
            .val_data = o.val_data,
            .tokenizer = chosen || o.is_given("tokenizer") ? o.tokenizer : "",
            .chat_template = o.chat_template,
            .init_path = path_join(init.saved(), "tokenizer.json"),
            .init_tokenizer = init.tokenizer,
            .init_tokenizer_config = init.tokenizer_config,
            .init_chat_template = init.chat_template,
            .init_generation_config = init.generation_config,
            .prompt = o.command != "train" || o.sample_every > 0 ? o.prompt : "",
            .task = o.task,
            .cache = o.dry_run ? "" : o.out_dir,
            .init_vocab = init.config.shape.V,
            .vocab_size = o.shape.V,
            .seq_len = o.shape.T,
            .frozen_by = frozen_by(o.tuning),
            .init_eot = !init.folder.empty() && !init.config.no_eot,
            .evaluates = o.command != "train" || o.eval_every > 0};
}

Sampler data_order(const Options& o, uint64_t samples, int micro_batches) {
    return {.torch = o.sampler == "torch", .n = samples, .seed = o.seed, .B = o.batch_size, .G = micro_batches,
            .R = o.replicas};
}

// Sets the rows of new tokens to the mean of all others: zeros would make them likelier than most.
static void add_rows(float* values, const TensorSpec& theirs, const TensorSpec& own) {
    if (theirs.file_rows >= own.file_rows) return;
    std::vector<double> sums(own.cols);
    for (size_t row = 0; row < theirs.file_rows; row++)
        for (size_t col = 0; col < own.cols; col++) sums[col] += double(values[row * own.cols + col]);
    for (size_t row = theirs.file_rows; row < own.file_rows; row++)
        for (size_t col = 0; col < own.cols; col++)
            values[row * own.cols + col] = float(sums[col] / double(theirs.file_rows));
}

void load_first_weights(float* weights, const Arena& arena, const Options& o, const Init& init) {
    if (init.folder.empty() || o.tuning.freezes()) return arena_init(weights, arena, o.seed);
    load_init(weights, arena, init);
}

void load_init(float* weights, const Arena& arena, const Init& init) {
    const Arena theirs = arena_layout(init.config.info->tensors(init.files));
    read_safetensors(open_model(init.imported.empty() ? init.folder : init.imported), arena, "", weights, &theirs);
    for (size_t i = 0; i < arena.tensors.size(); i++)
        add_rows(weights + arena.offset[i], theirs.tensors[i], arena.tensors[i]);
    if (!init.tuned.empty()) load_tuned(weights, arena, init.tuned);
}

void load_tuned(float* weights, const Arena& arena, const std::string& folder) {
    const SafeTensors file = open_safetensors(path_join(folder, kTunedWeights));
    const auto has = [&](const TensorSpec& t) {         // finds a wrong shape before there is memory for it
        const auto found = std::ranges::find(file.tensors, t.name, &SafeTensor::name);
        const std::vector<uint64_t> want = {t.rows, t.cols};
        if (found != file.tensors.end() && found->shape != want)
            die_content(file.path + ": tensor " + t.name + ": shape", shape_text(found->shape), shape_text(want));
        return found != file.tensors.end();
    };
    merge_tuned(weights, arena, folder, has, [&](const Arena& a, float* to) { read_safetensors(file, a, "", to); });
}

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
    const std::vector<TensorSpec> table = find_model(o.model)->tensors(o.shape);
    files->texts.push_back({kTunedConfig, tuned_config_json(o.tuning, table, init.folder)});
    files->frozen_crc = weights_checksum(init);
}
