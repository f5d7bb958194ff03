// options.cpp -- the table of options, and what reads it: parser, --help, presets and checks, the saved config.
#include "options.h"
#include <algorithm>
#include <charconv>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <variant>
#include <unistd.h>
#include "common.h"
#include "json.h"

namespace {

// ----------------------------------------------------------------------------------------------------------- the table

using Field = std::variant<int Options::*, int64_t Options::*, uint64_t Options::*, double Options::*, bool Options::*,
                           std::string Options::*>;

// What values an option takes. Numbers: low..high, without low itself if `above`, without high itself if `below`.
struct Values { const char* want; double low, high; bool above, below; };
const double kBig = 9007199254740992.0;     // 2^53: up to here a double holds every whole number
const Values some_text  = {"a text that is not empty", 0, 0, false, false};
const Values any_text   = {"a text", 0, 0, false, false};
const Values one_of     = {"", 0, 0, false, false};     // the words of Row::value
const Values flag       = {"on or off", 0, 0, false, false};
const Values count      = {">= 1", 1, kBig, false, false};
const Values natural    = {">= 0", 0, kBig, false, false};
const Values any_seed   = {"from 0 to 18446744073709551615", 0, 18446744073709551615.0, false, false};
const Values batch      = {"from 1 to 2147483647", 1, INT_MAX, false, false};      // leaves are counted in int
const Values size       = {"from 1 to 65536", 1, 65536, false, false};
const Values level      = {"from 0 to 3", 0, 3, false, false};
const Values few        = {"from 1 to 1024", 1, 1024, false, false};
const Values positive   = {"> 0", 0, 1e30, true, false};
const Values not_minus  = {">= 0", 0, 1e30, false, false};
const Values tiny       = {"from 1e-30 to 1", 1e-30, 1, false, false};             // 0 in float would divide by zero
const Values fraction   = {"from 0 to 1", 0, 1, false, false};
const Values below_one  = {">= 0 and < 1", 0, 1, false, true};
const Values share      = {"> 0 and <= 1", 0, 1, true, false};

enum Command : unsigned { kTrain = 1, kSample = 2, kEval = 4, kAll = 7 };
// Bit i of Row::commands. No global: before main nobody could say that there is no memory for it.
std::vector<std::string> command_names() { return {"train", "sample", "eval"}; }

struct Row {
    const char* group;
    const char* name;
    const char* value;          // what stands for the value in --help, with its unit, or the words to choose from; "" = a flag
    Field field;
    const Values* values;
    OnResume on_resume;
    unsigned commands;          // that take it
    const char* elsewhere;      // what other trainers call it: not accepted, but answered with "did you mean"
    const char* help;
};

constexpr OnResume identity = OnResume::identity, tuning = OnResume::tuning, unbound = OnResume::free, local = OnResume::local;
const char *const kModel = "Model", *const kData = "Data", *const kOptimisation = "Optimisation", *const kSystem = "System",
           *const kOutput = "Output", *const kSamples = "Samples";

const Row table[] = {
    {kModel, "preset", "nano|small|gpt2-124m|gpt2-350m|gpt2-774m|gpt2-1558m", &Options::preset, &one_of, identity, kTrain,
     "config model-type size", "sizes and settings that go together; what is given beside it wins"},
    {kModel, "layers", "N", &Options::layers, &size, identity, kTrain,
     "n-layer n-layers num-layers depth num-hidden-layers", "transformer blocks"},
    {kModel, "heads", "N", &Options::heads, &few, identity, kTrain,
     "n-head n-heads num-heads num-attention-heads", "attention heads; channels / heads is a multiple of 8 up to 128"},
    {kModel, "channels", "N", &Options::channels, &size, identity, kTrain,
     "n-embd n-embed hidden-size d-model embed-dim model-dim", "width of the residual stream"},
    {kModel, "seq-len", "TOKENS", &Options::seq_len, &batch, identity, kTrain,
     "block-size max-seq-len max-seq-length context-length context n-ctx n-positions sequence-length -t",
     "context length, T; with --init at most the one it has"},
    {kModel, "vocab-size", "N", &Options::vocab_size, &batch, identity, kTrain,
     "padded-vocab-size n-vocab", "only for token files without a tokenizer; else the tokenizer's"},
    {kModel, "dropout", "P", &Options::dropout, &below_one, identity, kTrain,
     "resid-pdrop attn-pdrop embd-pdrop", "of embedding, attention and residual branches"},
    {kModel, "init", "DIR", &Options::init, &some_text, identity, kTrain,
     "init-from initial-checkpoint-dir model-name-or-path model load checkpoint finetune -e",
     "start from the weights, shape and tokenizer of a run, a checkpoint or a Hugging Face GPT-2 folder"},

    {kData, "data", "PATH", &Options::data, &some_text, unbound, kTrain | kEval,
     "dataset train-file train-data train-files input-bin data-dir data-path input -i",
     "text, .jsonl, .npy, token shards (.bin of llm.c or nanoGPT): a file, a folder or a glob (default: the built-in stories)"},
    {kData, "val-data", "PATH", &Options::val_data, &some_text, unbound, kTrain,
     "val-file validation-file input-val-bin eval-data test-data -j",
     "validation data (default: the last tenth of --data; of several files at least the last one)"},
    {kData, "tokenizer", "byte|char|gpt2|bpe:N|FILE", &Options::tokenizer, &some_text, identity, kTrain | kEval,
     "tokenizer-path tokenizer-name vocab", "fixes the vocabulary; bpe:N learns N tokens from the data"},
    {kData, "sampler", "lanes|torch", &Options::sampler, &one_of, identity, kTrain,
     "shuffle", "order of the data; torch: as PyTorch's DistributedSampler with the lanes as its replicas"},

    {kOptimisation, "steps", "N", &Options::steps, &natural, tuning, kTrain,
     "max-iters max-steps num-iterations iters iterations num-train-steps train-steps epochs -x",
     "updates; a resumed run may be given more"},
    {kOptimisation, "batch-size", "SEQUENCES", &Options::batch_size, &batch, identity, kTrain | kEval,
     "per-device-train-batch-size device-batch-size micro-batch-size train.micro-batch-size -b", "in one micro-batch, B"},
    {kOptimisation, "total-batch-size", "TOKENS", &Options::total_batch_size, &batch, identity, kTrain,
     "global-batch-size tokens-per-step -d", "per step over all ranks: micro-batches x batch-size x seq-len"},
    {kOptimisation, "lanes", "N", &Options::lanes, &count, identity, kTrain,
     "replicas", "logical replicas, a power of two; the most ranks the run can use, the same bits with fewer"},
    {kOptimisation, "lr", "X", &Options::lr, &positive, tuning, kTrain,
     "learning-rate max-lr peak-lr matrix-lr -l", "peak learning rate of AdamW"},
    {kOptimisation, "schedule", "cosine|linear|constant|wsd", &Options::schedule, &one_of, tuning, kTrain,
     "lr-scheduler-type lr-scheduler lr-schedule decay-lr -k", "of the learning rate after the warm-up"},
    {kOptimisation, "warmup-steps", "STEPS", &Options::warmup_steps, &natural, tuning, kTrain,
     "warmup-iters lr-warmup-steps warmup -u", "linear from 0 to --lr; unless given at most a tenth of --steps"},
    {kOptimisation, "final-lr-frac", "X", &Options::final_lr_frac, &fraction, tuning, kTrain,
     "min-lr final-lr-fraction lr-final-frac -q", "learning rate of the last step, as a fraction of --lr"},
    {kOptimisation, "weight-decay", "X", &Options::weight_decay, &not_minus, tuning, kTrain,
     "wd decay -c", "of matrices and embeddings; vectors are not decayed"},
    {kOptimisation, "beta1", "X", &Options::beta1, &below_one, tuning, kTrain, "adam-beta1", "decay of AdamW's first moment"},
    {kOptimisation, "beta2", "X", &Options::beta2, &below_one, tuning, kTrain, "adam-beta2", "decay of AdamW's second moment"},
    {kOptimisation, "eps", "X", &Options::eps, &tiny, tuning, kTrain, "adam-epsilon adam-eps epsilon",
     "added to AdamW's denominator"},
    {kOptimisation, "grad-clip", "X", &Options::grad_clip, &not_minus, tuning, kTrain,
     "max-grad-norm max-norm clip clip-grad-norm gradient-clipping gradient-clip-val",
     "largest norm of the gradient; 0 = no limit"},
    {kOptimisation, "skip-spikes", "Z", &Options::skip_spikes, &not_minus, tuning, kTrain,
     "sl sg skip-update-lossz skip-update-gradz",
     "skip a step whose loss or gradient norm is Z standard deviations above the mean of the last 128; 0 = never"},
    {kOptimisation, "seed", "N", &Options::seed, &any_seed, identity, kTrain | kSample,
     "random-seed manual-seed", "of weights, data order, dropout and samples"},

    {kSystem, "device", "auto|cpu|gpu", &Options::device, &one_of, local, kAll, "accelerator backend",
     "auto: a GPU if one answers"},
    {kSystem, "dtype", "auto|fp32|bf16", &Options::dtype, &one_of, identity, kAll,
     "precision mixed-precision bf16 fp16 fp32", "of weights and activations, sums and masters are fp32; auto: that of the run, for a new one bf16 on a GPU and on a CPU with AMX"},
    {kSystem, "threads", "N", &Options::threads, &natural, local, kAll,
     "num-threads n-threads num-workers cpus", "per rank, on a CPU; 0 = what affinity and cgroup allow"},
    {kSystem, "np", "N", &Options::np, &few, local, kTrain, "nproc nproc-per-node world-size num-gpus gpus devices ranks -n",
     "start N ranks on this machine and stand over them"},
    {kSystem, "max-restarts", "N", &Options::max_restarts, &natural, local, kTrain,
     "restarts", "with --np: starts from the newest checkpoint after a rank was lost"},
    {kSystem, "elastic", "", &Options::elastic, &flag, local, kTrain, "max-nnodes nnodes",
     "with --np: after two failures in a row half as many ranks; the bits stay the same"},
    {kSystem, "reduce", "ordered|nccl", &Options::reduce, &one_of, tuning, kTrain,
     "allreduce ddp-backend", "nccl: the library's own order, for comparison; bits then depend on the ranks"},
    {kSystem, "overlap", "on|off", &Options::overlap, &flag, unbound, kTrain, "overlap-comm overlap-grad-reduce",
     "reduce gradients while backward goes on, or after it; same bits; left out: on, but off among the cores of one host"},
    {kSystem, "graph", "on|off", &Options::graph, &flag, unbound, kTrain, "cuda-graph cuda-graphs use-cuda-graphs",
     "a GPU replays its step as one CUDA graph, or is given its kernels one by one (to profile them); same bits"},
    {kSystem, "recompute", "LEVEL", &Options::recompute, &level, unbound, kTrain,
     "gradient-checkpointing activation-checkpointing use-recompute -r",
     "for less memory backward computes again: 0 nothing, 1 GELU, 2 and LayerNorm, 3 whole blocks; same bits"},
    {kSystem, "audit-every", "STEPS", &Options::audit_every, &natural, unbound, kTrain,
     "audit", "a micro-batch is computed twice and compared bit for bit; 0 = never, nor are weights and saves checked against sums"},
    {kSystem, "selftest", "", &Options::selftest, &flag, local, kTrain, "self-test check",
     "test and measure the roads between the ranks, name a slow one, and stop"},
    {kSystem, "timeout", "SECONDS", &Options::timeout, &positive, local, kTrain,
     "ddp-timeout nccl-timeout", "without progress, after which a rank counts as lost"},

    {kOutput, "out-dir", "DIR", &Options::out_dir, &some_text, local, kTrain,
     "output-dir output out run name model-tag run-name logdir log-dir -o",
     "the run's folder (default: runs/PRESET-DATA-DATE-TIME)"},
    {kOutput, "eval-every", "STEPS", &Options::eval_every, &natural, unbound, kTrain,
     "eval-interval eval-every-n-steps val-every val-interval val-loss-every -v",
     "validation loss; also after the last step; 0 = never"},
    {kOutput, "eval-steps", "BATCHES", &Options::eval_steps, &natural, unbound, kTrain,
     "eval-iters max-val-batches val-max-steps -m", "of an evaluation; 0 = all"},
    {kOutput, "sample-every", "STEPS", &Options::sample_every, &natural, unbound, kTrain,
     "generate-every -s", "writes a sample of text; 0 = never"},
    {kOutput, "log-every", "STEPS", &Options::log_every, &natural, unbound, kTrain, "log-interval logging-steps",
     "lines where the output is not a terminal, at most one a second; 0 = first and last only"},
    {kOutput, "save-every", "STEPS", &Options::save_every, &natural, unbound, kTrain,
     "save-steps save-interval ckpt-interval checkpoint-every checkpoint-interval",
     "checkpoint; also after the last step; 0 = never"},
    {kOutput, "keep", "N", &Options::keep, &natural, unbound, kTrain,
     "save-total-limit ckpt-keep-n keep-every keep-last -nk", "newest checkpoints; 0 = all"},
    {kOutput, "resume", "[auto|PATH]", &Options::resume, &some_text, local, kTrain,
     "resume-from-checkpoint resume-from-step resume-from continue restart -y",
     "go on from the newest complete checkpoint (auto), or from a run or checkpoint folder"},
    {kOutput, "force", "", &Options::force, &flag, local, kTrain, "overwrite overwrite-output-dir",
     "overwrite a run that is in --out-dir"},
    {kOutput, "trace", "FILE", &Options::trace, &some_text, local, kTrain, "profile profiler",
     "the timeline of every step, computation and communication, for chrome://tracing"},
    {kOutput, "dry-run", "", &Options::dry_run, &flag, local, kTrain, "estimate",
     "print parameters, memory and an estimate of the time, and stop"},
    {kOutput, "verbose", "", &Options::verbose, &flag, local, kTrain, "debug", "also print the tensors, the activations and the buckets of the reduction"},

    {kSamples, "prompt", "TEXT", &Options::prompt, &any_text, unbound, kTrain | kSample, "start input-text -p",
     "what a sample begins with"},
    {kSamples, "temperature", "X", &Options::temperature, &not_minus, unbound, kTrain | kSample, "temp",
     "0 = always the likeliest token"},
    {kSamples, "top-k", "N", &Options::top_k, &natural, unbound, kTrain | kSample, "k",
     "choose among the N likeliest tokens; 0 = all"},
    {kSamples, "top-p", "P", &Options::top_p, &share, unbound, kTrain | kSample,
     "nucleus", "choose among the likeliest tokens that have this probability together"},
    {kSamples, "max-tokens", "N", &Options::max_tokens, &count, unbound, kTrain | kSample,
     "max-new-tokens num-tokens length -g", "length of a sample"},
};

// Options of other trainers that have no counterpart, and why.
const struct { const char* names; const char* answer; } foreign[] = {
    {"gradient-accumulation-steps grad-accum gradient-accumulation grad-accumulation accumulate",
     "accumulation follows from --total-batch-size = micro-batches x --batch-size x --seq-len"},
    {"zero-stage zero fsdp -z", "the optimizer's state is always divided among the ranks (ZeRO-1)"},
    {"compile", "there is nothing to compile at run time"},
};

// Sizes: Radford et al. 2019; batch and learning rate of the larger ones: Brown et al. 2020, arXiv 2005.14165, table 2.1, and about
// 20 tokens per parameter (10^10 for 124M). small: nanoGPT's settings for a small text. One row is one command line.
const struct Preset { const char* name; const char* aliases; const char* options; } presets[] = {
    {"nano", "",
     "layers 4  heads 4  channels 128  seq-len 256  batch-size 2  total-batch-size 4096  steps 480  lr 5e-3  warmup-steps 50 "
     "final-lr-frac 0.05  beta2 0.99  eval-every 240  eval-steps 0  sample-every 160  log-every 10  save-every 240"},
    {"small", "",
     "layers 6  heads 6  channels 384  seq-len 256  batch-size 8  total-batch-size 16384  steps 5000  lr 1e-3  warmup-steps 100 "
     "final-lr-frac 0.1  beta2 0.99  dropout 0.2  eval-every 250  eval-steps 100  sample-every 500  log-every 10  save-every 1000"},
    {"gpt2-124m", "d12 gpt2 gpt2-small",
     "layers 12  heads 12  channels 768  seq-len 1024  batch-size 16  total-batch-size 524288  steps 18865  lr 6e-4  warmup-steps 700 "
     "final-lr-frac 0  eval-every 250  eval-steps 64  sample-every 1000  log-every 10  save-every 1000"},
    {"gpt2-350m", "d24 gpt2-medium",
     "layers 24  heads 16  channels 1024  seq-len 1024  batch-size 8  total-batch-size 524288  steps 18865  lr 3e-4  warmup-steps 700 "
     "final-lr-frac 0  eval-every 250  eval-steps 128  sample-every 1000  log-every 10  save-every 1000"},
    {"gpt2-774m", "d36 gpt2-large",
     "layers 36  heads 20  channels 1280  seq-len 1024  batch-size 4  total-batch-size 524288  steps 30000  lr 2.5e-4  warmup-steps 700 "
     "final-lr-frac 0  eval-every 250  eval-steps 256  sample-every 1000  log-every 10  save-every 1000"},
    {"gpt2-1558m", "d48 gpt2-xl",
     "layers 48  heads 25  channels 1600  seq-len 1024  batch-size 4  total-batch-size 1048576  steps 30000  lr 2e-4  warmup-steps 700 "
     "final-lr-frac 0  eval-every 250  eval-steps 256  sample-every 1000  log-every 10  save-every 1000"},
};

std::vector<std::string> split(const std::string& words, char separator) {
    std::vector<std::string> out;
    for (std::string_view rest = words; !rest.empty();)
        if (const std::string_view word = next_word(&rest, separator); !word.empty()) out.emplace_back(word);
    return out;
}

// As the saved config names it: seq_len.
std::string saved_key(const Row& row) {
    std::string key = row.name;
    std::replace(key.begin(), key.end(), '-', '_');
    return key;
}

bool contains(const std::vector<std::string>& list, const std::string& word) {
    return std::find(list.begin(), list.end(), word) != list.end();
}

const Row* find_row(const std::string& name) {
    for (const Row& row : table)
        if (name == row.name) return &row;
    return nullptr;
}

// The preset's value of an option as typed, or "".
std::string preset_value(const std::string& preset, const std::string& option) {
    for (const Preset& p : presets) {
        if (preset != p.name) continue;
        const std::string words = format(" %s ", p.options), name = " " + option + " ";      // no value is a name
        const size_t at = words.find(name), value = at + name.size();
        if (at != std::string::npos) return words.substr(value, words.find(' ', value) - value);
    }
    return "";
}

// ------------------------------------------------------------------------------------------------------- text <-> value

// The text that set_value reads back exactly; numbers in the shortest such form.
std::string value_text(const Row& row, const Options& options) {
    return std::visit([&](auto field) -> std::string {
        const auto& value = options.*field;
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, std::string>) return value;
        else if constexpr (std::is_same_v<T, bool>) return value ? "on" : "off";
        else {
            char buffer[64];
            return std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
        }
    }, row.field);
}

