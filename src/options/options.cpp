// options.cpp -- the table of options, and the code that reads it: parser, presets, checks, the
// saved config.
#include "src/options/options.h"
#include <algorithm>
#include <bit>
#include <climits>
#include <cmath>
#include <variant>
#include "src/data/orders/order.h"
#include "src/ddp/reductions/reduction.h"
#include "models/config.h"
#include "models/losses/loss.h"
#include "src/base/common.h"
#include "src/base/json.h"
#include "src/base/numbers.h"
#include "src/measure/measure.h"

namespace {

// ---- the table

// A resume refuses an option that is given and differs from the saved one, because the run's bits
// depend on it from the first step on. It takes those of three lists:
const Words
    // The bits differ from this step on, and `changed` says so. The hyperparameters count, too, but
    // for those of an order: step s of another order has seen other samples before.
    kTuned = split("steps lr schedule loss warmup-steps final-lr-frac grad-clip reduce"),
    // They say when to evaluate, save or print, or where the data are, which are compared by their
    // hash.
    kOpen = split("data val-data overlap graph recompute audit-every eval-every eval-steps "
                  "sample-every measure measure-every log-every save-every save-patience keep "
                  "keep-every prompt system samples temperature top-k top-p max-tokens"),
    // They concern one start only: a saved value is ignored in any case.
    kLocal = split("device threads np max-restarts elastic timeout out-dir task perplexity stride "
                   "resume force dry-run for verbose");

// A list of which an option chooses a row.
struct Choice {
    std::string option;
    std::string Options::*chosen;       // the row's name
    std::string names = {}, help = {};  // of all rows, as --help shows them
    std::vector<std::pair<std::string, std::vector<Hyper>>> hyper = {};     // options of each row
    void add(const std::string& name, const std::string& text, const std::vector<Hyper>& own) {
        names += (names.empty() ? "" : "|") + name;
        if (!text.empty()) help += (help.empty() ? "" : "; ") + name + ": " + text;
        hyper.push_back({name, own});
    }
};

const std::vector<Choice>& all_choices() {
    static const std::vector<Choice> all = [] {
        Choice rules = {"optimizer", &Options::optimizer};
        for (const OptimizerInfo* i : all_optimizers()) rules.add(i->name, "", i->hyper);
        const auto list = [](const char* option, std::string Options::*chosen, const auto& rows) {
            Choice choice = {option, chosen};
            for (const auto& row : rows) choice.add(row.name, row.help, row.hyper);
            return choice;
        };
        return std::vector{list("schedule", &Options::schedule, all_schedules()), rules,
                           list("loss", &Options::loss, kLosses),
                           list("reduce", &Options::reduce, kReductions),
                           list("sampler", &Options::sampler, kOrders)};
    }();
    return all;
}
const Choice& choice_of(const std::string& option) {
    return *std::ranges::find(all_choices(), option, &Choice::option);
}
// Calls use(choice, row, hyper) for each option of each row.
template <class F> void each_hyper(const F& use) {
    for (const Choice& choice : all_choices())
        for (const auto& [row, hyper] : choice.hyper)
            for (const Hyper& h : hyper) use(choice, row, h);
}

// The entries of the lists of models, presets and measurements, as --help shows them.
struct Lists {
    Choice models = {}, presets = {}, measurements = {};
    std::map<std::string, std::string> aliases;         // other names of presets
    Lists() {
        for (const ModelInfo* m : all_models()) {
            models.add(m->name, "", {});
            for (const Preset& p : m->presets()) {
                presets.add(p.name, "", {});
                for (const std::string& alias : split(p.aliases)) aliases[alias] = p.name;
            }
        }
#define X(name) measurements.add(#name, name##_help, {});
        MEASURE(X)
#undef X
    }
};

const ShapeKey kVocabulary = {
    "vocab-size", "", [](Shape& s) -> int& { return s.V; }, {"from 1 to 16777216", 1, 1 << 24}, "",
    "only for token files without a tokenizer; else the tokenizer's"};

Option option_of(const ShapeKey& key, Shape* shape) {
    const auto to =
        std::visit([&](auto number) -> OptionTarget { return &number(*shape); }, key.at);
    return {key.option, key.at.index() ? "X" : "N", key.help, to, key.elsewhere, key.limits};
}

const Option& find_option(const std::vector<Option>& options, const std::string& name) {
    const auto option = std::ranges::find(options, name, &Option::name);
    CHECK(option != options.end(), "no option --%s", name.c_str());
    return *option;
}

}  // namespace

