// options.cpp -- the table of options, and the code that reads it: parser, --help, presets, checks, the saved config.
#include "src/options/options.h"
#include <algorithm>
#include <bit>
#include <climits>
#include <strings.h>
#include <variant>
#include "build/reductions.h"
#include "models/tuning.h"
#include "src/base/common.h"
#include "src/base/json.h"
#include "src/base/words.h"

namespace {

using O = Options;

// ---- the table

struct InHyper {};                      // marks an option whose value is Options::hyper[name]
using Field = std::variant<int O::*, int64_t O::*, uint64_t O::*, double O::*, bool O::*, std::string O::*,
                           float Shape::*, ShapeNumber, InHyper>;

// What a resume does with an option that is given and differs from the saved one.
enum Resume {
    kFixed,         // refuses it, because the run's bits depend on it from the first step on
    kTuned,         // takes it and notes it in `changed`, because the bits differ from this step on
    kOpen,          // takes it: it says when to evaluate, save or print, or where the data are (compared by hash)
    kLocal,         // takes it, and ignores a saved value in any case: it concerns one start only
};

struct Row {
    std::string name;
    std::string value;              // as --help shows it: "N", or in small letters the possible words; "": a flag
    Field field;
    Resume resume;
    const char* help;
    const char* elsewhere = "";     // its names in llm.c, nanoGPT, Hugging Face and torchrun, for "did you mean"
    Limits limits = kNotNegative;   // the range of a number
    Words owners = {};              // the models, optimizers, schedules or reductions that have the option; empty: all
    const char* group = "";         // the title in --help
};

// The commands, each with the options that it takes; "": all options.
const std::map<std::string, std::string> kCommands = {
    {"train", ""},
    {"sample", "device dtype threads seed prompt special-tokens samples temperature top-k top-p max-tokens"},
    {"chat", "device dtype threads seed system chat-template temperature top-k top-p max-tokens"},
    {"eval", "device dtype threads data skip-bad-lines special-tokens tokenizer chat-template batch-size seq-len task "
             "perplexity stride np"}};

std::vector<Row> make_table() {
    Words models, presets, optimizers, schedules, shapes, reductions, meetings;
    for (const ModelInfo* m : all_models()) {
        models.push_back(m->name);
        for (const Preset& p : m->presets()) presets.push_back(p.name);
    }
    for (const OptimizerInfo* o : all_optimizers()) optimizers.push_back(o->name);
    for (const ScheduleInfo& s : all_schedules()) {
        schedules.push_back(s.name);
        shapes.push_back(s.name + " " + s.help);
    }
    static const std::string schedule_help = "after warm-up: " + join(shapes, ", ");
    for (const ReductionInfo* r : all_reductions()) {
        reductions.push_back(r->name);
        meetings.push_back(format("%s: %s", r->name, r->help));
    }
    static const std::string how_replicas_meet = join(meetings, "; ");

    // An option that several models have gets one row, with the limits and the help of the first of them.
    std::vector<Row> rows;
    const auto add = [&](const char* group, const std::vector<Row>& more) {
        for (const Row& row : more) {
            const auto same = std::ranges::find(rows, row.name, &Row::name);
            if (same == rows.end()) rows.insert(same, row)->group = group;
            else same->owners.push_back(row.owners[0]);
        }
    };
    add("Model", {
        {"model", join(models, "|"), &O::model, kFixed, "default: that of --preset or --init"},
        {"preset", join(presets, "|"), &O::preset, kFixed, "sizes and settings that go together"},
        {"init", "PATH", &O::init, kFixed, "start from weights, shape and tokenizer of a run, checkpoint, Hugging "
         "Face folder, .gguf or llm.c's GPT-2 .bin", "init-from model-name-or-path -e"},
        {"lora", "RANK", &O::lora, kFixed, "train adapters of this rank beside the weights of --init, which stay; a "
         "multiple of 8", "lora-rank lora-r", {"from 8 to 1024", 8, 1024}},
        {"lora-alpha", "X", &O::lora_alpha, kFixed, "adapters count alpha / rank times (not given: 2 rank)", "",
         kPositive},
        {"lora-targets", "NAMES", &O::lora_targets, kFixed, "matrices with adapters by PEFT's names, as "
         "q_proj,k_proj,v_proj; all: all but embedding and head", "target-modules"},
        {"vocab-size", "N", ShapeNumber([](Shape& s) -> int& { return s.V; }), kFixed,
         "only for token files without a tokenizer; else the tokenizer's", "", {"from 1 to 16777216", 1, 1 << 24}},
    });
    for (const ModelInfo* m : all_models()) {
        for (const ShapeKey& k : m->keys)
            add("Model", {{k.option, k.at.index() ? "X" : "N", k.at, kFixed, k.help, k.elsewhere, k.limits,
                           {m->name}}});
        if (m->dropouts.empty()) continue;
        add("Model", {{"dropout", "P", &Shape::dropout, kFixed, "while training", "", kBelowOne, {m->name}}});
    }
    add("Data", {
        {"data", "PATH", &O::data, kOpen, "text, JSON of texts or conversations, .npy, token shards (.bin "
         "of llm.c or nanoGPT, NAME.u32.bin): a file, folder or glob (default: the built-in stories)",
         "dataset input-bin -i"},
        {"val-data", "PATH", &O::val_data, kOpen, "default: what is named val, valid, validation, dev or eval in "
         "--data; else its last tenth, of several files at least one",
         "input-val-bin -j"},
        {"skip-bad-lines", "N", &O::skip_bad_lines, kFixed,
         "leave out N lines of JSON that cannot be read, in all files together, and N of validation"},
        {"special-tokens", "", &O::special_tokens, kFixed, "names of control tokens, such as <|endoftext|>, in texts, "
         "--prompt and --task are these tokens; in the content of messages they stay text"},
        {"tokenizer", "byte|char|gpt2|bpe:N|FILE", &O::tokenizer, kFixed, "bpe:N learns N tokens from the data, in "
         "GPT-2's split, bpe:N:llama3, :qwen2 or :smollm in theirs; FILE: tokenizer.json"},
        {"chat-template", "auto|chatml|llama3", &O::chat_template, kFixed, "of conversations in --data; auto: that of "
         "--init, else chatml"},
        {"sampler", "lockstep|torch", &O::sampler, kFixed, "order of the data; torch: PyTorch's DistributedSampler"},
    });
    add("Optimisation", {
        {"steps", "N", &O::steps, kTuned, "a resumed run may be given more", "max-iters max-steps num-iterations -x"},
        {"batch-size", "N", &O::batch_size, kFixed, "sequences in a micro-batch", "per-device-train-batch-size -b",
         kContext},
        {"total-batch-size", "TOKENS", &O::total_batch_size, kFixed, "per step over all ranks: micro-batches x "
         "batch-size x seq-len", "gradient-accumulation-steps -d", kContext},
        {"replicas", "N", &O::replicas, kFixed, "a power of two; the most ranks the run can use", "", kContext},
        {"optimizer", join(optimizers, "|"), &O::optimizer, kFixed, "how gradients change the weights"},
        {"lr", "X", &O::lr, kTuned, "peak learning rate; with --init by default 3e-5, below 768 channels 3e-5 x 768 / "
         "channels; of sgd 100 times that", "learning-rate -l", kPositive},
        {"schedule", join(schedules, "|"), &O::schedule, kTuned, schedule_help.c_str(), "decay-lr -k"},
        {"warmup-steps", "N", &O::warmup_steps, kTuned, "unless given at most a tenth of --steps", "warmup-iters -u"},
        {"final-lr-frac", "X", &O::final_lr_frac, kTuned, "last rate / --lr", "min-lr -q", {"from 0 to 1", 0, 1}},
        {"grad-clip", "X", &O::grad_clip, kTuned, "largest norm of the gradient; 0 = no limit", "max-grad-norm"},
        {"seed", "N", &O::seed, kFixed, "of weights, data order, dropout and samples"},
    });
    const auto add_hyper = [&](const std::vector<Hyper>& hyper, const std::string& owner) {
        for (const Hyper& h : hyper)
            add("Optimisation", {{h.option, "X", InHyper(), kTuned, h.help, h.elsewhere, h.limits, {owner}}});
    };
    for (const ScheduleInfo& s : all_schedules()) add_hyper(s.hyper, s.name);
    for (const OptimizerInfo* o : all_optimizers()) add_hyper(o->hyper, o->name);
    for (const ReductionInfo* r : all_reductions()) add_hyper(r->hyper, r->name);
    add("System", {
        {"device", "auto|cpu|gpu", &O::device, kLocal, "auto: a GPU if one answers"},
        {"dtype", "auto|fp32|bf16", &O::dtype, kFixed, "auto: that of the run, for a new one bf16 where it is fast"},
        {"threads", "N", &O::threads, kLocal, "per rank, on a CPU; 0 = what affinity, cgroup, OMP_NUM_THREADS and "
         "SLURM_CPUS_PER_TASK allow"},
        {"np", "N", &O::np, kLocal, "start and supervise N ranks here", "nproc-per-node", {"from 1 to 1024", 1, 1024}},
        {"max-restarts", "N", &O::max_restarts, kLocal, "with --np: from the newest checkpoint after a rank was lost"},
        {"elastic", "", &O::elastic, kLocal, "with --np: after two failures in a row half as many ranks"},
        {"reduce", join(reductions, "|"), &O::reduce, kTuned, how_replicas_meet.c_str()},
        {"overlap", "on|off", &O::overlap, kOpen, "reduce during backward; not given: off on the cores of one host"},
        {"graph", "on|off", &O::graph, kOpen, "a GPU replays its step as one CUDA graph"},
        {"recompute", "LEVEL", &O::recompute, kOpen, "for less memory backward computes again: 0 nothing, 1 GELU, "
         "2 and LayerNorm, 3 whole blocks", "gradient-checkpointing -r", {"from 0 to 3", 0, 3}},
        {"audit-every", "STEPS", &O::audit_every, kOpen, "a micro-batch is computed twice and compared; 0 = never"},
        {"timeout", "SECONDS", &O::timeout, kLocal, "without progress: a rank counts as lost", "", kPositive},
    });
    add("Output", {
        {"out-dir", "DIR", &O::out_dir, kLocal, "default: runs/PRESET-DATA-DATE-TIME; with --init that model's "
         "name instead of PRESET", "output-dir -o"},
        {"eval-every", "STEPS", &O::eval_every, kOpen, "and after the last step; 0 = never", "eval-interval -v"},
        {"eval-steps", "BATCHES", &O::eval_steps, kOpen, "an evaluation scores the first N; 0 = all; by default "
         "262,144 tokens, or as --preset says", "eval-iters -m"},
        {"task", "FILE", &O::task, kOpen, "questions to score beside the loss, a line {\"ctx\", \"endings\", "
         "\"label\"} each", "eval-task tasks"},
        {"perplexity", "", &O::perplexity, kLocal, "of eval: instead of the loss, by a sliding window"},
        {"stride", "N", &O::stride, kLocal, "of --perplexity, in tokens (not given: half the context)", "", kContext},
        {"sample-every", "STEPS", &O::sample_every, kOpen, "writes a sample of text; 0 = never", "-s"},
        {"log-every", "STEPS", &O::log_every, kOpen, "console lines, at most one a second; 0 = first and last",
         "log-interval"},
        {"save-every", "STEPS", &O::save_every, kOpen, "and after the last step and each best score; 0 = never",
         "save-steps -n"},
        {"save-patience", "SECONDS", &O::save_patience, kOpen, "how long the last save is tried on a full disk"},
        {"keep", "N", &O::keep, kOpen, "newest checkpoints, beside the best; 0 = all", "save-total-limit -nk"},
        {"resume", "[auto|PATH]", &O::resume, kLocal, "from the newest complete checkpoint, or a run or checkpoint "
         "folder", "resume-from-checkpoint -y"},
        {"force", "", &O::force, kLocal, "overwrite a run that is in --out-dir"},
        {"dry-run", "", &O::dry_run, kLocal, "print parameters, epochs and memory, and stop; without --data by "
         "the vocabulary of the model that the preset is named after"},
        {"for", "[Nx]GPU", &O::plan_for, kLocal, "with --dry-run: for 8xh100, say, in bf16; predicts a step's time"},
        {"verbose", "", &O::verbose, kLocal, "with --dry-run: print the tensors, too"},
    });
    add("Samples", {
        {"prompt", "TEXT", &O::prompt, kOpen, "what a sample begins with; sample reads - from standard input"},
        {"system", "TEXT", &O::system, kOpen, "the system turn of chat"},
        {"samples", "N", &O::samples, kOpen, "how many, each by random numbers of its own", "num-samples -n", kContext},
        {"temperature", "X", &O::temperature, kOpen, "0 = always the likeliest token"},
        {"top-k", "N", &O::top_k, kOpen, "choose among the N likeliest tokens; 0 = all"},
        {"top-p", "P", &O::top_p, kOpen, "and those of this probability together", "", {"> 0 and <= 1", 0, 1, true}},
        {"max-tokens", "N", &O::max_tokens, kOpen, "length of a sample", "max-new-tokens -g", kContext},
    });
    return rows;
}

const std::vector<Row>& table() {
    static const std::vector<Row> rows = make_table();
    return rows;
}

const Row* find_row(const std::string& name) {
    const auto row = std::ranges::find(table(), name, &Row::name);
    return row == table().end() ? nullptr : &*row;
}

// Finds a preset by its name or an alias. Returns its model and the preset; the model is null if there is none.
std::pair<const ModelInfo*, Preset> find_preset(const std::string& name) {
    for (const ModelInfo* m : all_models())
        for (const Preset& p : m->presets())
            if (name == p.name || contains(split(p.aliases), name)) return {m, p};
    return {};
}

// ---- text <-> value

// Returns the row as an OptionRow, which points to the value in *o. Adds a hyperparameter that *o does not have yet.
OptionRow row_of(const Row& row, Options* o) {
    const auto to = std::visit([&](auto field) -> OptionTarget {
        using T = decltype(field);
        if constexpr (std::is_same_v<T, ShapeNumber>)
            return std::visit([&](auto number) -> OptionTarget { return &number(o->shape); }, field);
        else if constexpr (std::is_same_v<T, float Shape::*>) return &(o->shape.*field);
        else if constexpr (std::is_same_v<T, InHyper>) return &o->hyper[row.name];
        else return &(o->*field);
    }, row.field);
    return {"--" + row.name, row.value, row.help, to, row.limits, row.name == "resume" ? "auto" : ""};
}

template <class T> bool is(const Row& row) { return std::holds_alternative<T>(row.field); }
bool is_text(const Row& row) { return is<std::string O::*>(row); }
bool is_flag(const Row& row) { return is<bool O::*>(row); }

// Returns whether the chosen model, optimizer, schedule or reduction has the option. Without a model: of any model.
bool applies(const Row& row, const Options& o) {
    if (is<InHyper>(row))
        return std::ranges::any_of(Words{o.optimizer, o.schedule, o.reduce},
                                   [&](const std::string& name) { return contains(row.owners, name); });
    return row.owners.empty() || o.model.empty() || contains(row.owners, o.model);
}

// Returns the option's value as a text that set_value reads back exactly; "" for a hyperparameter that is not set.
std::string value_text(const Row& row, const Options& options) {
    if (is<InHyper>(row) && !options.hyper.contains(row.name)) return "";
    return value_text(row_of(row, const_cast<Options*>(&options)));
}

// Sets the option to the value in `text`. Returns false if the option cannot have this value.
bool set_value(const Row& row, Options* options, std::string text) {
    if (row.name == "preset")
        if (const auto [of, preset] = find_preset(text); of) text = preset.name;
    return set_option(row_of(row, options), text);
}

std::string wanted(const Row& row) {
    Options scratch;
    return wanted(row_of(row, &scratch));
}

using ::refuse_option;
[[noreturn]] void refuse_option(const Options& o, const std::string& option, const std::string& want) {
    refuse_option("--" + option, value_text(*find_row(option), o), want);
}

// Returns whether the option is neither given nor saved.
bool is_open(const Options& o, const std::string& name) { return !o.is_given(name) && !contains(o.saved, name); }

// ---- parser

[[noreturn]] void refuse_unknown(const std::string& name) {
    Words known;
    for (const Row& row : table()) known.push_back("--" + row.name + " " + row.elsewhere);
    unknown_option(name, known);
}

// Reads the option argv[*i] with its value. Increments *i if the value is the next argument.
void take_option(Options* o, size_t* i) {
    const std::string arg = o->argv[*i], name = option_name(arg);
    const Row* row = name.starts_with("--") ? find_row(name.substr(2)) : nullptr;
    if (!row) refuse_unknown(arg.substr(0, arg.find('=')));
    if (o->is_given(row->name)) refuse_option(name, "two values", "one");
    o->given.push_back(row->name);
    const std::string value = option_value(row_of(*row, o), o->argv, i, wanted(*row));
    if (!set_value(*row, o, value)) refuse_option(name, shown(value), wanted(*row));
}

// Sets the command and its paths from the words that are no options. Refuses options that the command would ignore.
void take_command(Options* o, const Words& words, bool trains) {
    if (!words.empty()) o->command = words[0];
    if (!trains && (words.empty() || o->command == "train"))
        die(kExitUsage, "command: got %s, want sample, chat or eval OUT; train_gpt trains",
            words.empty() ? "none" : "train");
    const auto command = kCommands.find(o->command);
    if (command == kCommands.end())
        die(kExitUsage, "unknown command %s; want sample, chat or eval OUT%s", shown(o->command).c_str(),
            trains ? ", or options: --data FILE trains on a file" : "");
    const auto& [name, takes] = *command;
    for (const std::string& given : o->given)
        if (!takes.empty() && !contains(split(takes), given))
            die(kExitUsage, "--%s: has no effect on %s, which takes %s", given.c_str(), name.c_str(), takes.c_str());
    if (words.size() > 1) o->paths = {words.begin() + 1, words.end()};
    if (o->paths.size() != (takes.empty() ? 0 : 1))
        die(kExitUsage, "%s: got %zu words, want %s%s", name.c_str(), o->paths.size(),
            takes.empty() ? "none" : "one, the folder of a run or checkpoint, as runs/last",
            o->paths.size() > 1 ? "; a text goes with --prompt, a value with blanks needs quotes" : "");
}

std::string commands_help(const std::string& program) {
    return "  " + program + " sample OUT [options]    write text; OUT is a run or a checkpoint folder\n"
           "  " + program + " chat OUT [options]      a conversation; Ctrl-C stops an answer, Ctrl-D ends it\n"
           "  " + program + " eval OUT [options]      loss over the run's whole validation text, or over --data\n";
}

std::string help_of_lm() {
    return format("lm %s: runs models that train_gpt has trained; train_gpt sample, chat and eval become it.\n\n",
                  version_text()) + commands_help("lm") +
           "  mpirun -np 8 lm eval OUT   8 ranks; so do torchrun, srun, and --np 8 without any of them\n\n"
           "Data, tokenizer, batch and context are the run's, unless others are given.\n";
}

std::string help_of_trainer(const std::string& preset) {
    return format("train_gpt %s: trains language models, the same bits on any number of ranks.\n\n"
                  "  train_gpt [options]               train; without options this machine's preset on a built-in "
                  "text\n", version_text()) + commands_help("train_gpt") +
           "  mpirun -np 8 train_gpt ...        8 ranks; so do torchrun, srun, and --np 8 without any of them\n"
           "  train_gpt help data               these options alone: model, data, optimisation, system, ...\n\n"
           "--seq-len 64, --seq-len=64 and --seq_len 64 are the same; 512k = 512000.\n"
           "Defaults are those of --preset " + preset +
           "; see also --help with --preset, --model, --optimizer, --reduce or --device gpu.\n";
}

// Returns the text of --help, with the defaults of the model, preset and optimizer asked for. For lm it has only the
// options of lm's commands. With a topic it has only the groups of options whose title begins with the topic.
std::string help_text(const Options& asked, const std::string& topic, bool trains) {
    Options o;
    o.model = asked.model;
    o.preset = asked.preset;
    o.optimizer = asked.optimizer;
    o.reduce = asked.reduce;
    o.schedule = asked.schedule;
    if (trains) resolve_options(&o, asked.device == "gpu");
    else o.tokenizer = "";
    std::string out = trains ? help_of_trainer(o.preset) : help_of_lm();
    std::string group, groups;
    if (!topic.empty()) out.clear();
    for (const Row& row : table()) {
        if (groups.find(row.group) == groups.npos) groups += (groups.empty() ? "" : ", ") + std::string(row.group);
        if (strncasecmp(row.group, topic.c_str(), topic.size()) != 0) continue;
        const auto has_row = [&](const auto& command) { return contains(split(command.second), row.name); };
        if (!trains && std::ranges::none_of(kCommands, has_row)) continue;
        if (group != row.group) out += format("\n%s\n", (group = row.group).c_str());
        std::string words = row.help;
        if (!row.owners.empty()) words += " (of " + join(row.owners, ", ") + ")";
        const bool defaults = applies(row, o) && !value_text(row, o).empty();    // false: its default is not shown
        out += help_line(row_of(row, &o), words, 28, defaults);
    }
    if (group.empty()) die(kExitUsage, "help: got %s, want one of %s", shown(topic).c_str(), groups.c_str());
    if (!topic.empty()) return out.substr(1);
    return out + "\nExit codes: 0 done, 2 usage, 65 bad content of a file, 66 missing input, 69 a rank is lost,\n"
                 "74 a write failed, 75 stopped on request and saved, 80 replicas disagree, 1 anything else.\n";
}

// ---- model and checks

// Chooses the model of a given preset, or the default preset of a given model. If neither is given, it takes the first
// model. A model's default preset is its first one, or on a GPU its gpu_preset.
const ModelInfo& choose_model(Options* o, bool gpu) {
    const ModelInfo* const of = find_preset(o->preset).first;
    if (o->model.empty()) o->model = of ? of->name : all_models()[0]->name;
    const ModelInfo& model = *find_model(o->model);
    if (of && of != &model) refuse_option(*o, "preset", "one of the model " + o->model);
    if (!of) o->preset = gpu && model.gpu_preset ? model.gpu_preset : model.presets()[0].name;
    return model;
}

void resolve_lora(Options* o) {
    if (!o->lora && (o->is_given("lora-alpha") || o->is_given("lora-targets")))
        die(kExitUsage, "--lora-alpha, --lora-targets: want --lora with them");
    if (o->lora && o->init.empty()) die(kExitUsage, "--lora: want --init with the model that it adapts");
    if (o->lora % 8) refuse_option(*o, "lora", "a multiple of 8");
    if (o->lora_alpha == 0) o->lora_alpha = 2 * o->lora;
}

// Checks that a step's tokens are G micro-batches of B x T tokens, and sets --replicas if it is 0. A default total is
// adapted to B and T; a given one must fit. kExitUsage.
void check_batch(Options* o, bool total_may_change) {
    const int64_t micro_batch = int64_t(o->batch_size) * o->shape.T;
    if (micro_batch > INT_MAX)
        refuse_option(*o, "batch-size", "at most " + std::to_string(INT_MAX / o->shape.T) + " at this --seq-len");
    if (total_may_change && o->total_batch_size % micro_batch != 0)       // G becomes a power of two: many replicas fit
        o->total_batch_size = micro_batch * int64_t(std::bit_floor(uint64_t(o->total_batch_size / micro_batch) | 1));
    if (o->total_batch_size % micro_batch != 0)
        refuse_option(*o, "total-batch-size", "a multiple of batch-size x seq-len = " + std::to_string(micro_batch));
    const int64_t n = o->micro_batches();
    if (o->replicas == 0) o->replicas = int(std::min<int64_t>(8, n & -n));
    if (!std::has_single_bit(unsigned(o->replicas)) || n % o->replicas != 0)
        refuse_option(*o, "replicas", "a power of two that divides the step's " + std::to_string(n) + " micro-batches");
    if (o->warmup_steps > o->steps) refuse_option(*o, "warmup-steps", "at most --steps " + std::to_string(o->steps));
}

}  // namespace

