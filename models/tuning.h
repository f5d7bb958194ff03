// tuning.h -- what a run trains: every tensor of the model's table, or tensors beside a table that is frozen. Options,
// runs, checkpoints and tools ask here; lora.cpp answers.
#pragma once
#include <functional>
#include "models/shape.h"
#include "src/base/words.h"

// An option, as a ShapeKey is. value: what --help shows, "RANK".
struct TuningKey {
    const char *option, *value, *elsewhere, *help;
    std::variant<int Tuning::*, double Tuning::*, std::string Tuning::*> at;
    Limits limits = kNotNegative;
};
extern const std::vector<TuningKey> kTuningKeys;
// Fills what is not given. given: options of the command line; starts: with --init. kExitUsage if they do not fit.
void resolve_tuning(Tuning* t, const Words& given, bool starts);
double tuning_rate(const Tuning& t, int C);             // AdamW's learning rate with --init, for C channels
std::string frozen_by(const Tuning& t);                 // the option that freezes the table; "": none
std::string tuning_label(const Tuning& t);              // what a run's name says of it; may be empty
std::string tuning_text(const Tuning& t, size_t trained);       // a line of the log; trained: how many parameters

// Returns the trained tensors. kExitUsage if they do not fit the table. begins: gets for each tensor of the table how
// many trained ones come before it, and then how many there are.
std::vector<TensorSpec> trained_tensors(const std::vector<TensorSpec>& table, const Tuning& tuning,
                                        std::vector<int>* begins = nullptr);

// Tensors beside a table are in a folder of PEFT's form, with these files. base: the folder of the frozen model.
constexpr const char *kTunedConfig = "adapter_config.json", *kTunedWeights = "adapter_model.safetensors";
std::string tuned_config_json(const Tuning& tuning, const std::vector<TensorSpec>& table, const std::string& base);
bool is_tuned(const std::string& folder);
struct Tuned { std::string base; size_t rank; float scale; };
Tuned read_tuned(const std::string& folder);    // kExitBadContent, also for settings that merge_tuned cannot express
// Adds what a folder has to the weights of its base. has: whether a tensor is in kTunedWeights; read: reads them all.
void merge_tuned(float* weights, const Arena& arena, const std::string& folder,
                 const std::function<bool(const TensorSpec&)>& has,
                 const std::function<void(const Arena& tuned, float* values)>& read);
