// model_folder.cpp -- see model_folder.h.
#include "tools/text/model_folder.h"
#include <algorithm>
#include <cmath>
#include "tools/text/config_reader.h"
#include "models/config.h"
#include "src/base/common.h"
#include "src/base/json.h"
#include "src/base/words.h"
#include "src/checkpoint/checkpoint.h"
#include "tools/text/reader.h"
#include "tools/text/tensor_files.h"

using Convert = std::function<std::string(const std::string& file)>;

// ---- folders

// Returns whether a folder's name is that of a checkpoint: "step_00001000".
static bool is_step(const std::string& name) {
    return name.starts_with("step_") && name.size() > 12 && name.find_first_not_of("0123456789", 5) == name.npos;
}

// What a folder may have that is no model here, by a pattern of its name, the likelier first, and what makes one of it.
// FILE is what was found, HERE the folder with it, DIR the folder that was given.
struct Contents { const char *pattern, *what, *remedy; };
constexpr const char* kByConfig = "python3 data/torch_model.py FILE DIR-hf CONFIG makes one; CONFIG has config.json";
constexpr Contents kContents[] = {
    {"checkpoint-*", "checkpoints of Trainer", "give FILE"}, {"*/*.safetensors", "a folder with weights", "give HERE"},
    {"snapshots/*", "the hub's cache", "give FILE"}, {"models--*/snapshots/*", "the hub's cache", "give FILE"},
    {"pytorch_model[.-]*bin*", "pytorch_model.bin", "python3 data/torch_model.py DIR/pytorch_model.bin DIR makes it"},
    {"zero_to_fp32.py", "a checkpoint of DeepSpeed", "python3 FILE DIR DIR makes pytorch_model.bin of it"},
    {"*.gguf", "GGUF", "give FILE"}, {"pytorch_model_fsdp_0", "shards of FSDP", "accelerate merge-weights FILE DIR"},
    {"ckpt.pt", "nanoGPT's ckpt.pt", "python3 data/torch_model.py FILE DIR-hf makes one"},
    {"lit_model.pth", "a model of litgpt", "litgpt convert_from_litgpt DIR DIR-hf && python3 data/torch_model.py "
     "DIR-hf/model.pth DIR-hf DIR makes one"},
    {"*.ckpt", "a checkpoint of Lightning", kByConfig}, {"*.pt*", "a file of torch", kByConfig},
    {"*.distcp", "shards of FSDP", "python3 -m torch.distributed.checkpoint.format_utils dcp_to_torch DIR DIR/all.pt"},
    {"model-*.safetensors", "model-*.safetensors without model.safetensors.index.json", "fetch that, too"},
    {"*.safetensors", "safetensors of another name", "if FILE is all of the model, give it that name"}};

// Returns what a folder has of kContents, and what makes a model of the last one by number and name; {} for nothing.
// only: a file in it that was given, and that is no model by itself; "": everything counts.
static Words what_is_in(const std::string& folder, const std::string& only = "") {
    for (const auto& [pattern, what, remedy] : kContents) {
        Words found = expand_glob(pattern, folder);
        if (!only.empty()) found = contains(found, only) && split(remedy)[0] != "give" ? Words{only} : Words();
        if (found.empty()) continue;
        const std::string file = std::ranges::max(found, {}, [](const auto& f) { return std::pair(f.size(), f); });
        Words words = split(remedy);
        for (std::string& word : words)
            for (const auto& [name, path] : {std::pair("FILE", file), {"HERE", parent_folder(file)}, {"DIR", folder}})
                if (word.starts_with(name)) {
                    word = shell_quote(word.replace(0, std::string(name).size(), path));
                    break;
                }
        return {what + (found.size() > 1 ? format(", the last of %zu", found.size()) : ""), join(words, " ")};
    }
    return {};
}