// Returns all options, whose values are in *o. Models that have the same option share a row, with
// the limits and the help of the first of them; likewise the rows of another list. An option has one
// value, so it must not be in two of these lists, nor have the name of an option of all runs.
std::vector<Option> option_table(Options* o) {
    static const Lists lists;
    std::vector<Option> rows;
    const auto add = [&](const char* group, const std::vector<Option>& more,
                         const std::string* chosen = nullptr, const std::string& owner = "") {
        for (const Option& option : more) {
            auto row = std::ranges::find(rows, option.name, &Option::name);
            const bool fresh = row == rows.end();
            CHECK(fresh || (chosen && row->chosen == chosen),
                  "--%s: got it in two lists, want two names", option.name.c_str());
            if (fresh) row = rows.insert(row, option);
            row->group = group;
            row->chosen = chosen;
            if (chosen) row->owners.push_back(owner);
        }
    };
    add("Model", {
        {"model", lists.models.names, "default: that of --preset or --init", &o->model},
        {"preset", lists.presets.names, "sizes and settings that go together", &o->preset, "",
         kNotNegative, "", lists.aliases},
        {"init", "PATH",
         "start from weights, shape and tokenizer of a run, checkpoint, Hugging Face folder, .gguf or "
         "llm.c's GPT-2 .bin", &o->init, "init-from model-name-or-path -e"},
        {"lora", "RANK",
         "train adapters of this rank beside the weights of --init, which stay; a multiple of 8",
         &o->lora, "lora-rank lora-r", {"from 8 to 1024", 8, 1024}},
        {"lora-alpha", "X", "adapters count alpha / rank times (not given: 2 rank)", &o->lora_alpha,
         "", kPositive},
        {"lora-targets", "NAMES",
         "matrices with adapters by PEFT's names, as q_proj,k_proj,v_proj; all: all but "
         "embedding and head", &o->lora_targets, "target-modules"},
        option_of(kVocabulary, &o->shape),
    });
    for (const ModelInfo* m : all_models()) {
        const auto add_own = [&](const Option& option) {
            add("Model", {option}, &o->model, m->name);
        };
        for (const ShapeKey& k : m->keys) add_own(option_of(k, &o->shape));
        if (!m->dropouts.empty())
            add_own({"dropout", "P", "while training", &o->shape.dropout, "", kBelowOne});
    }
    add("Data", {
        {"data", "PATH",
         "text, JSON of texts or conversations, .npy, token shards (.bin of llm.c or nanoGPT, "
         "NAME.u32.bin): a file, folder or glob, or several with weights: a.txt:0.7,b.txt:0.3 (default: the "
         "built-in stories)", &o->data,
         "dataset input-bin -i"},
        {"val-data", "PATH",
         "default: what is named val, valid, validation, dev or eval in --data; else its last "
         "tenth, of several files at least one", &o->val_data, "input-val-bin -j"},
        {"skip-bad-lines", "N",
         "leave out N lines of JSON that cannot be read, in all files together, and N of "
         "validation", &o->skip_bad_lines},
        {"special-tokens", "",
         "names of control tokens, such as <|endoftext|>, in texts, --prompt and --task are "
         "these tokens; in the content of messages they stay text", &o->special_tokens},
        {"tokenizer", "byte|char|gpt2|bpe:N|FILE",
         "bpe:N learns N tokens from the data, in GPT-2's split, "
         "bpe:N:llama3, :qwen2 or :smollm in theirs; FILE: tokenizer.json", &o->tokenizer},
        {"chat-template", "auto|chatml|llama3",
         "of conversations in --data; auto: that of --init, else chatml", &o->chat_template},
        {"rows", "auto|join|masked|documents",
         "join: documents follow one another, and a token sees those before its own; masked: it "
         "sees its own alone; documents: so, and rows have whole ones, and padding; auto: documents "
         "for conversations, else join", &o->rows},
        {"sampler", choice_of("sampler").names, choice_of("sampler").help.c_str(), &o->sampler},
    });
    add("Optimisation", {
        {"steps", "N", "a resumed run may be given more", &o->steps,
         "max-iters max-steps num-iterations -x"},
        {"batch-size", "N", "sequences in a micro-batch", &o->batch_size,
         "per-device-train-batch-size -b", kContext},
        {"total-batch-size", "TOKENS",
         "per step over all ranks: micro-batches x batch-size x seq-len", &o->total_batch_size,
         "gradient-accumulation-steps -d", kContext},
        {"replicas", "N", "a power of two; the most ranks the run can use", &o->replicas, "",
         kContext},
        {"optimizer", choice_of("optimizer").names, "how gradients change the weights", &o->optimizer},
        {"loss", choice_of("loss").names, choice_of("loss").help.c_str(), &o->loss},
        {"lr", "X",
         "peak learning rate; with --init by default 3e-5, below 768 channels 3e-5 x 768 / channels; of sgd "
         "100 times that", &o->lr, "learning-rate -l", kPositive},
        {"schedule", choice_of("schedule").names, choice_of("schedule").help.c_str(), &o->schedule, "decay-lr -k"},
        {"warmup-steps", "N", "unless given at most a tenth of --steps", &o->warmup_steps,
         "warmup-iters -u"},
        {"final-lr-frac", "X", "last rate / --lr", &o->final_lr_frac, "min-lr -q",
         {"from 0 to 1", 0, 1}},
        {"grad-clip", "X", "largest norm of the gradient; 0 = no limit", &o->grad_clip,
         "max-grad-norm"},
        {"seed", "N", "of weights, data order, dropout and samples", &o->seed},
    });
    each_hyper([&](const Choice& choice, const std::string& row, const Hyper& h) {
        double* const value = &o->hyper.try_emplace(h.option, NAN).first->second;
        add("Optimisation", {{h.option, "X", h.help, value, h.elsewhere, h.limits}},
            &(o->*choice.chosen), row);
    });
    add("System", {
        {"device", "auto|cpu|gpu", "auto: a GPU if one answers", &o->device},
        {"dtype", "auto|fp32|bf16", "auto: that of the run, for a new one bf16 where it is fast",
         &o->dtype},
        {"threads", "N",
         "per rank, on a CPU; 0 = what affinity, cgroup, OMP_NUM_THREADS and SLURM_CPUS_PER_TASK allow",
         &o->threads},
        {"np", "N", "start and supervise N ranks here", &o->np, "nproc-per-node",
         {"from 1 to 1024", 1, 1024}},
        {"max-restarts", "N", "with --np: from the newest checkpoint after a rank was lost",
         &o->max_restarts},
        {"elastic", "", "with --np: after two failures in a row half as many ranks", &o->elastic},
        {"reduce", choice_of("reduce").names, choice_of("reduce").help.c_str(), &o->reduce},
        {"overlap", "on|off", "reduce during backward; not given: off on the cores of one host",
         &o->overlap},
        {"graph", "on|off", "a GPU replays its step as one CUDA graph", &o->graph},
        {"recompute", "LEVEL",
         "for less memory backward computes again: 0 nothing, 1 GELU, 2 and LayerNorm, 3 whole "
         "blocks", &o->recompute, "gradient-checkpointing -r", {"from 0 to 3", 0, 3}},
        {"audit-every", "STEPS", "a micro-batch is computed twice and compared; 0 = never",
         &o->audit_every},
        {"timeout", "SECONDS", "without progress: a rank counts as lost", &o->timeout, "",
         kPositive},
    });
    add("Output", {
        {"out-dir", "DIR",
         "default: runs/PRESET-DATA-DATE-TIME; with --init that model's name instead of PRESET",
         &o->out_dir, "output-dir -o"},
        {"eval-every", "STEPS", "and after the last step; 0 = never", &o->eval_every,
         "eval-interval -v"},
        {"eval-steps", "BATCHES",
         "an evaluation scores the first N of each source; 0 = all; by default 262,144 tokens, or "
         "as --preset says", &o->eval_steps, "eval-iters -m"},
        {"task", "FILE",
         "of eval: questions to score, a line {\"ctx\", \"endings\", \"label\"} each", &o->task,
         "eval-task tasks"},
        {"perplexity", "", "of eval: instead of the loss, by a sliding window", &o->perplexity},
        {"stride", "N", "of --perplexity, in tokens (not given: half the context)", &o->stride, "",
         kContext},
        {"sample-every", "STEPS", "writes a sample of text; 0 = never", &o->sample_every, "-s"},
        {"measure", replaced(lists.measurements.names, '|', ','), lists.measurements.help.c_str(),
         &o->measure},
        {"measure-every", "STEPS", "from step 0 on; 0 = never", &o->measure_every},
        {"log-every", "STEPS", "console lines, at most one a second; 0 = first and last",
         &o->log_every, "log-interval"},
        {"save-every", "STEPS", "and after the last step and each best score; 0 = never",
         &o->save_every, "save-steps -n"},
        {"save-patience", "SECONDS", "how long the last save is tried on a full disk",
         &o->save_patience},
        {"keep", "N", "newest checkpoints, beside the best; 0 = all", &o->keep,
         "save-total-limit -nk"},
        {"keep-every", "STEPS", "saves at these steps, too, and they stay; 0 = none", &o->keep_every},
        {"resume", "[auto|PATH]",
         "from the newest complete checkpoint, or a run or checkpoint folder", &o->resume,
         "resume-from-checkpoint -y", kNotNegative, "auto"},
        {"force", "", "overwrite a run that is in --out-dir", &o->force},
        {"dry-run", "",
         "print parameters, epochs and memory, and stop; without --data by the vocabulary of the model "
         "that the preset is named after", &o->dry_run},
        {"for", "[Nx]GPU", "with --dry-run: for 8xh100, say, in bf16; predicts a step's time",
         &o->plan_for},
        {"verbose", "", "with --dry-run: print the tensors, too", &o->verbose},
    });
    add("Samples", {
        {"prompt", "TEXT", "what a sample begins with; sample reads - from standard input",
         &o->prompt},
        {"system", "TEXT", "the system turn of chat", &o->system},
        {"samples", "N", "how many, each by random numbers of its own", &o->samples,
         "num-samples -n", kContext},
        {"temperature", "X", "0 = always the likeliest token", &o->temperature},
        {"top-k", "N", "choose among the N likeliest tokens; 0 = all", &o->top_k},
        {"top-p", "P", "and those of this probability together", &o->top_p, "",
         kShare},
        {"max-tokens", "N", "length of a sample", &o->max_tokens, "max-new-tokens -g", kContext},
    });
    // A wrong name in these lists would leave the option that it means to the rule for all others.
    for (const Words* names : {&kTuned, &kOpen, &kLocal})
        for (const std::string& name : *names) find_option(rows, name);
    return rows;
}