// "2.5e3", "512k" -> a finite number.
bool parse_number(std::string_view text, double* x) {
    double unit = 1;
    if (!text.empty() && (text.back() == 'k' || text.back() == 'M')) {
        unit = text.back() == 'k' ? 1e3 : 1e6;
        text.remove_suffix(1);
    }
    const bool good = parse_whole(text, x);
    *x *= unit;
    return good && std::isfinite(*x);
}

// Digits exactly, up to 2^64-1; other forms (1e3, 0.5M) if they come to a whole number a double holds.
bool parse_number(std::string_view text, uint64_t* x) {
    double real;
    if (parse_whole(text, x)) return true;
    if (!parse_number(text, &real) || real < 0 || real > kBig || real != std::floor(real)) return false;
    *x = uint64_t(real);
    return true;
}

bool is_text(const Row& row) { return row.values == &some_text || row.values == &any_text || row.values == &one_of; }

bool in_range(const Values& v, double x) { return (v.above ? x > v.low : x >= v.low) && (v.below ? x < v.high : x <= v.high); }

bool parse_flag(const std::string& text, bool* x) {
    *x = text == "on" || text == "true" || text == "yes" || text == "1";
    return *x || text == "off" || text == "false" || text == "no" || text == "0";
}

std::string canonical_preset(const std::string& name) {
    for (const Preset& p : presets)
        if (contains(split(p.aliases, ' '), name)) return p.name;
    return name;
}