std::string resolve_model_folder(const std::string& path) {
    const std::string folder = real_path(checkpoint_named(path));
    const auto has = [&](const std::string& name) { return file_exists(path_join(folder, name)); };
    const bool is_checkpoint = has("DONE") || has("state.json") || (is_directory(folder) && is_step(base_name(folder)));
    if (is_checkpoint) return whole_checkpoint(folder);
    if (has("model.safetensors") || has("model.safetensors.index.json") || has(kTunedConfig)) return folder;
    if (const std::string found = find_checkpoint(folder); !found.empty()) return found;
    if (!file_exists(path) && std::ranges::count(folder, '/') == 1 && !is_directory(parent_folder(folder)))
        die(kExitNoInput, "no model: %s: it does not exist; a model of that name at Hugging Face is fetched by: "
            "hf download %s --local-dir %s", path.c_str(), shell_quote(folder).c_str(),
            shell_quote(base_name(folder)).c_str());
    const Words found = what_is_in(folder);
    const std::string got = !file_exists(path) ? "it does not exist" : "it has " + (found.empty() ? "none" : found[0]);
    die(kExitNoInput, "no model: %s: %s; want a run that has saved, a checkpoint or a Hugging Face folder with "
        "model.safetensors%s", path.c_str(), got.c_str(), found.empty() ? "" : ("; " + found[1]).c_str());
}

void refuse_file(const std::string& path) {
    const std::string folder = real_path(parent_folder(path));
    Words found = what_is_in(folder, path_join(folder, base_name(path)));
    if (found.empty()) found = {"a file that is no model", "data/torch_model.py makes one"};
    try {
        found[1] = "give " + shell_quote(resolve_model_folder(folder));
    } catch (const Error&) {}               // no model is beside it
    die_content(path, found[0], "GGUF, llm.c's GPT-2, or a folder with model.safetensors; " + found[1]);
}

// Refuses a run's model whose config.json has lost a number that the run's options have: it would be another model.
static void check_sizes(const std::string& folder, const ModelConfig& config) {
    const std::string state = path_join(folder, "state.json"), text = file_exists(state) ? read_file(state) : "{}";
    const Json options = parse_json(text, state.c_str(), true).find("options");
    for (const ShapeKey& key : config.info->keys) {
        double want;
        Shape shape = config.shape;
        if (!parse_whole(options.find(key.option).text(), &want)) continue;     // an older run has no such option
        key.set(&shape, want);
        if (key.get(shape) != key.get(config.shape))
            die_content(path_join(folder, "config.json") + ": --" + key.option, format("%g", key.get(config.shape)),
                        format("%g as in state.json; if the model is new, give the key's row in %s_info a name, or "
                               "write it in `fixed` and read it in %s_read", want, config.info->name,
                               config.info->name));
    }
}

// Reads a folder's config.json. Whatever it says, a lm_head.weight with other numbers than the embedding is a tensor of
// its own, as in transformers 5.
static ModelConfig config_of_folder(const std::string& folder) {
    const ModelConfig config = read_config(folder);
    check_sizes(folder, config);
    if (!has_own_head(open_model(folder), config.info->tensors(config.shape)[0])) return config;
    warn("%s: lm_head.weight has other numbers than the embedding and is taken for a head of its own; saved "
         "without it, the two are one", folder.c_str());
    const std::string path = path_join(folder, "config.json");
    return parse_config(config_json(config, R"({"tie_word_embeddings":false})"), path.c_str());
}

// A model without its weights.
struct Model {
    std::string path, folder;           // the folder or file of the whole model; the folder with its weights
    ModelConfig config;
    Shape files = config.shape;         // the shape that the files of weights have; its context may be longer
    std::string tuned = {};             // a PEFT folder with adapters for it; "": none

    // Returns the CRC-32C of all files that hold the weights, one after another.
    uint32_t checksum() const {
        if (path != folder) return InputFile(path).checksum();
        uint32_t crc = 0;
        for (const SharedFile& file : open_model(folder).files) crc = file->checksum(crc);
        return crc;
    }
};

static bool is_file(const std::string& path) { return file_exists(path) && !is_directory(path); }

