// lora.cpp -- low-rank adapters (lora.h): options, names and files, by the questions of tuning.h.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include "models/tuning.h"
#include "src/base/allowance.h"
#include "src/base/common.h"
#include "src/base/cpus.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/base/words.h"

// ---- as options

const std::vector<TuningKey> kTuningKeys = {
    {"lora", "RANK", &Tuning::rank, {"from 8 to 1024", 8, 1024}, "lora-rank lora-r",
     "train adapters of this rank beside the weights of --init, which stay; a multiple of 8"},
    {"lora-alpha", "X", &Tuning::alpha, kPositive, "", "adapters count alpha / rank times (not given: 2 rank)"},
    {"lora-targets", "NAMES", &Tuning::targets, kNotNegative, "target-modules",
     "matrices with adapters by PEFT's names, as q_proj,k_proj,v_proj; all: all but embedding and head"}};

void resolve_tuning(Tuning* tuning, const std::vector<std::string>& given, bool starts) {
    if (!tuning->rank && (contains(given, "lora-alpha") || contains(given, "lora-targets")))
        die(kExitUsage, "--lora-alpha, --lora-targets: want --lora with them");
    if (tuning->rank && !starts) die(kExitUsage, "--lora: want --init with the model that it adapts");
    if (tuning->rank % 8) die(kExitUsage, "--lora: got %d, want a multiple of 8", tuning->rank);
    if (tuning->alpha == 0) tuning->alpha = 2 * tuning->rank;
}

std::string frozen_by(const Tuning& tuning) { return tuning.freezes() ? "--lora" : ""; }

// Published fine-tuning of whole models takes 1e-5 to 5e-5; narrow models need more. Adapters take ten times that
// (Schulman and others 2025, "LoRA without regret").
double tuning_rate(const Tuning& tuning, int channels) {
    return (tuning.freezes() ? 3e-4 : 3e-5) * 768 / std::clamp(channels, 1, 768);
}

std::string tuning_label(const Tuning& tuning) {
    return tuning.freezes() ? "-lora" + std::to_string(tuning.rank) : "";
}

std::string tuning_text(const Tuning& tuning, size_t trained) {
    return format("lora    rank %d, alpha %g: %s parameters in adapters of %s are trained, the others are frozen",
                  tuning.rank, tuning.alpha, with_commas(trained).c_str(),
                  tuning.targets == "all" ? "all matrices" : tuning.targets.c_str());
}

// ---- as tensors

const char* Tuning::weights_file() const { return freezes() ? kTunedWeights : "model.safetensors"; }

static std::string module_of(const std::string& tensor) {
    const std::string end = ".weight";
    return tensor.ends_with(end) ? tensor.substr(0, tensor.size() - end.size()) : tensor;
}

// "model.norm.weight", "lora_A" -> "base_model.model.model.norm.lora_A.weight", which PEFT calls its A
static std::string peft_name(const std::string& matrix, const char* which) {
    return "base_model.model." + module_of(matrix) + "." + which + ".weight";
}

// Returns the last part of a matrix's name, or those of the matrices stacked in it: {"q_proj", "k_proj", "v_proj"}.
// Vectors and embeddings cannot have adapters, and give an empty list.
static std::vector<std::string> last_names(const TensorSpec& spec) {
    std::vector<std::string> names;
    if (spec.rows == 1 || spec.at_ends) return names;
    for (const TensorSpec::Part& part : parts_of(spec)) {
        const std::string module = module_of(part.name);
        names.push_back(module.substr(module.rfind('.') + 1));
    }
    return names;
}

static bool is_adapted(const TensorSpec& spec, const std::string& targets) {
    const std::vector<std::string> names = last_names(spec);
    const auto named = std::ranges::count_if(names, [&](const std::string& name) {
        return targets == "all" || ("," + targets + ",").find("," + name + ",") != std::string::npos;
    });
    if (named > 0 && size_t(named) < names.size())
        die(kExitUsage, "--lora-targets: got %s, want %s together: they are one matrix", targets.c_str(),
            join(names, ",").c_str());
    return named > 0;
}