// Sets the row's field; false if the text is no such value.
bool set_value(const Row& row, Options* options, std::string value) {
    if (&row == find_row("preset")) value = canonical_preset(value);
    if (row.values == &one_of && !contains(split(row.value, '|'), value)) return false;
    if (row.values == &some_text && value.empty()) return false;
    return std::visit([&](auto field) {
        auto& to = options->*field;
        using T = std::decay_t<decltype(to)>;
        if constexpr (std::is_same_v<T, std::string>) {
            to = value;
        } else if constexpr (std::is_same_v<T, bool>) {
            return parse_flag(value, &to);
        } else {
            std::conditional_t<std::is_same_v<T, double>, double, uint64_t> x;
            if (!parse_number(value, &x) || !in_range(*row.values, double(x))) return false;
            if (sizeof(T) == sizeof(int) && double(x) > INT_MAX) return false;
            to = T(x);
        }
        return true;
    }, row.field);
}

// "8, 4 or 2"
std::string join_or(const std::vector<std::string>& words) {
    std::string out;
    for (size_t i = 0; i < words.size(); i++) out += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
    return out;
}

// "a number > 0", "cosine, linear, constant or wsd": what the option wants in place of `got`.
std::string wanted(const Row& row, const std::string& got) {
    if (row.values == &one_of) return join_or(split(row.value, '|'));
    if (std::holds_alternative<double Options::*>(row.field)) return std::string("a number ") + row.values->want;
    if (std::holds_alternative<std::string Options::*>(row.field) || row.values == &flag) return row.values->want;
    uint64_t x;
    const bool too_long = std::holds_alternative<int Options::*>(row.field) && parse_number(got, &x) && x > INT_MAX;
    return std::string("a whole number ") + (too_long ? "<= 2147483647" : row.values->want);
}