namespace {

// The values of a const Options are only read.
std::vector<Option> table(const Options& o) { return option_table(const_cast<Options*>(&o)); }

bool is_tuned(const Option& option, const Options& o) {
    return contains(kTuned, option.name) ||
           (o.hyper.contains(option.name) && option.chosen != &o.sampler);
}
bool is_fixed(const Option& option, const Options& o) {
    return !is_tuned(option, o) && !contains(kOpen, option.name) && !contains(kLocal, option.name);
}

// Returns whether the option is neither given, nor saved, nor taken from --init.
bool is_open(const Options& o, const std::string& name) {
    return !o.is_given(name) && !contains(o.saved, name);
}

using ::refuse_option;
[[noreturn]] void refuse_option(const Options& o, const std::string& option,
                                const std::string& want) {
    refuse_option("--" + option, value_text(find_option(table(o), option)), want);
}

// ---- model and checks

// Chooses model and preset where they are not given. The model is that of the preset, else the
// first one; its default preset is its first one, or on a GPU its gpu_preset.
std::pair<const ModelInfo*, Preset> choose_model(Options* o, bool gpu) {
    if (o->preset.empty()) {
        const ModelInfo* const model = o->model.empty() ? all_models()[0] : find_model(o->model);
        o->preset = gpu ? model->gpu_preset : model->presets()[0].name;
    }
    for (const ModelInfo* m : all_models())
        for (const Preset& p : m->presets()) {
            if (o->preset != p.name) continue;
            if (o->model.empty()) o->model = m->name;
            if (o->model != m->name) refuse_option(*o, "preset", "one of the model " + o->model);
            return {m, p};
        }
    die(kExitOther, "internal error: no preset %s", o->preset.c_str());
}

void resolve_lora(Options* o) {
    if (!o->lora && (o->is_given("lora-alpha") || o->is_given("lora-targets")))
        die(kExitUsage, "--lora-alpha, --lora-targets: want --lora with them");
    if (o->lora && o->init.empty())
        die(kExitUsage, "--lora: want --init with the model that it adapts");
    if (o->lora % 8) refuse_option(*o, "lora", "a multiple of 8");
    if (o->lora_alpha == 0) o->lora_alpha = 2 * o->lora;
}

// Checks that a step's tokens are G micro-batches of B x T tokens, and sets --replicas if it is 0.
// A default total is adapted to B and T; a given one must fit. kExitUsage.
void check_batch(Options* o, bool total_may_change) {
    const int64_t micro_batch = int64_t(o->batch_size) * o->shape.T;
    if (micro_batch > INT_MAX)
        refuse_option(*o, "batch-size",
                      "at most " + std::to_string(INT_MAX / o->shape.T) + " at this --seq-len");
    // G becomes a power of two: many replicas fit.
    if (total_may_change && o->total_batch_size % micro_batch != 0)
        o->total_batch_size =
            micro_batch * int64_t(std::bit_floor(uint64_t(o->total_batch_size / micro_batch) | 1));
    if (o->total_batch_size % micro_batch != 0)
        refuse_option(*o, "total-batch-size",
                      "a multiple of batch-size x seq-len = " + std::to_string(micro_batch));
    const int64_t n = o->micro_batches();
    if (o->replicas == 0) o->replicas = int(std::min<int64_t>(8, n & -n));
    if (!std::has_single_bit(unsigned(o->replicas)) || n % o->replicas != 0)
        refuse_option(
            *o, "replicas",
            "a power of two that divides the step's " + std::to_string(n) + " micro-batches");
    if (o->warmup_steps > o->steps)
        refuse_option(*o, "warmup-steps", "at most --steps " + std::to_string(o->steps));
}

}  // namespace

