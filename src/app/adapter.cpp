// adapter.cpp -- see adapter.h.
#include "src/app/adapter.h"
#include <algorithm>
#include <cmath>
#include <filesystem>
#include "src/base/allowance.h"
#include "src/base/common.h"
#include "src/base/cpus.h"
#include "src/base/json.h"
#include "src/checkpoint/safetensors.h"

static std::string config_path(const std::string& folder) { return path_join(folder, kAdapterConfig); }

bool is_adapter(const std::string& folder) { return file_exists(config_path(folder)); }

std::string adapter_config_json(const Lora& lora, const std::vector<TensorSpec>& table, const std::string& base) {
    std::vector<std::string> modules;
    for (const std::string& module : lora_modules(table, lora)) modules.push_back(json_quote(module));
    JsonLine line;
    line.add("peft_type", "LORA").add("task_type", "CAUSAL_LM")
        .raw("base_model_name_or_path", json_quote(std::filesystem::canonical(base).string(), true))
        .add("r", lora.rank).add("lora_alpha", lora.alpha).raw("target_modules", "[" + join(modules, ", ") + "]")
        .add("fan_in_fan_out", std::ranges::any_of(table, &TensorSpec::transposed)).add("lora_dropout", 0.0)
        .add("bias", "none").add("inference_mode", true);
    return line.text() + "\n";
}

AdapterConfig parse_adapter_config(std::string_view text, const char* what) {
    const std::string path = what;
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
            alpha / (stable ? std::sqrt(double(rank)) : double(rank))};
}

AdapterConfig read_adapter_config(const std::string& folder) {
    const std::string path = config_path(folder);
    return parse_adapter_config(read_file(path), path.c_str());
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

void merge_adapter(float* weights, const Arena& arena, const std::string& folder) {
    const AdapterConfig config = read_adapter_config(folder);
    const SafeTensors file = open_safetensors(path_join(folder, kAdapterWeights));
    const size_t rank = config.rank;
    std::vector<TensorSpec> table;              // A and B of each adapted matrix
    std::vector<float*> matrices;
    for (size_t i = 0; i < arena.tensors.size(); i++) {
        const TensorSpec& spec = arena.tensors[i];
        float* w = weights + arena.offset[i];
        for (const auto& [name, rows] : parts_of(spec)) {
            const std::string A = adapter_name(name, "lora_A.weight"), B = adapter_name(name, "lora_B.weight");
            const auto found = std::ranges::find(file.tensors, A, &SafeTensor::name);
            if (spec.rows > 1 && found != file.tensors.end()) {
                if (found->shape != std::vector<uint64_t>{rank, spec.cols})
                    die_content(file.path + ": tensor " + A + ": shape", shape_text(found->shape),
                                shape_text({rank, spec.cols}));
                table.push_back({A, rank, spec.cols, rank, false, 0, true});
                table.push_back({B, rows, rank, rows, false, 0, true});
                matrices.push_back(w);
            }
            w += rows * spec.cols;
        }
    }
    if (table.empty()) die(kExitBadContent, "%s: no adapter of %s is in it", file.path.c_str(), config.base.c_str());
    const Arena adapters = arena_layout(table);
    std::vector<float> values(adapters.n);
    read_safetensors(file, adapters, "", values.data());
    for (size_t i = 0; i < matrices.size(); i++)
        add_product(matrices[i], &values[adapters.offset[2 * i + 1]], &values[adapters.offset[2 * i]],
                    float(config.scale), table[2 * i + 1].rows, table[2 * i].cols, rank);
}
