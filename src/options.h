// options.h -- every option once. One table in options.cpp drives the parser, --help, "did you mean", the saved config, what a
// resume may change, and the check that the documentation names every option.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

// A field with a default here has it everywhere; the others are 0 or empty until resolve_options fills them from the preset.
struct Options {
    std::string command = "train";      // train, sample, eval
    std::vector<std::string> paths;     // what follows the command: OUT

    // model
    std::string preset;                 // nano on a CPU, gpt2-124m on a GPU
    int layers = 0, heads = 0, channels = 0, seq_len = 0;
    int vocab_size = 0;                 // 0: the tokenizer's
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
    std::string schedule = "cosine";
    int64_t warmup_steps = 0;
    double final_lr_frac = 0, weight_decay = 0.1, beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
    double grad_clip = 1;               // largest norm of the gradient; 0: no limit
    double skip_spikes = 0;             // standard deviations; 0: never
    uint64_t seed = 1337;
    // system
    std::string device = "auto", dtype = "auto", reduce = "ordered";    // dtype: main settles it
    int threads = 0;                    // per rank; 0: what this process may use
    int np = 0, max_restarts = 3;       // np 0: this process is one rank
    bool elastic = false;               // fewer ranks after two failures
    int recompute = 0;                  // 0 to 3: what backward computes again instead of keeping it
    int64_t audit_every = 500;          // steps
    double timeout = 60;                // seconds
    bool graph = true;                  // GPU: a step is one launch
    bool overlap = true;                // reduce while backward goes on; off: after it, the same bits
    // output
    std::string out_dir, resume;        // resume: empty = no, "auto", or a path
    int64_t eval_every = 0, eval_steps = 0, sample_every = 0, log_every = 0, save_every = 0;
    int keep = 2;                       // checkpoints; 0: all
    bool selftest = false;              // test the ranks' connections instead of training
    std::string trace;                  // file of the timeline; empty: none
    bool dry_run = false, force = false, verbose = false;
    // samples
    std::string prompt;
    double temperature = 0.8, top_p = 1;
    int top_k = 0, max_tokens = 256;    // top_k 0: any

    std::vector<std::string> given;     // names of the options that stood on the command line, without "--"
    std::vector<std::string> saved;     // names of those that come from the saved config of a resumed run
    std::vector<std::string> changed;   // a resume's differences, for one warning: "--lr: 0.001, was 0.002"
    std::vector<std::string> argv;      // without the program's name
    bool is_given(const char* name) const;
};

// What a resumed run does when an option differs from the saved one.
enum class OnResume { identity,      // refused: the run's bits depend on it from the first step on
                      tuning,        // taken as given and noted in `changed`: the bits differ from here on
                      free,          // taken as given: when to evaluate, save, print; where the data lie (their hash is the identity)
                      local };       // not taken over: belongs to this start (out-dir, threads), not to the run

// Parses; answers --help and --version itself (exit code in *exit_now, which stays -1 otherwise). Errors: code 2.
// Numbers accept 1e-3, 512k, 2M (k = 1000). "--x=y" = "--x y", "_" = "-".
Options parse_options(int argc, const char* const* argv, int* exit_now);

// The order before training: parse; on a resume options_merge_saved; with --init its shape into layers, heads, ...; resolve.

// Presets and what follows from other options (lanes from the batch, warm-up from the steps): fills every value that is
// neither given nor saved and still as in a fresh Options.
// gpu: the device chosen. Errors: code 2, e.g. a size that does not divide; sample and eval skip the checks of a training run.
void resolve_options(Options* options, bool gpu);

// {"seq_len": 256, ...}: every option of the table, one a line. And back, from such an object or from a larger one that has it as
// "options": values saved in `json` replace those not given. On a resume (command train) identity options that are given and differ are
// an Error (2) that names them all with both values. path: of the file, for messages; its bad content is an Error (65).
std::string options_to_json(const Options& options);
void options_merge_saved(Options* options, const std::string& json, const std::string& path);
// Name and value of every option but the local ones: what all ranks must agree on; or of those alone that a run may never change.
std::vector<std::pair<std::string, std::string>> options_identity(const Options& options, bool never_change = false);
std::string options_help(const std::string& preset, bool gpu);      // text of --help; preset "": the device's default
std::vector<std::string> option_names();                            // of the whole table, in its order
const char* version_text();                                         // "0.1 (a1b2c3d)"
