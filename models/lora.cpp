// lora.cpp -- which matrices have adapters, and what PEFT calls the adapters.
#include "models/lora.h"
#include <algorithm>
#include <cmath>
#include "src/base/common.h"

static std::string module_of(const std::string& tensor) {
    const std::string end = ".weight";
    return tensor.ends_with(end) ? tensor.substr(0, tensor.size() - end.size()) : tensor;
}
std::string adapter_name(const std::string& tensor, const char* end) {
    return "base_model.model." + module_of(tensor) + "." + end;
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

static bool is_adapted(const TensorSpec& spec, const Lora& lora) {
    const std::vector<std::string> names = last_names(spec);
    const auto named = std::ranges::count_if(names, [&](const std::string& name) {
        return lora.targets == "all" || ("," + lora.targets + ",").find("," + name + ",") != std::string::npos;
    });
    if (named > 0 && size_t(named) < names.size())
        die(kExitUsage, "--lora-targets: got %s, want %s together: they are one matrix", lora.targets.c_str(),
            join(names, ",").c_str());
    return named > 0;
}

std::vector<std::string> lora_modules(const std::vector<TensorSpec>& base, const Lora& lora) {
    std::vector<std::string> modules;
    for (const TensorSpec& spec : base)
        if (is_adapted(spec, lora))
            for (const std::string& name : last_names(spec))
                if (std::ranges::find(modules, name) == modules.end()) modules.push_back(name);
    return modules;
}

static void check_targets(const std::vector<TensorSpec>& base, const Lora& lora) {
    if (lora.targets == "all") return;
    const std::vector<std::string> known = lora_modules(base, {lora.rank, lora.alpha, "all"});
    std::string_view rest = lora.targets;
    do {
        const std::string_view name = next_word(&rest, ',');
        if (std::ranges::find(known, name) == known.end())
            die(kExitUsage, "--lora-targets: got %s, want all, or names of %s with commas between them",
                lora.targets.c_str(), join(known, ", ").c_str());
    } while (!rest.empty());
}

std::vector<TensorSpec> lora_tensors(const std::vector<TensorSpec>& base, const Lora& lora) {
    const size_t rank = size_t(lora.rank);
    std::vector<TensorSpec> table;
    check_targets(base, lora);
    for (const TensorSpec& spec : base) {
        if (!is_adapted(spec, lora)) continue;
        if (const size_t width = std::min(spec.rows, spec.cols); rank > width)
            die(kExitUsage, "--lora: got %zu, want at most %zu, the width of %s", rank, width, spec.name.c_str());
        TensorSpec A = {adapter_name(spec.name, "lora_A.weight"), rank, spec.cols, rank, false,
                        1 / std::sqrt(3 * float(spec.cols)), true};
        TensorSpec B = {adapter_name(spec.name, "lora_B.weight"), spec.rows, rank, spec.rows, false, 0, true};
        A.repeated = !spec.parts.empty();
        for (const auto& [name, rows] : spec.parts) {
            A.parts.push_back({adapter_name(name, "lora_A.weight"), rank});
            B.parts.push_back({adapter_name(name, "lora_B.weight"), rows});
        }
        table.push_back(A);
        table.push_back(B);
    }
    return table;
}

std::vector<int> lora_begins(const std::vector<TensorSpec>& base, const Lora& lora) {
    std::vector<int> begins = {0};
    for (const TensorSpec& spec : base) begins.push_back(begins.back() + (is_adapted(spec, lora) ? 2 : 0));
    return begins;
}