// train_gpt links its own: build.ninja, rule program.
[[gnu::weak]] const char* version_text() { return "0.1"; }

bool Options::is_given(const std::string& name) const { return contains(given, name); }

Options read_command(int argc, const char* const* argv) {
    Options o;
    if (argc > 0 && argv[0][0]) o.program = argv[0];
    if (argc > 1) o.argv.assign(argv + 1, argv + argc);
    Words words = o.argv;
    const bool version = std::erase(words, "--version") > 0;
    const bool help = std::erase(words, "--help") + std::erase(words, "-h") > 0;
    words = read_options(option_table(&o), words, &o.given);
    if (help && (words.empty() || words[0] != "help")) words.insert(words.begin(), "help");
    if (version) words = {"version"};
    if (words.empty()) return o;
    o.command = words[0];
    o.paths = {words.begin() + 1, words.end()};
    return o;
}

Options parse_options(int argc, const char* const* argv) {
    const Options o = read_command(argc, argv);
    if (!contains(split("train sample chat eval help version"), o.command))
        die(kExitUsage,
            "unknown command %s; want sample, chat or eval OUT, or options: --data FILE trains on a file",
            shown(o.command).c_str());
    if (o.command == "train" && !o.paths.empty())
        die(kExitUsage, "train: got %zu words, want none%s", o.paths.size(),
            o.paths.size() > 1 ? "; a text goes with --prompt, a value with blanks needs quotes"
                               : "");
    return o;
}

