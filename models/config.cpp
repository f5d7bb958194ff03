// config.cpp -- see config.h.
#include "models/config.h"
#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include "src/base/cpus.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/base/words.h"

std::string number_text(double x) {
    char digits[64];
    if (x == std::floor(x) && std::fabs(x) < 1e15) return std::to_string(int64_t(x));
    return {digits, std::to_chars(digits, std::end(digits), float(x)).ptr};
}

std::string config_json(const ModelConfig& config, const std::string& changes) {
    const ModelInfo& info = *config.info;
    const Shape& shape = config.shape;
    JsonMembers all;
    if (!config.text.empty()) all = json_members(parse_json(config.text, "config.json"));
    const auto add = [&](const std::string& key, const std::string& value) {
        set_member(&all, key, value);
    };
    add("architectures", format("[\"%s\"]", info.architecture));
    add("model_type", json_quote(info.name));
    add("vocab_size", std::to_string(shape.V));
    for (const ShapeKey& key : info.keys)
        if (*key.hf) add(key.hf, number_text(key.get(shape)));
    for (const FixedKey& key : info.fixed(shape)) add(key.hf, key.value);
    for (const char* key : info.dropouts) add(key, json_number(shape.dropout));
    if (config.text.empty())
        for (const char* key : {"bos_token_id", "eos_token_id"}) add(key, "null");
    for (const auto& [key, value] : json_members(parse_json(changes, "changes"))) add(key, value);
    add("dtype", "");                                   // removes it: the newer name of torch_dtype
    add("torch_dtype", "\"float32\"");
    std::vector<std::string> lines;
    for (const auto& [key, value] : all) lines.push_back("\n  " + json_quote(key) + ": " + value);
    return "{" + join(lines, ",") + "\n}\n";
}

// ---- adapters as tensors. Matrices that are stacked in memory, as those of q, k and v, share one
// adapter. In PEFT's files each has its own, with a copy of A.

static std::string module_of(const std::string& tensor) {
    return tensor.ends_with(".weight") ? tensor.substr(0, tensor.rfind('.')) : tensor;
}

std::pair<TensorSpec, TensorSpec> adapter_of(const std::string& matrix, size_t rows, size_t cols,
                                             size_t rank) {
    const std::string name = "base_model.model." + module_of(matrix) + ".lora_";
    return {{name + "A.weight", rank, cols, rank, false, 1 / std::sqrt(3.0f * cols), true},
            {name + "B.weight", rows, rank, rows, false, 0, true}};
}

// Returns the last part of the name of each matrix that is stacked in this tensor: {"q_proj",
// "k_proj", "v_proj"}, or one name. Returns none for vectors, embedding and head, which cannot have
// adapters.
static Words last_names(const TensorSpec& spec) {
    Words names;
    if (spec.rows == 1 || spec.at_ends) return names;
    for (const TensorSpec::Part& part : parts_of(spec)) {
        const std::string module = module_of(part.name);
        names.push_back(module.substr(module.rfind('.') + 1));
    }
    return names;
}

// Returns those of the table's last_names that `targets` names, each once. kExitUsage if `targets`
// does not fit.
static Words modules_of(const std::vector<TensorSpec>& table, const std::string& targets) {
    const Words asked = split(targets, ',');
    const auto is_asked = [&](const std::string& name) {
        return targets == "all" || contains(asked, name);
    };
    Words known;
    for (const TensorSpec& spec : table)
        for (const std::string& name : last_names(spec))
            if (!contains(known, name)) known.push_back(name);
    for (std::string_view rest = targets; !rest.empty() && targets != "all";)
        if (!contains(known, std::string(next_word(&rest, ','))))
            die(kExitUsage,
                "--lora-targets: got %s, want all, or names of %s with commas between them",
                targets.c_str(), join(known, ", ").c_str());
    for (const TensorSpec& spec : table)
        if (const Words names = last_names(spec);
            std::ranges::any_of(names, is_asked) && !std::ranges::all_of(names, is_asked))
            die(kExitUsage, "--lora-targets: got %s, want %s together: they are one matrix",
                targets.c_str(), join(names, ",").c_str());
    std::erase_if(known, [&](const std::string& name) { return !is_asked(name); });
    return known;
}

Trained adapters_of(const std::vector<TensorSpec>& table, int lora, double alpha,
                    const std::string& targets) {
    const Words modules = modules_of(table, targets);
    const size_t rank = lora;
    std::vector<TensorSpec> trained;
    std::vector<int> begins = {0};
    for (const TensorSpec& spec : table) {
        const Words names = last_names(spec);
        if (!names.empty() && contains(modules, names[0])) {
            if (const size_t width = std::min(spec.rows, spec.cols); rank > width)
                die(kExitUsage, "--lora: got %zu, want at most %zu, the width of %s", rank, width,
                    spec.name.c_str());
            auto [A, B] = adapter_of(spec.name, spec.rows, spec.cols, rank);
            A.repeated = !spec.parts.empty();
            B.stacked = spec.stacked;
            for (const auto& [name, rows] : spec.parts) {
                const auto [part_A, part_B] = adapter_of(name, rows, spec.cols, rank);
                A.parts.push_back({part_A.name, rank});
                B.parts.push_back({part_B.name, rows});
            }
            trained.insert(trained.end(), {A, B});
        }
        begins.push_back(trained.size());
    }
    return {arena_layout(trained), begins, lora, float(alpha / lora), kTunedWeights,
            format("\nlora    rank %d, alpha %g: %s parameters in adapters of %s are trained, the "
                   "others are frozen", lora, alpha, with_commas(count_parameters(trained)).c_str(),
                   targets == "all" ? "all matrices" : targets.c_str())};
}

// ---- adapters as files: names and meanings are those of peft 0.17, config.py and lora/config.py

std::string tuned_config_json(int rank, double alpha, const std::string& targets,
                              const std::vector<TensorSpec>& table, const std::string& base) {
    Words modules = modules_of(table, targets);
    for (std::string& module : modules) module = json_quote(module);
    JsonLine line;
    line.add("peft_type", "LORA").add("task_type", "CAUSAL_LM")
        .raw("base_model_name_or_path", json_quote(std::filesystem::canonical(base).string(), true))
        .add("r", rank).add("lora_alpha", alpha)
        .raw("target_modules", "[" + join(modules, ", ") + "]")
        .add("fan_in_fan_out", std::ranges::any_of(table, &TensorSpec::transposed))
        .add("lora_dropout", 0.0).add("bias", "none").add("inference_mode", true);
    return line.text() + "\n";
}

void add_adapter(float* w, size_t rows, size_t cols, size_t rank, float scale,
                 const std::vector<SafeTensor>& files) {
    const auto [A_spec, B_spec] = adapter_of("", rows, cols, rank);
    const Arena pair = arena_layout({A_spec, B_spec});
    std::vector<float> values(pair.n);
    read_tensors(files, pair, pair, values.data());
    const float *const A = &values[pair.offset[0]], *const B = &values[pair.offset[1]];
    const size_t workers = std::min<size_t>(available_cpus(), rows);
    const auto work = [=](size_t worker) {
        for (size_t i = worker; i < rows; i += workers)
            for (size_t k = 0; k < rank; k++)
                for (size_t j = 0; j < cols; j++)
                    w[i * cols + j] += scale * B[i * rank + k] * A[k * cols + j];
    };
    std::vector<std::jthread> threads;
    for (size_t i = 1; i < workers; i++)
        threads.push_back(start_thread("one that merges an adapter", [=] { work(i); }));
    work(0);
}