static Model model_of_file(const std::string& path, const Convert& convert) {
    const std::string folder = convert(path);
    return {path, folder, config_of_folder(folder)};
}

static Model model_of_folder(const std::string& folder) { return {folder, folder, config_of_folder(folder)}; }

// ---- adapters

static bool is_tuned(const std::string& folder) { return file_exists(path_join(folder, kTunedConfig)); }

constexpr const char* kMerge = "; python3 data/torch_model.py ADAPTER DIR makes a whole model, by PEFT";
Tuned read_tuned(const std::string& folder) {
    const std::string path = path_join(folder, kTunedConfig), text = read_file(path);
    const char* const what = path.c_str();
    const Json json = parse_json(text, what, true);
    const std::string merge = kMerge, none = "none: it is not computed here" + merge;
    if (const Json type = json.at("peft_type", what); type.text() != "LORA")
        refuse(what, "peft_type", type, "\"LORA\"" + merge);
    for (const char* key : {"use_dora", "use_qalora", "lora_bias", "modules_to_save", "layer_replication",
                            "target_parameters", "trainable_token_indices", "alora_invocation_tokens", "use_bdlora",
                            "rank_pattern", "alpha_pattern"})
        if (!contains({"", "null", "false", "{}", "[]"}, json.find(key).text()))
            refuse(what, key, json.find(key), none);
    if (const Json bias = json.find("bias"); bias && bias.text() != "none") refuse(what, "bias", bias, none);
    // With any other value of init_lora_weights PEFT also changes the model's own weights.
    const Json init = json.find("init_lora_weights");
    if (!contains({"", "true", "false", "gaussian"}, init.text()))
        refuse(what, "init_lora_weights", init, "true, false or \"gaussian\"" + merge);
    const uint64_t rank = json.get_u64("r", what);
    const double alpha = json.get_double("lora_alpha", what);
    if (rank < 1 || rank > 1 << 20) die_content(path + ": r", std::to_string(rank), "from 1 to 1048576");
    if (std::fabs(alpha) > 1e6) die_content(path + ": lora_alpha", format("%g", alpha), "at most 1e6");
    const bool stable = json.find("use_rslora").text() == "true";       // rsLoRA, Kalajdzievski 2023
    return {json.get_string("base_model_name_or_path", what), rank,
            float(alpha / (stable ? std::sqrt(double(rank)) : double(rank)))};
}

std::vector<Adapter> find_adapters(const std::string& folder, const Tuned& tuned,
                                   const std::vector<TensorSpec>& table) {
    const SafeTensors file = open_safetensors(path_join(folder, kTunedWeights));
    for (const SafeTensor& t : file.tensors)
        if (t.name.find(".lora_A.") == t.name.npos && t.name.find(".lora_B.") == t.name.npos)
            die_content(file.path + ": tensor " + t.name, "another than LoRA's, such as an embedding",
                        std::string("A and B alone") + kMerge);
    std::vector<Adapter> found;
    std::vector<TensorSpec> pairs;
    for (size_t i = 0; i < table.size(); i++) {
        size_t begin = 0;
        if (table[i].rows == 1) continue;
        for (const auto& [name, rows] : parts_of(table[i])) {
            const auto [A, B] = adapter_of(name, rows, table[i].cols, tuned.rank);
            if (std::ranges::find(file.tensors, A.name, &SafeTensor::name) != file.tensors.end()) {
                pairs.insert(pairs.end(), {A, B});
                found.push_back({i, begin, rows, {}, {}});
            }
            begin += rows * table[i].cols;
        }
    }
    if (pairs.empty()) die(kExitBadContent, "%s: no adapter of %s is in it", file.path.c_str(), tuned.base.c_str());
    const std::vector<SafeTensor> tensors = find_tensors(file, pairs);
    for (size_t i = 0; i < found.size(); i++) {
        found[i].A = tensors[2 * i];
        found[i].B = tensors[2 * i + 1];
    }
    return found;
}

