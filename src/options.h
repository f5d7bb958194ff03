// options.h -- every option once. One table in options.cpp drives the parser, --help, "did you mean", the saved config, what a
// resume may change, and the check that the documentation names every option.
#pragma once
#include <cstdint>
#include <string>
#include <vector>
#include "schedule.h"

struct Options {
    std::string command = "train";      // train, sample, eval
    std::vector<std::string> paths;     // what follows the command: OUT

    // model
    std::string preset;                 // nano on a CPU, gpt2-124m on a GPU
    int layers = 0, heads = 0, channels = 0, seq_len = 0, vocab_size = 0;
    double dropout = 0;
    std::string init;                   // a run, a checkpoint or a Hugging Face folder
    // data
    std::string data, val_data;         // empty: the built-in text; the last tenth
    std::string tokenizer = "byte";
    std::string sampler = "lanes";
    // optimisation
    int64_t steps = 0;
    int batch_size = 0;                 // B: sequences in a leaf
    int64_t total_batch_size = 0;       // tokens per step over all ranks
    int lanes = 0;                      // R
    double lr = 0;
    Schedule schedule = Schedule::cosine;
    int64_t warmup_steps = -1;
    double final_lr_frac = 0, weight_decay = 0, beta1 = 0, beta2 = 0, eps = 0, grad_clip = 0;
    uint64_t seed = 0;
    // system
    std::string device = "auto", dtype = "fp32", reduce = "ordered";
    int threads = 0, np = 0, max_restarts = 3;
    int64_t audit_every = 500;
    double timeout = 60;
    bool overlap = true;
    // output
    std::string out_dir, resume;        // resume: empty = no, "auto", or a path
    int64_t eval_every = 0, eval_steps = 0, sample_every = 0, log_every = 0, save_every = 0;
    int keep = 0;
    bool force = false, verbose = false;
    // sample, eval
    std::string prompt;
    double temperature = 0, top_p = 0;
    int top_k = 0, max_tokens = 0;

    std::vector<std::string> given;     // names of the options that stood on the command line, without "--"
    std::vector<std::string> argv;
    bool is_given(const char* name) const;
};

// What a resumed run does when an option differs from the saved one.
enum class OnResume { identity,      // refused: the run's bits depend on it
                      free };        // taken as given

// Parses; answers --help and --version itself (exit code in *exit_now, which stays -1 otherwise). Errors: code 2.
// Numbers accept 1e-3, 512k, 2M (k = 1000). "--x=y" = "--x y", "_" = "-".
Options parse_options(int argc, const char* const* argv, int* exit_now);

// Presets and what follows from other options (lanes from the batch, warm-up from the steps): fills every value still unset.
// gpu: the device chosen. Errors: code 2, e.g. a size that does not divide.
void resolve_options(Options* options, bool gpu);

// For OUT/config.json: {"name": value, ...} for every option of the table, resolved; and back. A resume: values saved in `json`
// replace those not given; identity options that are given and differ are an Error (2) that names them all with both values.
std::string options_to_json(const Options& options);
void options_merge_saved(Options* options, const std::string& json, const std::string& path);
// "seed=1337 lr=0.001 ...": the options that decide the run's bits, for the check that all ranks agree.
std::string options_identity(const Options& options);
std::string options_help(const std::string& preset, bool gpu);      // text of --help