[[gnu::weak]] const char* version_text() { return "0.1"; }    // train_gpt links its own: build.ninja, rule program

bool Options::is_given(const std::string& name) const { return contains(given, name); }

Options parse_options(int argc, const char* const* argv, int* exit_now, const std::string& program) {
    const bool trains = program == "train_gpt";
    Options o;
    if (argc > 0 && argv[0][0]) o.program = argv[0];
    if (argc > 1) o.argv.assign(argv + 1, argv + argc);
    Words words;
    bool help = false, version = false;
    for (size_t i = 0; i < o.argv.size(); i++) {
        const std::string& arg = o.argv[i];
        if (arg == "--help" || arg == "-h") help = true;
        else if (arg == "--version") version = true;
        else if (is_option(arg)) take_option(&o, &i);
        else words.push_back(arg);
    }
    if (!words.empty() && words[0] == "help") {
        help = true;
        words.erase(words.begin());
    }
    const std::string topic = words.empty() || kCommands.contains(words[0]) ? "" : words[0];
    *exit_now = help || version ? int(kExitDone) : -1;
    if (version) std::printf("%s %s\n", program.c_str(), version_text());
    else if (help) std::fputs(help_text(o, topic, trains).c_str(), stdout);
    else take_command(&o, words, trains);
    return o;
}