// Returns the adapted matrices' names as `targets` has them, each once.
static std::vector<std::string> modules_of(const std::vector<TensorSpec>& table, const std::string& targets) {
    std::vector<std::string> modules;
    for (const TensorSpec& spec : table)
        if (is_adapted(spec, targets))
            for (const std::string& name : last_names(spec))
                if (std::ranges::find(modules, name) == modules.end()) modules.push_back(name);
    return modules;
}

static void check_targets(const std::vector<TensorSpec>& table, const std::string& targets) {
    if (targets == "all") return;
    const std::vector<std::string> known = modules_of(table, "all");
    std::string_view rest = targets;
    do {
        const std::string_view name = next_word(&rest, ',');
        if (std::ranges::find(known, name) == known.end())
            die(kExitUsage, "--lora-targets: got %s, want all, or names of %s with commas between them",
                targets.c_str(), join(known, ", ").c_str());
    } while (!rest.empty());
}

std::vector<TensorSpec> trained_tensors(const std::vector<TensorSpec>& table, const Tuning& tuning) {
    if (!tuning.freezes()) return table;
    const size_t rank = size_t(tuning.rank);
    std::vector<TensorSpec> trained;
    check_targets(table, tuning.targets);
    for (const TensorSpec& spec : table) {
        if (!is_adapted(spec, tuning.targets)) continue;
        if (const size_t width = std::min(spec.rows, spec.cols); rank > width)
            die(kExitUsage, "--lora: got %zu, want at most %zu, the width of %s", rank, width, spec.name.c_str());
        TensorSpec A = {peft_name(spec.name, "lora_A"), rank, spec.cols, rank, false,
                        1 / std::sqrt(3 * float(spec.cols)), true};
        TensorSpec B = {peft_name(spec.name, "lora_B"), spec.rows, rank, spec.rows, false, 0, true};
        A.repeated = !spec.parts.empty();
        for (const auto& [name, rows] : spec.parts) {
            A.parts.push_back({peft_name(name, "lora_A"), rank});
            B.parts.push_back({peft_name(name, "lora_B"), rows});
        }
        trained.push_back(A);
        trained.push_back(B);
    }
    return trained;
}

std::vector<int> trained_begins(const std::vector<TensorSpec>& table, const Tuning& tuning) {
    std::vector<int> begins = {0};
    for (const TensorSpec& spec : table)
        begins.push_back(begins.back() + (!tuning.freezes() ? 1 : is_adapted(spec, tuning.targets) ? 2 : 0));
    return begins;
}

// ---- as files: names and meanings are those of peft 0.17, config.py and lora/config.py

std::string tuned_config_json(const Tuning& tuning, const std::vector<TensorSpec>& table, const std::string& base) {
    std::vector<std::string> modules;
    for (const std::string& module : modules_of(table, tuning.targets)) modules.push_back(json_quote(module));
    JsonLine line;
    line.add("peft_type", "LORA").add("task_type", "CAUSAL_LM")
        .raw("base_model_name_or_path", json_quote(std::filesystem::canonical(base).string(), true))
        .add("r", tuning.rank).add("lora_alpha", tuning.alpha).raw("target_modules", "[" + join(modules, ", ") + "]")
        .add("fan_in_fan_out", std::ranges::any_of(table, &TensorSpec::transposed)).add("lora_dropout", 0.0)
        .add("bias", "none").add("inference_mode", true);
    return line.text() + "\n";
}