// A value of the row that is right, for messages: a preset's, else the default.
std::string example(const Row& row) {
    if (row.values == &one_of) return split(row.value, '|')[0];
    if (row.values == &some_text) return row.value[0] == '[' ? "auto" : split(row.value, '|')[0];
    const std::string value = preset_value("gpt2-124m", row.name);
    if (!value.empty()) return value;
    const std::string initial = value_text(row, Options());
    return in_range(*row.values, std::atof(initial.c_str())) ? initial : "1";
}

// Arguments in messages are cut: a pasted file must not fill the screen.
std::string shown(const std::string& text) {
    if (text.empty()) return "nothing";
    return text.size() <= 80 ? text : text.substr(0, 77) + "...";
}

// ------------------------------------------------------------------------------------------------------- did you mean

std::string without_dashes(const std::string& arg) {
    const size_t at = arg.find_first_not_of('-');
    return at == std::string::npos ? "" : arg.substr(at);
}

// Of all words the nearest that is near enough, else "".
std::string nearest(const std::string& word, const std::vector<std::string>& words) {
    std::string best;
    size_t best_distance = word.size() <= 3 ? 2 : std::max<size_t>(3, word.size() / 3 + 1);
    for (const std::string& w : words) {
        if (word.size() > 40) break;
        if (std::max(word.size(), w.size()) - std::min(word.size(), w.size()) >= best_distance) continue;      // nor can the distance be less
        const size_t distance = edit_distance(word, w);
        if (distance < best_distance) best = w, best_distance = distance;
    }
    return best;
}

