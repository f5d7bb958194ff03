// lora.cpp -- low-rank adapters (lora.h) as tensors and as files: implements tuning.h.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include "models/tuning.h"
#include "src/base/allowance.h"
#include "src/base/cpus.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/base/words.h"
#include "src/checkpoint/safetensors.h"

// ---- as tensors

static std::string module_of(const std::string& tensor) {
    return tensor.ends_with(".weight") ? tensor.substr(0, tensor.rfind('.')) : tensor;
}

// Returns a matrix's A and B. PEFT's name of A is "base_model.model.model.x.lora_A.weight" for "model.x.weight".
static std::pair<TensorSpec, TensorSpec> adapter_of(const std::string& matrix, size_t rows, size_t cols, size_t rank) {
    const std::string name = "base_model.model." + module_of(matrix) + ".lora_";
    return {{name + "A.weight", rank, cols, rank, false, 1 / std::sqrt(3 * float(cols)), true},
            {name + "B.weight", rows, rank, rows, false, 0, true}};
}

// Returns the last part of the name of each matrix that is stacked in this tensor: {"q_proj", "k_proj", "v_proj"}, or
// one name. Returns none for vectors, embedding and head, which cannot have adapters.
static Words last_names(const TensorSpec& spec) {
    Words names;
    if (spec.rows == 1 || spec.at_ends) return names;
    for (const TensorSpec::Part& part : parts_of(spec)) {
        const std::string module = module_of(part.name);
        names.push_back(module.substr(module.rfind('.') + 1));
    }
    return names;
}

// Returns those of the table's last_names that `targets` names, each once. kExitUsage if `targets` does not fit.
static Words modules_of(const std::vector<TensorSpec>& table, const std::string& targets) {
    const Words asked = split(targets, ',');
    const auto is_asked = [&](const std::string& name) { return targets == "all" || contains(asked, name); };
    Words known;
    for (const TensorSpec& spec : table)
        for (const std::string& name : last_names(spec))
            if (!contains(known, name)) known.push_back(name);
    for (std::string_view rest = targets; !rest.empty() && targets != "all";)
        if (!contains(known, std::string(next_word(&rest, ','))))
            die(kExitUsage, "--lora-targets: got %s, want all, or names of %s with commas between them",
                targets.c_str(), join(known, ", ").c_str());
    for (const TensorSpec& spec : table)
        if (const Words names = last_names(spec);
            std::ranges::any_of(names, is_asked) && !std::ranges::all_of(names, is_asked))
            die(kExitUsage, "--lora-targets: got %s, want %s together: they are one matrix", targets.c_str(),
                join(names, ",").c_str());
    std::erase_if(known, [&](const std::string& name) { return !is_asked(name); });
    return known;
}

Trained adapters_of(const std::vector<TensorSpec>& table, int lora, double alpha, const std::string& targets) {
    const Words modules = modules_of(table, targets);
    const size_t rank = size_t(lora);
    std::vector<TensorSpec> trained;
    std::vector<int> begins = {0};
    for (const TensorSpec& spec : table) {
        const Words names = last_names(spec);
        if (!names.empty() && contains(modules, names[0])) {
            if (const size_t width = std::min(spec.rows, spec.cols); rank > width)
                die(kExitUsage, "--lora: got %zu, want at most %zu, the width of %s", rank, width, spec.name.c_str());
            auto [A, B] = adapter_of(spec.name, spec.rows, spec.cols, rank);
            A.repeated = !spec.parts.empty();
            for (const auto& [name, rows] : spec.parts) {
                const auto [part_A, part_B] = adapter_of(name, rows, spec.cols, rank);
                A.parts.push_back({part_A.name, rank});
                B.parts.push_back({part_B.name, rows});
            }
            trained.insert(trained.end(), {A, B});
        }
        begins.push_back(int(trained.size()));
    }
    return {arena_layout(trained), begins, lora, float(alpha / lora), kTunedWeights,
            format("\nlora    rank %d, alpha %g: %s parameters in adapters of %s are trained, the others are frozen",
                   lora, alpha, with_commas(count_parameters(trained)).c_str(),
                   targets == "all" ? "all matrices" : targets.c_str())};
}

// ---- as files: names and meanings are those of peft 0.17, config.py and lora/config.py