struct Config { std::string base; size_t rank; float scale; };
static Config read_tuned(const std::string& folder) {
    const std::string path = path_join(folder, kTunedConfig), text = read_file(path);
    const char* const what = path.c_str();
    const Json json = parse_json(text, what, true);
    if (const Json type = json.at("peft_type", what); type.text() != "LORA")
        refuse(what, "peft_type", type, "\"LORA\"");
    for (const char* key : {"use_dora", "use_qalora", "lora_bias", "modules_to_save", "layer_replication",
                            "target_parameters", "trainable_token_indices", "alora_invocation_tokens", "use_bdlora",
                            "rank_pattern", "alpha_pattern"}) {
        const std::string value = json.find(key).text();
        const bool unset = value.empty() || value == "null" || value == "false" || value == "{}" || value == "[]";
        if (!unset) refuse(what, key, json.find(key), "none: it is not computed here");
    }
    if (const Json bias = json.find("bias"); bias && bias.text() != "none") refuse(what, "bias", bias, "\"none\"");
    // With other values of init_lora_weights PEFT changes the model's own weights, too.
    const Json init = json.find("init_lora_weights");
    if (const std::string how = init.text(); !how.empty() && how != "true" && how != "false" && how != "gaussian")
        refuse(what, "init_lora_weights", init, "true, false or \"gaussian\"");
    const uint64_t rank = json.get_u64("r", what);
    const double alpha = json.get_double("lora_alpha", what);
    if (rank < 1 || rank > 1 << 20) die_content(path + ": r", std::to_string(rank), "from 1 to 1048576");
    if (std::fabs(alpha) > 1e6) die_content(path + ": lora_alpha", format("%g", alpha), "at most 1e6");
    const bool stable = json.find("use_rslora").text() == "true";       // rsLoRA, Kalajdzievski 2023
    return {json.get_string("base_model_name_or_path", what), size_t(rank),
            float(alpha / (stable ? std::sqrt(double(rank)) : double(rank)))};
}

std::string tuned_base(const std::string& folder) { return read_tuned(folder).base; }

// w (rows,cols) += scale B A    B (rows,rank), A (rank,cols)
static void add_product(float* w, const float* B, const float* A, float scale, size_t rows, size_t cols, size_t rank) {
    const size_t workers = std::min<size_t>(size_t(available_cpus()), rows);
    const auto work = [&](size_t worker) {
        for (size_t i = worker; i < rows; i += workers)
            for (size_t k = 0; k < rank; k++)
                for (size_t j = 0; j < cols; j++) w[i * cols + j] += scale * B[i * rank + k] * A[k * cols + j];
    };
    std::vector<std::jthread> threads;
    for (size_t i = 1; i < workers; i++)
        threads.push_back(start_thread("one that merges an adapter", [&work, i] { work(i); }));
    work(0);
}

void merge_tuned(float* weights, const Arena& arena, const std::string& folder,
                 const std::function<bool(const TensorSpec&)>& has,
                 const std::function<void(const Arena& tuned, float* values)>& read) {
    const Config config = read_tuned(folder);
    const size_t rank = config.rank;
    std::vector<TensorSpec> table;              // A and B of each adapted matrix
    std::vector<float*> matrices;
    for (size_t i = 0; i < arena.tensors.size(); i++) {
        const TensorSpec& spec = arena.tensors[i];
        float* w = weights + arena.offset[i];
        if (spec.rows == 1) continue;
        for (const auto& [name, rows] : parts_of(spec)) {
            const TensorSpec A = {peft_name(name, "lora_A"), rank, spec.cols, rank, false, 0, true};
            if (has(A)) {
                table.push_back(A);
                table.push_back({peft_name(name, "lora_B"), rows, rank, rows, false, 0, true});
                matrices.push_back(w);
            }
            w += rows * spec.cols;
        }
    }
    if (table.empty())
        die(kExitBadContent, "%s: no adapter of %s is in it", path_join(folder, kTunedWeights).c_str(),
            config.base.c_str());
    const Arena tuned = arena_layout(table);
    std::vector<float> values(tuned.n);
    read(tuned, values.data());
    for (size_t i = 0; i < matrices.size(); i++)
        add_product(matrices[i], &values[tuned.offset[2 * i + 1]], &values[tuned.offset[2 * i]], config.scale,
                    table[2 * i + 1].rows, table[2 * i].cols, rank);
}