// name: the argument up to '=', with '_' as '-', dashes in front included.
[[noreturn]] void unknown_option(const std::string& arg, const std::string& name) {
    std::string bare = without_dashes(name);
    for (char& c : bare) c = c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c;
    const auto answer = [&](const std::string& text) { die(kExitUsage, "unknown option %s; %s", shown(arg).c_str(), text.c_str()); };
    const auto meant = [](const std::string& option) { return "did you mean --" + option + "?"; };
    struct Other { std::vector<std::string> names; std::string answer; size_t least; };     // least: bytes, to be taken for a typing error
    std::vector<Other> others;
    for (const Row& row : table) others.push_back({split(row.elsewhere, ' '), meant(row.name), 4});
    for (const auto& f : foreign) others.push_back({split(f.names, ' '), f.answer, 9});

    for (const Other& o : others)                           // "-b" and "--block-size" as they stand, "-lr" as "lr"
        if (contains(o.names, bare) || (!name.starts_with("--") && contains(o.names, name))) answer(o.answer);
    for (const Row& row : table)                            // half a name
        if (bare == row.name || (bare.size() >= 3 && std::string_view(row.name).starts_with(bare))) answer(meant(row.name));
    if (const std::string near = nearest(bare, option_names()); !near.empty()) answer(meant(near));
    for (const Other& o : others)
        if (bare.size() >= o.least && !nearest(bare, o.names).empty()) answer(o.answer);
    die(kExitUsage, "unknown option %s; --help lists all", shown(arg).c_str());
}

[[noreturn]] void unknown_command(const std::string& word) {
    if (word.find('=') == std::string::npos && access(word.c_str(), F_OK) == 0)
        die(kExitUsage, "unknown command %s; to train on that file: --data %s", shown(word).c_str(), shown(word).c_str());
    if (word == "generate" || word == "chat") die(kExitUsage, "unknown command %s; did you mean sample?", word.c_str());
    if (word == "export" || word == "info" || word == "plot")
        die(kExitUsage, "unknown command %s; it is a program of its own: build/%s", word.c_str(), word.c_str());
    const std::string near = nearest(word, command_names());
    if (!near.empty()) die(kExitUsage, "unknown command %s; did you mean %s?", shown(word).c_str(), near.c_str());
    if (const Row* row = find_row(word.substr(0, word.find('='))))
        die(kExitUsage, "unknown command %s; did you mean --%s?", shown(word).c_str(), row->name);
    die(kExitUsage, "unknown command %s; there are sample OUT and eval OUT, and no command trains", shown(word).c_str());
}

// ------------------------------------------------------------------------------------------------------------- parser