void options_take_model(Options* o, const ModelInfo& model, const Shape& shape) {
    const std::string source = " as in --init " + o->init;
    if (o->is_given("model") && o->model != model.name)
        refuse_option(*o, "model", model.name + source);
    o->model = model.name;
    std::vector<ShapeKey> keys = model.keys;
    keys.push_back(kVocabulary);
    for (const ShapeKey& key : keys) {
        const double own = key.get(o->shape), their = key.get(shape);
        const bool shorter = key.option == std::string("seq-len") && own < their;
        if (is_open(*o, key.option)) {
            key.set(&o->shape, their);
            o->saved.push_back(key.option);
        } else if (own != their && !shorter) {
            refuse_option(*o, key.option, format("%g", their) + source);
        }
    }
}

void resolve_options(Options* o, bool gpu) {
    const auto& [model, chosen] = choose_model(o, gpu);
    const OptimizerInfo& optimizer = *all_optimizers()[size_t(find_optimizer(o->optimizer))];
    const std::vector<Option> options = option_table(o);
    for (const std::string& name : o->given) {
        const Option& option = find_option(options, name);
        if (option.applies()) continue;
        const OptionTarget chosen = const_cast<std::string*>(option.chosen);
        const char* const by = std::ranges::find(options, chosen, &Option::to)->name.c_str();
        die(kExitUsage, "--%s: want --%s %s with it", name.c_str(), by,
            join(option.owners, "|").c_str());
    }
    Words set_by_preset;
    o->vocabulary = o->init.empty() ? chosen.vocabulary : 0;
    const Words preset = split(chosen.options);
    for (size_t i = 0; i + 1 < preset.size(); i += 2) {
        const Option& option = find_option(options, preset[i]);
        if (!option.applies() || !is_open(*o, option.name)) continue;
        CHECK(set_option(option, preset[i + 1]), "preset %s: %s", o->preset.c_str(),
              preset[i].c_str());
        set_by_preset.push_back(option.name);
    }
    if (contains(set_by_preset, "lr")) {
        // The presets' rates damage trained weights in a few steps. Published fine-tuning of whole
        // models uses 1e-5 to 5e-5; narrow models need more. Adapters get ten times that (Schulman
        // et al. 2025, "LoRA without regret").
        if (!o->init.empty())
            o->lr = (o->lora ? 3e-4 : 3e-5) * 768 / std::clamp(o->shape.C, 1, 768);
        o->lr *= optimizer.lr_factor;
        if (!o->init.empty())
            o->rate_note =
                format("%g, for fine-tuning, because of --init; --lr sets another", o->lr);
    }
    resolve_lora(o);
    if (o->is_given("recompute") && o->recompute > model->recompute)
        refuse_option(*o, "recompute",
                      format("at most %d with --model %s", model->recompute, model->name));
    if (o->rows == "auto" && !model->documents) o->rows = "join";
    if (o->rows != "join" && !model->documents)
        refuse_option(*o, "rows", format("join with --model %s", model->name));
    if (contains(set_by_preset, "warmup-steps"))
        o->warmup_steps = std::min(o->warmup_steps, o->steps / 10);
    each_hyper([&](const Choice& choice, const std::string& row, const Hyper& h) {
        double& value = o->hyper[h.option];
        if (row != o->*choice.chosen || !std::isnan(value)) return;
        value = h.with_init > 0 && !o->init.empty() ? h.with_init : h.value;
    });
    if (o->command != "train") return;      // the shape comes from the model's folder
    if (o->perplexity || o->stride || !o->task.empty())
        die(kExitUsage, "--task, --perplexity, --stride: want eval OUT with them");
    if (o->is_given("measure-every") && o->measure.empty())
        die(kExitUsage, "--measure-every: want --measure with it");
    if (const std::string wrong = model->check(o->shape); !wrong.empty()) {
        const std::string option = wrong.substr(0, wrong.find(':'));
        const bool by_preset = contains(set_by_preset, option.substr(2));
        const std::string source =
            by_preset ? "; " + option + " comes with --preset " + o->preset : "";
        die(kExitUsage, "%s%s", wrong.c_str(), source.c_str());
    }
    if (o->eval_steps == 0 && is_open(*o, "eval-steps"))
        o->eval_steps = ceil_div<int64_t>(262144, int64_t(o->batch_size) * o->shape.T);
    check_batch(o, contains(set_by_preset, "total-batch-size"));
}

