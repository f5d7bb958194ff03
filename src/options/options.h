// options.h -- declares every option once. The parser, --help, "did you mean", the saved config and
// the checks of a resume all read one table in options.cpp. Models and optimizers declare their own
// options.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>
#include "models/shape.h"
#include "optimizers/optimizer.h"
#include "src/base/words.h"

// The table's help texts explain the fields. A field without a default is 0 or empty until
// resolve_options sets it.
struct Options {
    std::string command = "train";      // train, sample, chat, eval, help, version
    Words paths;     // the words after the command: OUT
    std::string model, preset, init;
    int lora = 0;                       // rank of adapters; 0: the model's own tensors are trained
    double lora_alpha = 0;
    std::string lora_targets = "all";
    Shape shape;                        // V is 0 until the tokenizer's vocabulary is known
    // The vocabulary of the published model that the preset is named after; 0: none, or --init.
    int vocabulary = 0;
    std::string task;                   // path of a file with questions
    std::string data, val_data, tokenizer = "byte", chat_template = "auto", sampler = "lockstep", rows = "auto";
    int skip_bad_lines = 0;
    bool special_tokens = false;
    int64_t steps = 0, warmup_steps = 0, total_batch_size = 0;
    int batch_size = 0, replicas = 0;   // B, R
    std::string optimizer = "adamw", schedule = "cosine", loss = "cross-entropy";
    // Values of the options of optimizer, schedule, loss, reduction and order, by option. NaN: not
    // set. resolve_options sets those of the chosen ones.
    std::map<std::string, double> hyper;
    double lr = 0, final_lr_frac = 0, grad_clip = 1;
    uint64_t seed = 1337;
    std::string device = "auto", dtype = "auto", reduce = "ordered";    // choose_backend sets dtype
    int threads = 0, np = 0, max_restarts = 3, recompute = 0;           // np 0: --np is not given
    bool elastic = false, overlap = true, graph = true;
    int64_t audit_every = 500;
    double timeout = 60, save_patience = 600;
    // resume: "" (no), "auto" or a path; plan_for: --for.
    std::string out_dir, resume, plan_for;
    int64_t eval_every = 0, eval_steps = 0, sample_every = 0, log_every = 0, save_every = 0;
    std::string measure;                // names of measurements, with commas between them
    int64_t measure_every = 100;
    int keep = 2;
    int64_t keep_every = 0;
    bool dry_run = false, force = false, verbose = false, perplexity = false;
    std::string prompt, system;
    double temperature = 0.8, top_p = 1;
    int top_k = 0, max_tokens = 256, samples = 1, stride = 0;     // stride 0: half the context

    Words given;     // names of the options on the command line, without "--"
    // Names of the options whose values come from a resumed run's config or --init.
    Words saved;
    // The header's note if resolve_options chose --lr because of --init.
    std::string rate_note;
    // What a resume changes: "--lr: got 0.001, the run has 0.002".
    Words changed;
    std::shared_ptr<Options> before;    // on a resume the run's saved options, without the changes
    std::string program = "./train_gpt";    // argv[0]
    Words argv;      // argv[1] and after
    bool is_given(const std::string& name) const;
    bool freezes() const { return lora > 0; }       // whether the model's own tensors are frozen
    // Returns a part of a run's name.
    std::string label() const { return lora ? "-lora" + std::to_string(lora) : ""; }
    // Returns the micro-batches per step, G.
    int64_t micro_batches() const { return total_batch_size / (int64_t(batch_size) * shape.T); }
};

// Before training these are called in this order: parse_options; options_merge_saved on a resume;
// options_take_model with --init; resolve_options. Their errors are kExitUsage.

// Reads the command line of a program that has these options: train_gpt, or lm. command becomes the
// first word that is no option, or "help" or "version" if one of these is asked for; paths become
// the words after it.
Options read_command(int argc, const char* const* argv);
// Does the same for train_gpt, and checks the words; lm checks those of its commands.
Options parse_options(int argc, const char* const* argv);
struct Option;                                                  // src/base/words.h
// Returns the options in the order of --help. Their values are those of *options.
std::vector<Option> option_table(Options* options);

// Sets options that are not given to the values in `json`, a run's config.json. For training,
// refuses given options that differ if a resume must not change them. path: names the file in
// errors; kExitBadContent for its bad content.
void options_merge_saved(Options* options, const std::string& json, const std::string& path);

// Describes how the changes of a resume change the learning rate of `step`; "" if they do not.
std::string rate_change(const Options& options, int64_t step);

// Sets model and shape to those of --init. Refuses a given option that differs, but the context may
// be shorter.
void options_take_model(Options* options, const ModelInfo& model, const Shape& shape);

// Chooses model and preset, sets every option that is neither given, saved nor taken from --init,
// and for training checks the shape and the batch. gpu: the defaults are those for a GPU.
void resolve_options(Options* options, bool gpu);

Trained trained_of(const Options& options);             // the tensors that the run trains
// Returns the values of `hyper`, the options of one row of a list, in that order.
std::vector<double> hyper_values(const Options& options, const std::vector<Hyper>& hyper);

// Returns {"seq_len": 256, ...}: every option that the run has, one per line.
std::string options_to_json(const Options& options);
// Returns name and value of every option that must be equal on all ranks. never_change: returns
// only the options that a resume must not change.
using Fields = std::vector<std::pair<std::string, std::string>>;
Fields options_identity(const Options& options, bool never_change = false);
const char* version_text();                                         // "0.1 (a1b2c3d)"

// A schedule is one row of the list kSchedules in options.cpp. fraction() is called for the steps
// after warm-up. hyper: values of the schedule's own options.
struct ScheduleStep { int64_t step, steps, warmup; double final_frac; const double* hyper; };
struct ScheduleInfo {
    std::string name;                   // the value of --schedule
    const char* help;
    double (*fraction)(const ScheduleStep& s);      // returns the learning rate / --lr
    std::vector<Hyper> hyper = {};      // the schedule's own options
};
const std::vector<ScheduleInfo>& all_schedules();
// Returns the learning rate of `step` as a fraction of --lr. The options must be resolved.
double schedule_fraction(const Options& options, int64_t step);