void take_word(Options* options, const std::string& word, bool* has_command) {
    if (!*has_command) {
        if (!contains(command_names(), word)) unknown_command(word);
        options->command = word;
        *has_command = true;
        return;
    }
    options->paths.push_back(word);
    const size_t want = options->command == "train" ? 0 : 1;
    if (options->paths.size() > want)
        die(kExitUsage, "%s: got %s, want %s; a value with blanks needs quotes", options->command.c_str(), shown(word).c_str(),
            want ? "one folder" : "options only");
}

// Reads the option at args[i] and returns how many further arguments it took: 0 or 1.
size_t take_option(Options* options, const std::vector<std::string>& args, size_t i) {
    const size_t equals = args[i].find('=');
    const bool has_value = equals != std::string::npos;
    std::string name = args[i].substr(0, equals), value = has_value ? args[i].substr(equals + 1) : "";
    std::replace(name.begin(), name.end(), '_', '-');
    const bool dashed = name.size() > 2 && name.compare(0, 2, "--") == 0;
    const Row* row = dashed ? find_row(name.substr(2)) : nullptr;
    const bool negated = !row && name.compare(0, 5, "--no-") == 0 && (row = find_row(name.substr(5))) && row->values == &flag;
    if (!row || (name.compare(0, 5, "--no-") == 0 && !negated)) unknown_option(args[i].substr(0, equals), name);

    const std::string option = std::string("--") + row->name;
    if (contains(options->given, row->name)) die(kExitUsage, "%s: given twice; give it once", option.c_str());
    options->given.push_back(row->name);

    size_t taken = 0;
    const bool next_is_value = i + 1 < args.size() && args[i + 1].compare(0, 2, "--") != 0;
    if (negated) {
        if (has_value) die(kExitUsage, "%s: got a value, want none; try %s=off", name.c_str(), option.c_str());
        value = "off";
    } else if (!has_value && !*row->value) {
        value = "on";
    } else if (!has_value && row->value[0] == '[' && (!next_is_value || args[i + 1].compare(0, 1, "-") == 0)) {
        value = "auto";
    } else if (!has_value) {
        if (!next_is_value)
            die(kExitUsage, "%s: got no value, want %s; e.g. %s %s",
                option.c_str(), wanted(*row, "").c_str(), option.c_str(), example(*row).c_str());
        value = args[i + 1];
        taken = 1;
    }
    if (!set_value(*row, options, value)) {
        const std::string near = row->values == &one_of ? nearest(value, split(row->value, '|')) : "";
        die(kExitUsage, "%s: got %s, want %s; e.g. %s %s", option.c_str(), shown(value).c_str(),
            wanted(*row, value).c_str(), option.c_str(), near.empty() ? example(*row).c_str() : near.c_str());
    }
    return taken;
}

// A command ignores nothing: what it does not read it refuses.
void check_command(const Options& options) {
    const std::vector<std::string> names = command_names();
    const unsigned command = 1u << (std::find(names.begin(), names.end(), options.command) - names.begin());
    for (const std::string& name : options.given) {
        if (find_row(name)->commands & command) continue;
        std::string takes;
        for (const Row& row : table)
            if (row.commands & command) takes += std::string(takes.empty() ? "--" : " --") + row.name;
        die(kExitUsage, "--%s: has no effect on %s, which takes %s", name.c_str(), options.command.c_str(), takes.c_str());
    }
    if (command != kTrain && options.paths.empty())
        die(kExitUsage, "%s: got no folder, want a run or a checkpoint; e.g. %s runs/NAME",
            options.command.c_str(), options.command.c_str());
}

// ------------------------------------------------------------------------------------------------------------ checks

// Of the numbers that pass `right`, the two nearest to n: "12 or 16"; "" if there is none up to `limit`.
template <class F> std::string nearest_right(int64_t n, int64_t limit, F right) {
    std::string below, above;
    for (int64_t k = std::min(n, limit); k >= 1 && below.empty(); k--) if (right(k)) below = std::to_string(k);
    for (int64_t k = n + 1; k <= limit && above.empty(); k++) if (right(k)) above = std::to_string(k);
    return below + (below.empty() || above.empty() ? "" : " or ") + above;
}

void check_heads(const Options& o) {
    const auto fits = [](int64_t channels, int64_t heads) {
        return channels % heads == 0 && channels / heads % 8 == 0 && channels / heads <= 128;
    };
    if (fits(o.channels, o.heads)) return;
    const std::string heads = nearest_right(o.heads, o.channels / 8, [&](int64_t k) { return fits(o.channels, k); });
    const int64_t most = std::min<int64_t>(65536, o.heads * 128);
    const std::string channels = nearest_right(o.channels, most, [&](int64_t k) { return fits(k, o.heads); });
    die(kExitUsage, "--heads: got %d heads for %d channels, want channels / heads to be a multiple of 8 up to 128; try %s--channels %s",
        o.heads, o.channels, heads.empty() ? "" : ("--heads " + heads + ", or ").c_str(), channels.c_str());
}