Trained trained_of(const Options& o) {
    const std::vector<TensorSpec> table = find_model(o.model)->tensors(o.shape);
    return o.freezes() ? adapters_of(table, o.lora, o.lora_alpha, o.lora_targets)
                       : Trained{arena_layout(table)};
}

std::vector<double> hyper_values(const Options& options, const std::vector<Hyper>& hyper) {
    std::vector<double> values;
    for (const Hyper& h : hyper) {          // the options of an older version's run may lack one
        const auto set = options.hyper.find(h.option);
        values.push_back(set == options.hyper.end() || std::isnan(set->second) ? h.value
                                                                               : set->second);
    }
    return values;
}

std::string options_to_json(const Options& options) {
    Words members;
    for (const Option& option : table(options)) {
        const std::string value = value_text(option);
        if (!option.applies() || (value.empty() && !option.is_text())) continue;
        const std::string plain = value == "on" ? "true" : value == "off" ? "false" : value;
        const std::string json = option.is_text() ? json_quote(value, true) : plain;
        members.push_back("\"" + replaced(option.name, '-', '_') + "\": " + json);
    }
    return "{\n  " + join(members, ",\n  ") + "\n}";
}

void options_merge_saved(Options* options, const std::string& json, const std::string& path) {
    const Json object = parse_json(json, path.c_str(), true);
    if (object.kind() != Json::object) die_content(path, json_shown(object), "an object");
    Words refused;
    options->changed.clear();
    options->before = std::make_shared<Options>();
    options->before->rows = "join";         // what a run did before there was --rows
    const std::vector<Option> own = option_table(options),
                              before = option_table(options->before.get());
    for (size_t i = 0; i < own.size(); i++) {
        const std::string &name = own[i].name, key = replaced(name, '-', '_');
        const Json value = object.find(key);
        if (contains(kLocal, name)) continue;
        const bool text = value.kind() == Json::string;
        // set_option refuses a text that is not set, such as --data "".
        const bool unset = !value || value.text() == value_text(before[i]);
        if (value && (text != own[i].is_text() || !(unset || set_option(before[i], value.text()))))
            die_content(path + ": " + key, json_shown(value), wanted(own[i]));
        // A run of an older version has the default of an option that its config lacks.
        const std::string got = value_text(own[i]), had = value_text(before[i]);
        if (!options->is_given(name) || got == "auto") {
            if (set_option(own[i], had) && value) options->saved.push_back(name);
        } else if (options->command == "train" && got != had) {
            const std::string both =
                "--" + name + ": got " + shown(got) + ", the run has " + shown(had);
            if (is_fixed(own[i], *options)) refused.push_back(both);
            if (is_tuned(own[i], *options)) options->changed.push_back(both);
        }
    }
    if (!refused.empty())
        die(kExitUsage, "--resume: %s: %s; a resume keeps what the run has: leave it out, or "
            "begin a new run with --init", path.c_str(), join(refused, ", ").c_str());
}

