// tuning.h -- what a run trains: every tensor of the model's table, or adapters while the table is frozen. Options,
// runs, checkpoints and tools call these functions; lora.cpp implements them.
#pragma once
#include <functional>
#include "models/shape.h"
#include "src/base/words.h"

// An option of Tuning, similar to a ShapeKey. value: what --help shows for the value, "RANK".
struct TuningKey {
    const char *option, *value, *elsewhere, *help;
    std::variant<int Tuning::*, double Tuning::*, std::string Tuning::*> at;
    Limits limits = kNotNegative;
};
extern const std::vector<TuningKey> kTuningKeys;
// Sets defaults and checks. given: the command line's options; starts: --init is given. kExitUsage if they do not fit.
void resolve_tuning(Tuning* t, const Words& given, bool starts);
double tuning_rate(const Tuning& t, int C);             // default --lr of AdamW with --init, for C channels
std::string frozen_by(const Tuning& t);                 // the option that freezes the table; "": none does
std::string tuning_label(const Tuning& t);              // for a run's name: "-lora8", or ""
std::string tuning_text(const Tuning& t, size_t trained);       // a line for the console; trained: number of parameters

// Returns the trained tensors. kExitUsage if `tuning` does not fit the table. *begins gets for each tensor of the table
// the number of trained tensors that come before it, and at the end the number of all.
std::vector<TensorSpec> trained_tensors(const std::vector<TensorSpec>& table, const Tuning& tuning,
                                        std::vector<int>* begins = nullptr);

// Adapters are in a PEFT folder with these two files. base: the folder of the frozen model.
constexpr const char *kTunedConfig = "adapter_config.json", *kTunedWeights = "adapter_model.safetensors";
std::string tuned_config_json(const Tuning& tuning, const std::vector<TensorSpec>& table, const std::string& base);
bool is_tuned(const std::string& folder);       // whether the folder has adapters
struct Tuned { std::string base; size_t rank; float scale; };       // of adapter_config.json; scale: of B A
Tuned read_tuned(const std::string& folder);    // kExitBadContent, also for settings that merge_tuned cannot express
// Adds scale B A to each adapted matrix. has: whether kTunedWeights has a tensor; read: reads all of them.
void merge_tuned(float* weights, const Arena& arena, const std::string& folder,
                 const std::function<bool(const TensorSpec&)>& has,
                 const std::function<void(const Arena& tuned, float* values)>& read);