void options_take_model(Options* o, const ModelInfo& model, const Shape& shape) {
    const std::string source = " as in --init " + o->init;
    if (o->is_given("model") && o->model != model.name) refuse_option(*o, "model", model.name + source);
    o->model = model.name;
    Shape theirs = shape;
    for (const Row& row : table()) {
        if (!is<ShapeNumber>(row) || !applies(row, *o)) continue;
        std::visit([&](auto at) {
            auto &own = at(o->shape), &their = at(theirs);
            if (is_open(*o, row.name)) own = their;
            if (own != their && !(row.name == "seq-len" && own < their))
                refuse_option(*o, row.name, format("%g", double(their)) + source);
        }, std::get<ShapeNumber>(row.field));
    }
}

void resolve_options(Options* o, bool gpu) {
    const ModelInfo& model = choose_model(o, gpu);
    const OptimizerInfo& optimizer = *all_optimizers()[size_t(find_optimizer(o->optimizer))];
    const ScheduleInfo& schedule = *std::ranges::find(all_schedules(), o->schedule, &ScheduleInfo::name);
    for (const std::string& name : o->given)
        if (!applies(*find_row(name), *o))
            die(kExitUsage, "--%s: is no option of %s with %s, %s and --reduce %s", name.c_str(), model.name,
                optimizer.name, schedule.name.c_str(), o->reduce.c_str());
    Words set_by_preset;
    const Preset chosen = find_preset(o->preset).second;
    o->vocabulary = o->init.empty() ? chosen.vocabulary : 0;
    const Words preset = split(chosen.options);
    for (size_t i = 0; i + 1 < preset.size(); i += 2) {
        const Row* row = find_row(preset[i]);
        CHECK(row, "preset %s: %s", o->preset.c_str(), preset[i].c_str());
        if (!applies(*row, *o) || !is_open(*o, row->name)) continue;
        if (value_text(*row, *o) != value_text(*row, Options())) continue;      // --init has set it
        CHECK(set_value(*row, o, preset[i + 1]), "preset %s: %s", o->preset.c_str(), preset[i].c_str());
        set_by_preset.push_back(row->name);
    }
    if (contains(set_by_preset, "lr")) {
        // The presets' rates damage trained weights in a few steps. Published fine-tuning of whole models uses 1e-5 to
        // 5e-5; narrow models need more. Adapters get ten times that (Schulman et al. 2025, "LoRA without regret").
        if (!o->init.empty()) o->lr = (o->lora ? 3e-4 : 3e-5) * 768 / std::clamp(o->shape.C, 1, 768);
        o->lr *= optimizer.lr_factor;
        if (!o->init.empty())
            o->rate_note = format("%g, for fine-tuning, because of --init; --lr sets another", o->lr);
    }
    resolve_lora(o);
    if (contains(set_by_preset, "warmup-steps")) o->warmup_steps = std::min(o->warmup_steps, o->steps / 10);
    for (const auto* list : {&optimizer.hyper, &schedule.hyper, &find_reduction(o->reduce).hyper})
        for (const Hyper& h : *list)
            o->hyper.try_emplace(h.option, h.with_init > 0 && !o->init.empty() ? h.with_init : h.value);
    if (o->command != "train") return;      // the shape comes from the model's folder
    if (o->perplexity || o->stride) die(kExitUsage, "--perplexity, --stride: want eval OUT with them");
    if (const std::string wrong = model.check(o->shape); !wrong.empty()) {
        const std::string option = wrong.substr(0, wrong.find(':'));
        const bool by_preset = contains(set_by_preset, option.substr(2));
        const std::string source = by_preset ? "; " + option + " comes with --preset " + o->preset : "";
        die(kExitUsage, "%s%s", wrong.c_str(), source.c_str());
    }
    if (o->eval_steps == 0 && is_open(*o, "eval-steps"))
        o->eval_steps = ceil_div<int64_t>(262144, int64_t(o->batch_size) * o->shape.T);
    check_batch(o, contains(set_by_preset, "total-batch-size"));
}