std::string rate_change(const Options& options, int64_t step) {
    const auto rate = [step](const Options& o) {
        return format("%.2g", o.lr * schedule_fraction(o, step));
    };
    const std::string is = rate(options), was = options.before ? rate(*options.before) : is;
    if (was == is) return "";
    return format("the learning rate at step %ld goes from %s to %s (--schedule %s)",
                  step, was.c_str(), is.c_str(), options.schedule.c_str());
}

Fields options_identity(const Options& options, bool never_change) {
    Fields out;
    for (const Option& option : table(options))
        if ((never_change ? is_fixed(option, options) : !contains(kLocal, option.name)) &&
            option.applies())
            out.push_back({option.name, value_text(option)});
    return out;
}

// ---- the schedules: each is a row of kSchedules
//
// The learning rate of a step, as a fraction of the peak. Warm-up is (s+1)/warmup, which is not 0
// at step 0. Then each schedule has its own formula, which ends at final_frac or 1.

// Returns the part of the last `decay` steps that is done after step s, in 0..1:
// u = (s+1 - (steps - decay)) / decay.
static double way_down(const ScheduleStep& s, double decay) {
    decay = std::max(1.0, decay);
    return std::clamp((double(s.step + 1) - (double(s.steps) - decay)) / decay, 0.0, 1.0);
}
static double straight_down(const ScheduleStep& s, double decay) {
    return 1 - (1 - s.final_frac) * way_down(s, decay);
}

static const std::vector<ScheduleInfo> kSchedules = {
    // f + (1 - f) (1 + cos(pi u)) / 2
    {"cosine", "half a wave down",
     [](const ScheduleStep& s) {
         const double u = way_down(s, double(s.steps - s.warmup));
         return s.final_frac + (1 - s.final_frac) * 0.5 * (1 + same_cos(M_PI * u));
     }},
    {"linear", "straight down",
     [](const ScheduleStep& s) { return straight_down(s, double(s.steps - s.warmup)); }},
    {"constant", "stays", [](const ScheduleStep&) { return 1.0; }},
    // Warm-up, stable, decay: arXiv 2404.06395.
    {"wsd", "stays, then straight down",
     [](const ScheduleStep& s) { return straight_down(s, s.hyper[0] * double(s.steps)); },
     {{"decay-frac", 0.2, kShare, "",
       "part of all steps in which the rate goes down"}}},
};

const std::vector<ScheduleInfo>& all_schedules() { return kSchedules; }

double schedule_fraction(const Options& o, int64_t step) {
    const ScheduleInfo& schedule = find_row(kSchedules, o.schedule);
    if (step < o.warmup_steps) return double(step + 1) / double(o.warmup_steps);
    const std::vector<double> hyper = hyper_values(o, schedule.hyper);
    return schedule.fraction({step, o.steps, o.warmup_steps, o.final_lr_frac, hyper.data()});
}