// Checks that the adapters in model->tuned were trained on this model: that folder's config.json has the same sizes,
// and its state.json the CRC of this model's weights. Then takes that config.json, whose context may be shorter.
static void check_base(Model* model) {
    const std::string state = path_join(model->tuned, "state.json"), text = read_file(state);
    const ModelConfig own = read_config(model->tuned);
    bool same = own.info == model->config.info && own.shape.V == model->config.shape.V;
    for (const ShapeKey& key : own.info->keys)
        same &= key.option == std::string("seq-len") || key.get(own.shape) == key.get(model->config.shape);
    if (!same || parse_json(text, state.c_str(), true).get_u64("base_crc", state.c_str()) != model->checksum())
        die(kExitBadContent, "%s: its config.json or its weights have changed since; an adapter fits no others",
            model->path.c_str());
    model->config = own;
}

static Model model_of_adapter(const std::string& folder, const Convert& convert) try {
    const std::string named = checkpoint_named(read_tuned(folder).base);
    const std::string base = is_file(named) ? named : resolve_model_folder(named);
    if (is_tuned(base)) die_content("base_model_name_or_path", "the adapter " + base, "a whole model");
    Model model = is_file(base) ? model_of_file(base, convert) : model_of_folder(base);
    model.tuned = folder;
    if (file_exists(path_join(folder, "state.json"))) check_base(&model);
    return model;
} catch (const Error& error) {
    die(error.code, "adapter %s: %s", folder.c_str(), error.message.c_str());
}

// ---- the answer

static Model find_model_at(const std::string& name, const Convert& convert) {
    const std::string path = checkpoint_named(name);
    if (is_file(path)) return model_of_file(path, convert);
    const std::string folder = resolve_model_folder(path);
    return is_tuned(folder) ? model_of_adapter(folder, convert) : model_of_folder(folder);
}

// Returns where a tensor is, as JSON.
static std::string place_of(const SafeTensor& t) {
    return JsonLine().raw("file", json_quote(t.file->path, true)).add("dtype", t.dtype).add("begin", t.begin).text();
}

std::string describe_model(const std::string& path, bool crc, const Convert& convert) {
    const Model model = find_model_at(path, convert);
    const ModelInfo& info = *model.config.info;
    const std::vector<TensorSpec> table = info.tensors(model.files);
    const std::string own = path_join(model.tuned, "tokenizer.json");
    const bool own_texts = !model.tuned.empty() && file_exists(own);
    JsonLine line, shape;
    for (const ShapeKey& key : info.keys) shape.raw(key.option, number_text(key.get(model.config.shape)));
    Words tensors, adapters;
    for (const SafeTensor& t : find_tensors(open_model(model.folder), table)) tensors.push_back(place_of(t));
    const auto add_path = [&](const char* key, const std::string& value) { line.raw(key, json_quote(value, true)); };
    add_path("folder", model.path);
    add_path("weights", model.folder);
    add_path("saved", model.tuned.empty() ? model.path : model.tuned);
    add_path("texts", own_texts ? model.tuned : model.folder);
    add_path("config", model.config.text);
    line.add("model", info.name).raw("shape", shape.text()).add("vocabulary", model.config.shape.V)
        .raw("dropout", number_text(double(model.config.shape.dropout))).add("context", model.files.T)
        .add("crc", crc ? model.checksum() : 0).raw("tensors", "[" + join(tensors, ",") + "]");
    if (model.tuned.empty()) return line.text();
    const Tuned tuned = read_tuned(model.tuned);
    for (const Adapter& a : find_adapters(model.tuned, tuned, table))
        adapters.push_back(JsonLine().add("tensor", a.tensor).add("begin", a.begin).add("rows", a.rows)
                               .raw("A", place_of(a.A)).raw("B", place_of(a.B)).text());
    return line.add("rank", tuned.rank).raw("scale", json_number(tuned.scale))
        .raw("adapters", "[" + join(adapters, ",") + "]").text();
}