// Total tokens = G leaves of B x T; a default total adapts to a B or T that is given, a given one must divide.
void check_batch(Options* o, bool total_is_default) {
    const int64_t leaf = int64_t(o->batch_size) * o->seq_len;
    if (leaf > INT_MAX)
        die(kExitUsage, "--batch-size: got %d sequences of %d tokens, want at most 2,147,483,647 tokens; try --batch-size %d",
            o->batch_size, o->seq_len, INT_MAX / o->seq_len);
    if (o->total_batch_size % leaf != 0 && total_is_default) {
        int64_t leaves = 1;                             // a power of two, so that many lanes fit
        while (leaves * 2 * leaf <= o->total_batch_size) leaves *= 2;
        o->total_batch_size = leaves * leaf;
    }
    if (o->total_batch_size % leaf == 0) return;
    const int64_t down = o->total_batch_size / leaf * leaf, up = down + leaf;
    const int64_t total = (o->total_batch_size - down <= up - o->total_batch_size && down > 0) || up > INT_MAX ? down : up;
    int64_t b = 0;                      // the largest batch size that divides and is not above the one given
    const int64_t sequences = o->total_batch_size % o->seq_len == 0 ? o->total_batch_size / o->seq_len : 0;
    for (int64_t d = 1; d * d <= sequences; d++)
        for (const int64_t divisor : {d, sequences / d})
            if (sequences % d == 0 && divisor <= o->batch_size) b = std::max(b, divisor);
    std::string hint = format("try --total-batch-size %lld", (long long)total);
    if (b > 0) hint += format(" or --batch-size %lld", (long long)b);
    die(kExitUsage, "--total-batch-size: got %lld tokens, want a multiple of --batch-size %d x --seq-len %d = %lld; %s",
        (long long)o->total_batch_size, o->batch_size, o->seq_len, (long long)leaf, hint.c_str());
}

void check_lanes(Options* o) {
    const int64_t leaves = o->total_batch_size / (int64_t(o->batch_size) * o->seq_len);
    if (o->lanes == 0)
        for (o->lanes = 8; leaves % o->lanes != 0;) o->lanes /= 2;
    const bool power_of_two = (o->lanes & (o->lanes - 1)) == 0;
    if (power_of_two && leaves % o->lanes == 0) return;
    std::vector<std::string> right;
    for (int64_t k = 1; leaves % k == 0; k *= 2) right.insert(right.begin(), std::to_string(k));
    const int64_t total = o->total_batch_size / leaves * o->lanes;
    const std::string bigger = power_of_two && total <= INT_MAX ? format(", or --total-batch-size %lld", (long long)total) : "";
    die(kExitUsage, "--lanes: got %d, want a power of two that divides the step's %lld micro-batches; try --lanes %s%s",
        o->lanes, (long long)leaves, join_or(right).c_str(), bigger.c_str());
}

// ------------------------------------------------------------------------------------------------------------ help

// Appends words to *text from column `indent` on, continuing on new lines there before column 98.
void wrap(std::string* text, const std::vector<std::string>& words, size_t indent) {
    size_t column = indent;
    for (const std::string& word : words) {
        if (column > indent && column + 1 + word.size() > 98) {
            *text += "\n" + std::string(indent, ' ');
            column = indent;
        }
        if (column > indent) *text += " ", column++;
        *text += word;
        column += word.size();
    }
    *text += "\n";
}

}  // namespace

[[gnu::weak]] const char* version_text() { return "0.1"; }       // train_gpt brings its own: see build.ninja, rule program

bool Options::is_given(const char* name) const { return contains(given, name); }

std::vector<std::string> option_names() {
    std::vector<std::string> names;
    for (const Row& row : table) names.push_back(row.name);
    return names;
}

Options parse_options(int argc, const char* const* argv, int* exit_now) {
    *exit_now = -1;
    Options options;
    if (argc > 1) options.argv.assign(argv + 1, argv + argc);
    const std::vector<std::string>& args = options.argv;
    bool help = false, version = false, only_words = false, has_command = false;
    for (size_t i = 0; i < args.size(); i++) {
        const std::string& arg = args[i];
        if (!only_words && (arg == "--help" || arg == "-h" || (arg == "help" && !has_command))) help = true;
        else if (only_words || arg.size() < 2 || arg[0] != '-') take_word(&options, arg, &has_command);
        else if (arg == "--") only_words = true;
        else if (arg == "--version") version = true;
        else i += take_option(&options, args, i);
    }
    if (help || version) {
        const std::string text = version ? format("train_gpt %s\n", version_text())
                                  : options_help(options.preset, options.device == "gpu");
        std::fputs(text.c_str(), stdout);
        std::fflush(stdout);
        *exit_now = kExitDone;
        return options;
    }
    check_command(options);
    return options;
}

void resolve_options(Options* options, bool gpu) {
    Options& o = *options;
    const Options fresh;
    // Set: typed, saved by the run that is resumed, or brought by --init.
    const auto is_set = [&](const char* name) {
        const Row& row = *find_row(name);
        return contains(o.given, name) || contains(o.saved, name) || value_text(row, o) != value_text(row, fresh);
    };
    const bool total_is_set = is_set("total-batch-size"), warmup_is_set = is_set("warmup-steps");
    if (o.preset.empty()) o.preset = gpu ? "gpt2-124m" : "nano";
    for (const Row& row : table) {
        const std::string value = preset_value(o.preset, row.name);
        if (!value.empty() && !is_set(row.name))
            CHECK(set_value(row, options, value), "preset %s: %s", o.preset.c_str(), row.name);
    }
    if (!warmup_is_set) o.warmup_steps = std::min(o.warmup_steps, o.steps / 10);
    if (o.command != "train") return;       // the model's shape is its folder's
    check_heads(o);
    check_batch(options, !total_is_set);
    check_lanes(options);
    if (o.warmup_steps > o.steps)
        die(kExitUsage, "--warmup-steps: got %lld, want at most --steps %lld; try --warmup-steps %lld", (long long)o.warmup_steps,
            (long long)o.steps, (long long)o.steps / 10);
}