std::string tuned_config_json(int rank, double alpha, const std::string& targets, const std::vector<TensorSpec>& table,
                              const std::string& base) {
    Words modules;
    for (const std::string& module : modules_of(table, targets)) modules.push_back(json_quote(module));
    JsonLine line;
    line.add("peft_type", "LORA").add("task_type", "CAUSAL_LM")
        .raw("base_model_name_or_path", json_quote(std::filesystem::canonical(base).string(), true))
        .add("r", rank).add("lora_alpha", alpha).raw("target_modules", "[" + join(modules, ", ") + "]")
        .add("fan_in_fan_out", std::ranges::any_of(table, &TensorSpec::transposed)).add("lora_dropout", 0.0)
        .add("bias", "none").add("inference_mode", true);
    return line.text() + "\n";
}

bool is_tuned(const std::string& folder) { return file_exists(path_join(folder, kTunedConfig)); }

Tuned read_tuned(const std::string& folder) {
    const std::string path = path_join(folder, kTunedConfig), text = read_file(path);
    const char* const what = path.c_str();
    const Json json = parse_json(text, what, true);
    if (const Json type = json.at("peft_type", what); type.text() != "LORA")
        refuse(what, "peft_type", type, "\"LORA\"");
    for (const char* key : {"use_dora", "use_qalora", "lora_bias", "modules_to_save", "layer_replication",
                            "target_parameters", "trainable_token_indices", "alora_invocation_tokens", "use_bdlora",
                            "rank_pattern", "alpha_pattern"})
        if (!contains({"", "null", "false", "{}", "[]"}, json.find(key).text()))
            refuse(what, key, json.find(key), "none: it is not computed here");
    if (const Json bias = json.find("bias"); bias && bias.text() != "none") refuse(what, "bias", bias, "\"none\"");
    // With any other value of init_lora_weights PEFT also changes the model's own weights.
    const Json init = json.find("init_lora_weights");
    if (!contains({"", "true", "false", "gaussian"}, init.text()))
        refuse(what, "init_lora_weights", init, "true, false or \"gaussian\"");
    const uint64_t rank = json.get_u64("r", what);
    const double alpha = json.get_double("lora_alpha", what);
    if (rank < 1 || rank > 1 << 20) die_content(path + ": r", std::to_string(rank), "from 1 to 1048576");
    if (std::fabs(alpha) > 1e6) die_content(path + ": lora_alpha", format("%g", alpha), "at most 1e6");
    const bool stable = json.find("use_rslora").text() == "true";       // rsLoRA, Kalajdzievski 2023
    return {json.get_string("base_model_name_or_path", what), rank,
            float(alpha / (stable ? std::sqrt(double(rank)) : double(rank)))};
}

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

void load_tuned(float* weights, const Arena& arena, const std::string& folder) {
    const SafeTensors file = open_safetensors(path_join(folder, kTunedWeights));
    const auto [base, rank, scale] = read_tuned(folder);
    std::vector<TensorSpec> table;              // A and B of each adapted matrix
    std::vector<float*> matrices;
    for (size_t i = 0; i < arena.tensors.size(); i++) {
        const TensorSpec& spec = arena.tensors[i];
        float* w = weights + arena.offset[i];
        if (spec.rows == 1) continue;
        for (const auto& [name, rows] : parts_of(spec)) {
            const auto [A, B] = adapter_of(name, rows, spec.cols, rank);
            const auto found = std::ranges::find(file.tensors, A.name, &SafeTensor::name);
            const std::vector<uint64_t> want = {rank, spec.cols};
            if (found != file.tensors.end()) {
                if (found->shape != want)       // a wrong rank must not decide how much memory is allocated
                    die_content(file.path + ": tensor " + A.name + ": shape", shape_text(found->shape),
                                shape_text(want));
                table.insert(table.end(), {A, B});
                matrices.push_back(w);
            }
            w += rows * spec.cols;
        }
    }
    if (table.empty()) die(kExitBadContent, "%s: no adapter of %s is in it", file.path.c_str(), base.c_str());
    const Arena tuned = arena_layout(table);
    std::vector<float> values(tuned.n);
    read_safetensors(file, tuned, "", values.data());
    for (size_t i = 0; i < matrices.size(); i++)
        add_product(matrices[i], &values[tuned.offset[2 * i + 1]], &values[tuned.offset[2 * i]], scale,
                    table[2 * i + 1].rows, table[2 * i].cols, rank);
}
