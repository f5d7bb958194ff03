// tuning.h -- what a run trains: every tensor of the model's table, or tensors beside a table that is frozen. Options,
// runs, checkpoints and tools ask here; lora.cpp answers.
#pragma once
#include <functional>
#include "models/shape.h"

// An option. elsewhere: what other trainers call it, for "did you mean".
struct TuningKey {
    const char *option, *value;         // value: in --help, "RANK"
    std::variant<int Tuning::*, double Tuning::*, std::string Tuning::*> at;
    Limits limits;
    const char *elsewhere, *help;
};
extern const std::vector<TuningKey> kTuningKeys;
// Fills what is not given. given: options of the command line; starts: with --init. kExitUsage if they do not fit.
void resolve_tuning(Tuning* tuning, const std::vector<std::string>& given, bool starts);
double tuning_rate(const Tuning& tuning, int channels);         // AdamW's learning rate with --init
std::string frozen_by(const Tuning& tuning);                    // the option that freezes the table; "": none
std::string tuning_label(const Tuning& tuning);                 // what a run's name says of it; may be empty
std::string tuning_text(const Tuning& tuning, size_t trained);  // a line of the log; trained: how many parameters

// Returns the trained tensors, in the table's order. kExitUsage if they do not fit the table.
std::vector<TensorSpec> trained_tensors(const std::vector<TensorSpec>& table, const Tuning& tuning);
// [i]: how many trained tensors belong to tensors 0..i-1 of the table; one element more than the table.
std::vector<int> trained_begins(const std::vector<TensorSpec>& table, const Tuning& tuning);

// Tensors beside a table are in a folder of PEFT's form, with these files. base: the folder of the frozen model.
constexpr const char *kTunedConfig = "adapter_config.json", *kTunedWeights = "adapter_model.safetensors";
std::string tuned_config_json(const Tuning& tuning, const std::vector<TensorSpec>& table, const std::string& base);
// Returns `base`. kExitBadContent, also for settings that merge_tuned cannot express.
std::string tuned_base(const std::string& folder);
// Adds what a folder has to the weights of its base. has: whether a tensor is in kTunedWeights; read: reads them all.
void merge_tuned(float* weights, const Arena& arena, const std::string& folder,
                 const std::function<bool(const TensorSpec&)>& has,
                 const std::function<void(const Arena& tuned, float* values)>& read);