Trained trained_of(const Options& o) {
    const std::vector<TensorSpec> table = find_model(o.model)->tensors(o.shape);
    return o.freezes() ? adapters_of(table, o.lora, o.lora_alpha, o.lora_targets) : Trained{arena_layout(table)};
}

std::vector<double> hyper_values(const Options& options, const std::vector<Hyper>& hyper) {
    std::vector<double> values;
    for (const Hyper& h : hyper) {          // the options of an older version's run may lack one
        const auto set = options.hyper.find(h.option);
        values.push_back(set == options.hyper.end() ? h.value : set->second);
    }
    return values;
}

std::string options_to_json(const Options& options) {
    Words members;
    for (const Row& row : table()) {
        const std::string value = value_text(row, options);
        if (!applies(row, options) || (value.empty() && !is_text(row))) continue;
        const std::string plain = value == "on" ? "true" : value == "off" ? "false" : value;
        const std::string json = is_text(row) ? json_quote(value, true) : plain;
        members.push_back("\"" + replaced(row.name, '-', '_') + "\": " + json);
    }
    return "{\n  " + join(members, ",\n  ") + "\n}";
}

void options_merge_saved(Options* options, const std::string& json, const std::string& path) {
    const Json object = parse_json(json, path.c_str(), true);
    if (object.kind() != Json::object) die_content(path, json_shown(object), "an object");
    Words refused;
    options->changed.clear();
    options->before = std::make_shared<Options>();
    for (const Row& row : table()) {
        const std::string key = replaced(row.name, '-', '_');
        const Json value = object.find(key);
        if (!value || row.resume == kLocal) continue;
        Options saved;
        const Json::Kind kind = is_text(row) ? Json::string : is_flag(row) ? Json::boolean : Json::number;
        const bool unset = value.text() == value_text(row, saved);      // such as --data "", which set_value refuses
        if (value.kind() != kind || !(unset || set_value(row, &saved, value.text())))
            die_content(path + ": " + key, json_shown(value), wanted(row));
        const std::string got = value_text(row, *options), had = value_text(row, saved);
        set_value(row, options->before.get(), had);
        if (!options->is_given(row.name) || got == "auto") {
            if (set_value(row, options, had)) options->saved.push_back(row.name);
        } else if (options->command == "train" && got != had) {
            const std::string both = "--" + row.name + ": got " + shown(got) + ", the run has " + shown(had);
            if (row.resume == kFixed) refused.push_back(both);
            if (row.resume == kTuned) options->changed.push_back(both);
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
    return format("the learning rate at step %lld goes from %s to %s (--schedule %s)", (long long)step, was.c_str(),
                  is.c_str(), options.schedule.c_str());
}

std::vector<std::pair<std::string, std::string>> options_identity(const Options& options, bool never_change) {
    std::vector<std::pair<std::string, std::string>> out;
    for (const Row& row : table())
        if ((never_change ? row.resume == kFixed : row.resume != kLocal) && applies(row, options))
            out.push_back({row.name, value_text(row, options)});
    return out;
}