std::string options_to_json(const Options& options) {
    std::string json;
    for (const Row& row : table) {
        const std::string value = value_text(row, options);
        json += (json.empty() ? "{\n  " : ",\n  ") + json_quote(saved_key(row)) + ": ";
        json += is_text(row) ? json_quote(value) : row.values != &flag ? value : value == "on" ? "true" : "false";
    }
    return json + "\n}";
}

void options_merge_saved(Options* options, const std::string& json, const std::string& path) {
    const Json root = parse_json(json, path.c_str());
    const Json inner = root.find("options"), object = inner ? inner : root;
    if (object.kind() != Json::object)
        die(kExitBadContent, "%s: got no JSON object, want one with the run's options", path.c_str());
    const bool resume = options->command == "train";
    std::string refused;
    options->changed.clear();
    for (const Row& row : table) {
        const std::string key = saved_key(row);
        const Json value = object.find(key);
        if (!value || row.on_resume == OnResume::local) continue;
        // Checked as if typed. What is unset (no --data, --vocab-size 0) stands in the file as in a fresh Options, and stays so.
        const std::string text = value.kind() == Json::boolean ? (value.flag() ? "on" : "off") : value.text();
        const bool kind_fits = value.kind() == (is_text(row) ? Json::string : row.values == &flag ? Json::boolean : Json::number);
        Options saved;
        const bool unset = kind_fits && text == value_text(row, saved);
        const bool valid = kind_fits && set_value(row, &saved, text);
        if (!valid && !unset)
            die(kExitBadContent, "%s: %s: got %s, want %s", path.c_str(), key.c_str(),
                kind_fits ? shown(text).c_str() : "another kind of value", wanted(row, text).c_str());
        if (!options->is_given(row.name) || value_text(row, *options) == "auto") {
            if (!valid) continue;
            std::visit([&](auto field) { options->*field = saved.*field; }, row.field);
            if (!contains(options->saved, row.name)) options->saved.push_back(row.name);
            continue;
        }
        const std::string got = value_text(row, *options), had = value_text(row, saved);
        if (!resume || got == had) continue;
        if (row.on_resume == OnResume::identity)
            refused += format("%s--%s: got %s, the run has %s", refused.empty() ? "" : ", ", row.name,
                              shown(got).c_str(), shown(had).c_str());
        if (row.on_resume == OnResume::tuning)
            options->changed.push_back(format("--%s: %s, was %s", row.name, shown(got).c_str(), shown(had).c_str()));
    }
    if (!refused.empty()) die(kExitUsage, "--resume: %s: %s; leave them out, or start a new run", path.c_str(), refused.c_str());
}

std::vector<std::pair<std::string, std::string>> options_identity(const Options& options, bool never_change) {
    std::vector<std::pair<std::string, std::string>> out;
    for (const Row& row : table)
        if (never_change ? row.on_resume == OnResume::identity : row.on_resume != OnResume::local) out.push_back({row.name, value_text(row, options)});
    return out;
}

std::string options_help(const std::string& preset, bool gpu) {
    Options resolved, fresh;
    resolved.preset = preset;
    resolve_options(&resolved, gpu);
    std::string out = format(
        "train_gpt %s: trains GPT-2 models, the same bits on any number of ranks.\n\n"
        "  train_gpt [options]               train; without options this machine's preset on a built-in text\n"
        "  train_gpt sample OUT [options]    write text; OUT is a run or a checkpoint folder\n"
        "  train_gpt eval OUT [options]      loss over the run's whole validation text, or over --data\n"
        "  mpirun -np 8 train_gpt ...        8 ranks; so do torchrun, srun, and --np 8 without any of them\n\n"
        "--seq-len 64, --seq-len=64 and --seq_len 64 are the same, --no-graph is --graph off; 512k = 512000.\n"
        "Defaults are those of --preset %s%s.\n",
        version_text(), resolved.preset.c_str(), preset.empty() && !gpu ? "; on a GPU the preset is gpt2-124m" : "");
    const char* group = "";
    for (const Row& row : table) {
        if (std::string_view(group) != row.group) out += format("\n%s\n", group = row.group);
        const std::string left = format("  --%s%s%s", row.name, *row.value ? " " : "", row.value);
        out += left;
        size_t column = left.size();
        const size_t indent = 30;
        if (column + 2 > indent) out += "\n", column = 0;
        out += std::string(indent - column, ' ');
        // Not shown: what is off, empty or worked out from other things.
        const std::string value = value_text(row, resolved);
        const bool unset = value.empty() || !*row.value || (value == "0" && !in_range(*row.values, 0));
        std::vector<std::string> words = split(row.help, ' ');
        if (!unset) words.push_back("(default " + value + ")");
        wrap(&out, words, indent);
    }
    out += "\nOther\n  --help, --version           also --help --preset P for the defaults of another preset\n\n"
           "MFU counts 6 N + 6 layers x channels x seq-len flops per token, N = parameters in matrix products.\n"
           "Exit codes: 0 done, 2 usage, 65 bad content of a file, 66 missing input, 69 a rank is lost,\n"
           "74 a write failed, 75 stopped on request and saved, 80 replicas disagree, 1 anything else.\n";
    return out;
}
