// test_options.cpp -- the command line: every option in both forms, every refusal, presets, the saved config, random
// arguments.
#include <algorithm>
#include <cmath>
#include <random>
#include <sstream>
#include "src/ddp/reductions/reduction.h"
#include "src/app/program.h"
#include "src/base/json.h"
#include "src/base/words.h"
#include "tools/lm/commands.h"
#include "src/options/options.cpp"  // whose lists get rows here
#include "tests/test.h"

namespace {

Options parse(const Words& args, CommandLine* program = parse_options) {
    std::vector<const char*> argv = {"train_gpt"};
    for (const std::string& a : args) argv.push_back(a.c_str());
    return program(int(argv.size()), argv.data());
}
Options parse_line(const std::string& line) { return parse(split(line)); }
Options resolve_line(const std::string& line, bool gpu = false) {
    Options o = parse_line(line);
    resolve_options(&o, gpu);
    return o;
}
void resolve_line_only(const std::string& line) { resolve_line(line); }
void refused(const std::string& line, const std::string& message) {
    expect_refusals(kExitUsage, {{line, message}}, resolve_line_only);
}
// The options of a run that resumes one with this config.json.
Options resumed(const std::string& line, const std::string& saved, bool gpu = false) {
    Options o = parse_line("--resume " + line);
    options_merge_saved(&o, saved, "runs/a/config.json");
    resolve_options(&o, gpu);
    return o;
}
// The options of a run that fine-tunes a GPT-2 of this width.
Options with_init(const std::string& line, int channels = 48) {
    Options o = parse_line("--init x " + line);
    Shape shape;
    shape.L = 2, shape.NH = channels / 16, shape.C = channels, shape.T = 1024, shape.V = 300;
    options_take_model(&o, *all_models()[0], shape);
    resolve_options(&o, false);
    return o;
}

// Gives a row of a list an option more, as a fork does, as long as the variable lives.
struct Lent {
    Choice& list;
    Lent(const Choice& of, const std::string& row, const char* option) : list(const_cast<Choice&>(of)) {
        list.hyper.push_back({row, {{option, 0.5, kShare, "", "of a test"}}});
    }
    ~Lent() { list.hyper.pop_back(); }
};

// All options, as --help lists them. own: without those that a model, an optimizer, a schedule or a reduction has.
Words option_names(bool own = false) {
    std::istringstream help(help_text({}, false));
    Words names;
    for (std::string line; std::getline(help, line);)
        if (line.starts_with("  --") && !(own && has(line, " (of ")))
            names.push_back(line.substr(4, line.find(' ', 4) - 4));
    EXPECT(names.size() > 50, "%zu options", names.size());
    return names;
}

// A value of every option that is not its default, as typed ("": a flag), and as config.json has it where it is neither
// that number nor that text.
struct Sample {
    std::string name, typed, text = "";
    std::string value() const { return typed.empty() ? "on" : typed; }
    std::string saved() const {
        if (!text.empty() || typed.empty()) return text.empty() ? "true" : text;
        char* end;
        std::strtod(typed.c_str(), &end);
        return *end ? json_quote(typed) : typed;
    }
};
const Sample samples[] = {
    {"model", "gpt2"}, {"preset", "small"}, {"layers", "3"}, {"heads", "2"}, {"channels", "64"},
    {"seq-len", "1k", "1000"}, {"vocab-size", "1000"}, {"dropout", "0.25"}, {"init", "gpt2/"}, {"samples", "3"},
    {"task", "arc.jsonl"}, {"perplexity", ""}, {"stride", "16"}, {"lora", "16"}, {"lora-alpha", "24"},
    {"lora-targets", "c_attn"}, {"data", "a b.txt"}, {"val-data", "v.txt"}, {"tokenizer", "bpe:512"},
    {"skip-bad-lines", "3"}, {"special-tokens", ""}, {"rows", "masked"}, {"sampler", "torch"},
    {"chat-template", "llama3"},
    {"steps", "2M", "2000000"}, {"batch-size", "7"}, {"total-batch-size", "512k", "512000"}, {"replicas", "4"},
    {"optimizer", "adamw"}, {"lr", "1.5e-3", "0.0015"}, {"schedule", "wsd"}, {"loss", "z-loss"},
    {"warmup-steps", "1e3", "1000"}, {"final-lr-frac", "0.05"}, {"beta1", "0.8"}, {"beta2", "0.999"},
    {"eps", "1e-6", "1e-06"}, {"weight-decay", "0"},
    {"grad-clip", "0.5"}, {"seed", "18446744073709551615"}, {"device", "cpu"}, {"dtype", "bf16"}, {"threads", "2"},
    {"np", "2"}, {"max-restarts", "0"}, {"elastic", ""}, {"reduce", "nccl"}, {"overlap", "off", "false"},
    {"graph", "off", "false"}, {"recompute", "2"}, {"audit-every", "0"}, {"timeout", "2.5"}, {"out-dir", "runs/\"x\""},
    {"eval-every", "11"}, {"eval-steps", "12"}, {"sample-every", "13"}, {"log-every", "14"}, {"save-every", "15"},
    {"measure", "activations,grad_norm"}, {"measure-every", "3"}, {"save-patience", "5"}, {"keep", "16"},
    {"keep-every", "32"}, {"resume", "runs/y"}, {"force", ""}, {"dry-run", ""}, {"for", "8xh100"}, {"verbose", ""},
    {"system", "Be kind."}, {"prompt", "\u00c4 \n"}, {"temperature", "0"}, {"top-k", "40"},
    {"top-p", "0.9"}, {"max-tokens", "99"}};

std::string json_of(const Options& o, const std::string& name) {
    const std::string all = options_to_json(o);
    const Json value = parse_json(all, "config").find(replaced(name, '-', '_'));
    if (!value) return "absent";
    return value.kind() == Json::string ? json_quote(value.text()) : value.text();
}
// Rows of a command line, an option and its value in config.json.
struct Value { const char *line, *option, *value; };
void expect_values(const std::vector<Value>& rows) {
    for (const auto& [line, option, value] : rows) {
        const Row row(line);
        EXPECT_EQ(json_of(resolve_line(line), option), value);
    }
}

}  // namespace

// Those of other models and optimizers have the tests of random arguments.
// Parameters as transformers counts them (GPT-2, SmolLM2, Llama 3.2, Qwen2.5, Qwen3); those of llama-124m by hand.
TEST(published_sizes) {
    const std::pair<std::string, size_t> published[] = {
        {"gpt2-124m", 124439808}, {"gpt2-350m", 354823168}, {"gpt2-774m", 774030080}, {"gpt2-1558m", 1557611200},
        {"smollm2-135m", 134515008}, {"smollm2-360m", 361821120}, {"llama3.2-1b", 1235814400},
        {"qwen2.5-0.5b", 494032768}, {"qwen3-0.6b", 596049920}, {"llama-124m", 124730880}};
    for (const auto& [preset, parameters] : published) {
        const Row row(preset);
        Options o = resolve_line("--preset " + preset);
        set_vocabulary(&o.shape, o.vocabulary);
        EXPECT_EQ(count_parameters(find_model(o.model)->tensors(o.shape)), parameters);
    }
    for (const char* none : {"", "--preset small", "--preset gpt2-124m --init x"})
        EXPECT_EQ(resolve_line(none).vocabulary, 0);
}

TEST(every_option_has_a_sample) {
    for (const std::string& name : option_names(true))
        EXPECT(std::ranges::count(samples, name, &Sample::name) > 0, "--%s has no sample", name.c_str());
}

TEST(both_forms) {
    for (const Sample& s : samples) {
        const Row row(s.name);
        EXPECT(s.name == "optimizer" || json_of(Options(), s.name) != s.saved(), "the sample is the default");
        for (const std::string& option : {"--" + s.name, "--" + replaced(s.name, '-', '_')}) {
            const Words apart = s.typed.empty() ? Words{option} : Words{option, s.typed};
            for (const Words& args : {apart, Words{option + "=" + s.value()}}) {
                const Options o = parse(args);
                EXPECT_EQ(json_of(o, s.name), s.saved());
                EXPECT(o.is_given(s.name) && o.given.size() == 1 && o.argv == args);
            }
        }
    }
}

TEST(flags_and_optional_values) {
    expect_values({{"--overlap on", "overlap", "true"}, {"--force=false", "force", "false"},
                   {"--resume", "resume", "\"auto\""}, {"--resume auto", "resume", "\"auto\""},
                   {"--resume --force", "resume", "\"auto\""}, {"--resume runs/a --force", "resume", "\"runs/a\""},
                   {"sample OUT --prompt -x", "prompt", "\"-x\""},    // a value may start with a dash,
                   {"sample OUT --prompt=--x", "prompt", "\"--x\""},  // or with two after '='
                   {"--seed 3 sample odd--name", "seed", "3"}});
    const std::pair<const char*, const char*> commands[] = {
        {"", "train"}, {"train --seed 1", "train"}, {"--seed 3 sample odd--name", "sample"}, {"eval x", "eval"}};
    for (const auto& [line, command] : commands) EXPECT_EQ(parse_line(line).command, command);
}

TEST(refused_arguments) {
    for (const char* bad : {"0", "-1", "nan", "inf", "1e400", "0x10", "1e", "1e-3x", "1,5", "+1", "k", "--", "1k M"})
        expect_error(kExitUsage, "--lr: got", [&] { parse({"--lr=" + std::string(bad)}); });
    for (const char* bad : {"abc", "1e400", "-5", "99999999999999999999", "", "0x10", "nan", "1.5", "0.0001k", "1e-3",
                            " 1", "1 ", "0", "2147483648"})
        for (const std::string name : {"--layers", "--batch-size", "--replicas", "--max-tokens"})
            expect_error(kExitUsage, name + ": got ", [&] { parse({name + "=" + bad}); });
    expect_error(kExitUsage, "got nothing", [&] { parse({"--lr="}); });
    const Refusals cases = {
        {"--lr abc", "--lr: got abc, want a number > 0"}, {"--perplexity", "want eval OUT"},
        {"--task=arc.jsonl", "want eval OUT"}, {"--stride 3", "want eval OUT"}, {"--keep 3e9", "--keep"},
        {"--measure grad_norm,x", "--measure: got grad_norm,x, want grad_norm"},
        {"--optimizer sgd,muon", "got sgd,muon"},
        {"--seed 18446744073709551616", "--seed"}, {"--seed -1", "--seed"}, {"--steps 1e17", "--steps"},
        {"--prompt=", "got nothing"}, {"--steps 18446744073709551615", "--steps"}, {"--dropout 1", "< 1"},
        {"--dropout 0.99999999999", "< 1"}, {"--beta2 1.0", "< 1"}, {"--final-lr-frac 1.1", "from 0 to 1"},
        {"--top-p 0", "<= 1"}, {"--eps 1e-40", "--eps"}, {"--timeout 0", "--timeout"},
        {"--schedule cosin", "cosine|linear|constant|wsd"}, {"--dtype fp16", "auto|fp32|bf16"},
        {"--device cuda", "auto|cpu|gpu"}, {"--preset gpt3", "nano"}, {"--overlap maybe", "on|off"},
        {"--overlap", "got no value"}, {"--lr", "got no value"}, {"--lr --steps 3", "got no value"},
        {"--out-dir=", "got nothing"}, {"--lr 1 --lr=2", "two values"}, {"--force --force=off", "two values"},
        {"--seq_len 4 --seq-len 4", "two values"}, {"--force=1", "got 1"}, {"--no-lr", "unknown option --no-lr"},
        {"--=3", "unknown option --"}, {"-5", "unknown option -5"}, {"train x", "want none"}};
    expect_refusals(kExitUsage, cases, resolve_line_only);
    // A pasted file does not fill the screen.
    for (const std::string& first : {std::string("--lr"), "--" + std::string(100000, 'x')})
        try {
            parse({first, std::string(100000, 'x')});
            FAIL("it is taken");
        } catch (const Error& e) {
            EXPECT(e.message.size() < 300, "%zu", e.message.size());
        }
}

TEST(did_you_mean) {
    const Refusals cases = {
        {"--block_size", "seq-len"}, {"--max_iters", "steps"}, {"--stpes", "steps"}, {"--batchsize", "batch-size"},
        {"-b", "batch-size"}, {"-t", "seq-len"}, {"-d", "total-batch-size"}, {"-l", "lr"}, {"-u", "warmup-steps"},
        {"-q", "final-lr-frac"}, {"-x", "steps"}, {"-c", "weight-decay"}, {"-v", "eval-every"}, {"-m", "eval-steps"},
        {"-s", "sample-every"}, {"-n", "save-every"}, {"-nk", "keep"}, {"-o", "out-dir"}, {"-y", "resume"},
        {"-e", "init"}, {"-i", "data"}, {"-j", "val-data"}, {"-k", "schedule"}, {"-g", "max-tokens"}, {"-lr", "lr"},
        {"--learning_rate", "lr"}, {"--per_device_train_batch_size", "batch-size"}, {"--n_layer", "layers"},
        {"--n_head", "heads"}, {"--n_embd", "channels"}, {"--warmup_iters", "warmup-steps"},
        {"--warmup", "warmup-steps"}, {"--min_lr", "final-lr-frac"}, {"--num_iterations", "steps"},
        {"--max_grad_norm", "grad-clip"}, {"--eval_interval", "eval-every"}, {"--eval_iters", "eval-steps"},
        {"--save_steps", "save-every"}, {"--save_total_limit", "keep"}, {"--output_dir", "out-dir"},
        {"--resume_from_checkpoint", "resume"}, {"--init_from", "init"}, {"--model_name_or_path", "init"},
        {"--max_new_tokens", "max-tokens"}, {"--dataset", "data"}, {"--nproc_per_node", "np"}, {"--lrr", "lr"},
        {"--out", "out-dir"}, {"--weigth-decay", "weight-decay"},
        {"--gradient_accumulation_steps", "total-batch-size"}};
    for (const auto& [typed, meant] : cases)
        for (const char* rest : {"", "=4"})
            expect_error(kExitUsage, "unknown option " + typed + "; did you mean --" + meant + "?",
                         [&, typed = typed] { parse({typed + rest, "4"}); });
    refused("--zzzzzzzzzz", "--help lists all");
    refused("samplle", "unknown command samplle");
    refused("tests/test.h", "--data");
}

TEST(help_and_version) {
    const auto help = [](const std::string& line) {
        const Options o = parse_line(line);
        EXPECT_EQ(o.command, "help");
        return help_text(o, false);
    };
    const std::string text = help("--help");
    for (const std::string& name : option_names())
        EXPECT(has(text, "\n  --" + name), "--%s is not in the help", name.c_str());
    for (const char* part : {"Model\n", "Data\n", "Optimisation\n", "System\n", "Output\n", "Samples\n",
                             "(default 480)", "(default 0.005)", "seq_len"})
        EXPECT(has(text, part), "%s", part);
    const std::string big = help("--preset d12 -h");
    EXPECT(has(big, "(default 18865)") && !has(big, "(default 0.005)"), "--preset d12");
    EXPECT(has(help("--help --device gpu"), "--preset gpt2-124m;"), "GPU");
    EXPECT(help("sample --help") == text && help("help") == text, "sample --help needs no folder");
    EXPECT(help("help samp").starts_with("Samples\n  --prompt") && help("--help samp") == help("help samp"), "a topic");
    EXPECT(!has(help("help data"), "--lr "), "a topic has nothing else");
    expect_error(kExitUsage, "got x, want one of Model, Data", [&] { help("help x"); });
    EXPECT_EQ(parse_line("--version").command, "version");
}

TEST(lm_has_the_commands_only) {
    const std::string text = help_text(parse({"--help"}, parse_command), true);
    EXPECT(text.starts_with("lm ") && has(text, "\n  --prompt "), "%s", text.c_str());
    for (const char* part : {"--lr ", "--out-dir ", "Model\n  --model"})
        EXPECT(!has(text, part), "%s is in lm's help", part);
    const Options o = parse(split("--seed 3 sample odd--name"), parse_command);
    EXPECT(o.command == "sample" && o.paths == Words{"odd--name"} && o.seed == 3, "lm sample");
    const Refusals cases = {
        {"", "got none, want sample"}, {"train", "got train, want sample"}, {"samplle", "samplle"},
        {"sample", "folder"}, {"sample a b", "folder"},
        {"sample a --lr 3", "which takes device dtype threads seed"},
        {"eval a --prompt x", "has no effect on eval"}, {"sample a --verbose", "has no effect"},
        {"eval a --layers 3", "has no effect"}};
    expect_refusals(kExitUsage, cases, [](const std::string& line) { parse(split(line), parse_command); });
}

TEST(presets) {
    const struct { std::string name; int layers, heads, channels; double lr; } want[] = {
        {"nano", 4, 4, 128, 5e-3},           {"small", 6, 6, 384, 1e-3},
        {"gpt2-124m", 12, 12, 768, 6e-4},    {"gpt2-350m", 24, 16, 1024, 3e-4},
        {"gpt2-774m", 36, 20, 1280, 2.5e-4}, {"gpt2-1558m", 48, 25, 1600, 2e-4}};
    for (const auto& [name, layers, heads, channels, lr] : want) {
        const Row row(name);
        const Options o = resolve_line("--preset " + name);
        EXPECT(o.preset == name && o.shape.L == layers && o.shape.NH == heads && o.shape.C == channels && o.lr == lr);
        EXPECT(o.total_batch_size % (int64_t(o.batch_size) * o.shape.T) == 0 && o.replicas == 8);
        EXPECT(o.steps > 0 && o.eval_every > 0 && o.save_every > 0 && o.log_every > 0 && o.keep > 0);
        EXPECT(o.warmup_steps <= o.steps / 10);
    }
    // The first and the last value of a line of a preset; a CPU's default.
    expect_values({{"", "final-lr-frac", "0.05"}, {"", "save-every", "240"}, {"", "preset", "\"nano\""},
                   {"", "dtype", "\"auto\""}});
    EXPECT_EQ(resolve_line("", true).preset, "gpt2-124m");
    EXPECT_EQ(resolve_line("--dtype fp32", true).dtype, "fp32");
    for (const char* alias : {"d24", "gpt2-medium"})
        EXPECT(parse({"--preset", alias}).preset == "gpt2-350m", "%s", alias);
    const Options o = resolve_line("--preset gpt2-124m --layers 2 --lr 1 --beta2 0.5 --warmup-steps 7");
    EXPECT(o.shape.L == 2 && o.lr == 1 && o.hyper.at("beta2") == 0.5 && o.warmup_steps == 7 && o.shape.C == 768);
}

TEST(derived_values) {
    expect_values({{"--steps 100", "warmup-steps", "10"}, {"--steps 9", "warmup-steps", "0"},      // a tenth
                   {"--steps 0", "warmup-steps", "0"}, {"--steps 100 --warmup-steps 100", "warmup-steps", "100"},
                   {"--total-batch-size 32768 --replicas 64", "replicas", "64"},
                   // A default total adapts to what is given, in a power of two of micro-batches.
                   {"--batch-size 3", "total-batch-size", "3072"}, {"--seq-len 1", "total-batch-size", "4096"},
                   {"--batch-size 100 --seq-len 1000", "total-batch-size", "100000"},
                   {"sample x", "replicas", "0"}, {"sample x", "temperature", "0.8"}});     // it checks no batch
    const std::pair<int, int> replicas_of[] = {
        {1, 1}, {2, 2}, {3, 1}, {4, 4}, {6, 2}, {8, 8}, {12, 4}, {16, 8}, {24, 8}, {7, 1}};
    for (const auto& [micro_batches, replicas] : replicas_of) {
        const std::string line = format("--batch-size 2 --seq-len 256 --total-batch-size %d", 512 * micro_batches);
        EXPECT(resolve_line(line).replicas == replicas, "%d of %d micro-batches", replicas, micro_batches);
    }
}

TEST(sizes_that_do_not_fit) {
    const Refusals cases = {
        {"--heads 5", "--heads: got 5"}, {"--heads 3 --channels 1152", "try --channels"},
        {"--channels 12", "--heads"}, {"--total-batch-size 5000", "= 512"}, {"--total-batch-size 1", "= 512"},
        {"--total-batch-size 524288 --batch-size 12 --seq-len 1024", "= 12288"},
        {"--batch-size 2147483647 --seq-len 2147483647", "--batch-size"},
        {"--batch-size 1000000000 --seq-len 1 --total-batch-size 2147483647", "= 1000000000"},
        {"--replicas 3", "8 micro-batches"}, {"--replicas 16", "8 micro-batches"},
        {"--replicas 1073741824", "--replicas"}, {"--warmup-steps 900", "at most --steps 480"}};
    expect_refusals(kExitUsage, cases, resolve_line_only);
    // What the messages want works.
    for (const char* line :
         {"--heads 5 --channels 120", "--total-batch-size 4608", "--batch-size 1 --seq-len 2147483647",
          "--total-batch-size 516096 --batch-size 12 --seq-len 1024"})
        resolve_line(line);
}

TEST(models_and_optimizers) {
    EXPECT(resolve_line("").model == all_models()[0]->name, "the first of the list");
    for (const ModelInfo* m : all_models()) {
        const std::string name = m->name;
        EXPECT(resolve_line("--model " + name).preset == m->presets()[0].name, "%s: its first preset", m->name);
        EXPECT(resolve_line("--model " + name, true).preset == m->gpu_preset, "%s: its preset for GPUs", m->name);
        for (const Preset& p : m->presets()) {
            Options o = resolve_line("--preset " + std::string(p.name));
            EXPECT(o.model == name && resolve_line("--model " + name + " --preset " + p.name).model == name, "%s",
                   p.name);
            for (const ShapeKey& key : m->keys)
                EXPECT(key.limits.hold(key.get(o.shape)), "%s: --%s", p.name, key.option);
            for (const ModelInfo* other : all_models())
                if (other != m) refused("--model " + std::string(other->name) + " --preset " + p.name, "--preset");
        }
        for (const ModelInfo* other : all_models())
            for (const ShapeKey& key : other->keys) {
                const bool own = std::ranges::count(m->keys, std::string_view(key.option), &ShapeKey::option);
                const std::string value = format(" %g", std::min(8.0, key.limits.high));
                if (!own)
                    refused("--model " + name + " --" + key.option + value,
                            format("--%s: want --model ", key.option));
            }
    }
    for (const OptimizerInfo* info : all_optimizers()) {
        const Options o = resolve_line("--optimizer " + std::string(info->name));
        const auto set = std::ranges::count_if(o.hyper, [](const auto& hyper) { return !std::isnan(hyper.second); });
        EXPECT(size_t(set) == info->hyper.size() && std::fabs(o.lr / (5e-3 * info->lr_factor) - 1) < 1e-12, "%s",
               info->name);
        EXPECT(hyper_values(o, info->hyper).size() == info->hyper.size(), "%s", info->name);
        EXPECT(resolve_line("--lr 7 --optimizer " + std::string(info->name)).lr == 7, "%s: a given learning rate",
               info->name);
    }
    EXPECT_EQ(resolve_line("").hyper.at("beta2"), 0.99);
}

TEST(a_model_keeps_documents_apart_or_not) {
    for (const ModelInfo* info : all_models())
        for (const char* rows : {"join", "masked", "documents", "auto"}) {
            const std::string line = format("--model %s --rows %s", info->name, rows);
            const bool open = rows == std::string("auto");          // the data decide, if the model can do both
            if (info->documents || rows == std::string("join")) EXPECT_EQ(resolve_line(line).rows, rows);
            else if (open) EXPECT_EQ(resolve_line(line).rows, "join");
            else refused(line, format("--rows: got %s, want join with --model %s", rows, info->name));
        }
}

// A level of --recompute that a model does not have is refused. A run of an older version may have it.
TEST(recompute_of_a_model) {
    for (const ModelInfo* info : all_models())
        for (int level = 0; level <= 3; level++) {
            const std::string line = format("--model %s --recompute %d", info->name, level);
            if (level > info->recompute)
                refused(line, format("--recompute: got %d, want at most %d with --model %s", level, info->recompute,
                                     info->name));
            else EXPECT_EQ(resolve_line(line).recompute, level);
        }
    resumed("x", R"({"model": "lstm", "recompute": 2})");
}

// A loss's own options come with it. A resume may take another one.
TEST(losses) {
    EXPECT_EQ(resolve_line("").loss, "cross-entropy");
    EXPECT_EQ(resolve_line("--loss z-loss --z-loss 0.5").hyper.at("z-loss"), 0.5);
    EXPECT_EQ(json_of(resolve_line("--loss z-loss"), "z-loss"), "1e-04");
    EXPECT_EQ(json_of(resolve_line(""), "z-loss"), "absent");
    refused("--z-loss 1e-4", "--z-loss: want --loss z-loss with it");
    refused("--loss z-los", "cross-entropy|z-loss");
    const Options more = resumed("x --loss z-loss", options_to_json(resolve_line("")));
    EXPECT_EQ(join(more.changed, ","), "--loss: got z-loss, the run has cross-entropy");
    EXPECT_EQ(resumed("x", R"({"loss": "z-loss"})").hyper.at("z-loss"), 1e-4);
    EXPECT_EQ(resumed("x", R"({"model": "gpt2"})").loss, "cross-entropy");
}

// A schedule's own options come with its row, and go with it.
TEST(schedules) {
    for (const ScheduleInfo& s : all_schedules()) {
        const std::string line = "--schedule " + s.name;
        const Options o = resolve_line(line);
        for (const Hyper& h : s.hyper) {
            EXPECT(o.hyper.at(h.option) == h.value && json_of(o, h.option) == format("%g", h.value), "--%s", h.option);
            const std::string given = format(" --%s %.17g", h.option, h.value / 2);
            EXPECT(resolve_line(line + given).hyper.at(h.option) == h.value / 2, "%s%s", line.c_str(), given.c_str());
            for (const ScheduleInfo& other : all_schedules()) {
                const bool own = std::ranges::count(other.hyper, std::string_view(h.option), &Hyper::option);
                if (!own) refused("--schedule " + other.name + given, format("--%s: want --schedule ", h.option));
            }
        }
    }
    refused("--schedule wsd --decay-frac 0", "<= 1");
    const Options half = resolve_line("--schedule wsd --decay-frac 0.5 --steps 100 --final-lr-frac 0");
    EXPECT(schedule_fraction(half, 49) == 1 && std::fabs(schedule_fraction(half, 74) - 0.5) < 1e-12, "%g, %g",
           schedule_fraction(half, 49), schedule_fraction(half, 74));
    Options unknown = half;
    unknown.schedule = "cosin";
    expect_error(kExitOther, "no cosin", [&] { schedule_fraction(unknown, 50); });
    // A run that an older version has saved has no --decay-frac.
    Options old = half;
    old.hyper.clear();
    EXPECT(schedule_fraction(old, 79) == 1 && schedule_fraction(old, 80) < 1, "%g", schedule_fraction(old, 80));
}

TEST(model_of_init) {
    Options o = with_init("--seq-len 512");
    EXPECT(o.shape.L == 2 && o.shape.NH == 3 && o.shape.C == 48 && o.shape.T == 512 && o.shape.V == 300 &&
               o.model == all_models()[0]->name && o.total_batch_size == 4096);
    const std::string once = options_to_json(o);
    resolve_options(&o, false);
    EXPECT(options_to_json(o) == once, "resolving twice changes nothing");
    EXPECT(with_init("").shape.T == 1024 && with_init("--channels 48").shape.C == 48, "the same width may be given");
    for (const char* line : {"--layers 3", "--seq-len 2048", "--vocab-size 257"})
        expect_error(kExitUsage, "as in --init x", [&] { with_init(line); });
}

TEST(rates_of_init) {
    const auto is = [](double got, double want) { return std::fabs(got / want - 1) < 1e-12; };
    for (const std::string line : {"", "--preset small", "--preset gpt2-124m"}) {  // whatever the preset's own is
        const Row row(line);
        EXPECT(is(with_init(line, 768).lr, 3e-5) && is(with_init(line, 1536).lr, 3e-5));
        EXPECT(is(with_init(line, 384).lr, 6e-5));
    }
    for (const OptimizerInfo* info : all_optimizers()) {
        const std::string line = "--optimizer " + std::string(info->name);
        EXPECT(is(with_init(line, 768).lr, 3e-5 * info->lr_factor), "%s", info->name);
        const Options given = with_init(line + " --lr 7", 768);
        EXPECT(given.lr == 7 && given.rate_note.empty());
    }
    EXPECT_EQ(with_init("", 384).rate_note, "6e-05, for fine-tuning, because of --init; --lr sets another");
    EXPECT(with_init("--optimizer muon", 768).hyper.at("muon-lr") == 1e-3 &&
               with_init("--optimizer muon --muon-lr 3", 768).hyper.at("muon-lr") == 3);
    const Options without = resolve_line("--optimizer muon");
    EXPECT(is(without.lr, 5e-3) && without.hyper.at("muon-lr") == 0.02 && without.rate_note.empty(), "without --init");
    // A resumed run has the rate it began with, whatever chose it.
    const Options again = resumed("", options_to_json(with_init("", 384)));
    EXPECT(is(again.lr, 6e-5) && again.rate_note.empty(), "resumed: %g", again.lr);
}

TEST(saved_config_round_trip) {
    const Words without = {"replicas", "resume", "task", "perplexity", "stride"};  // the last three are of eval
    Words args;
    for (const Sample& s : samples)
        if (s.name == "total-batch-size") args.push_back("--total-batch-size=49000");  // of 7 x 1000: one replica
        else if (!contains(without, s.name)) args.push_back("--" + s.name + "=" + s.value());
    Options o = parse(args);
    resolve_options(&o, false);
    // A fresh process that resumes: everything but the local options comes back, to the last bit.
    const Options again = resumed("--threads 5", options_to_json(o), true);  // the device changes nothing that is saved
    EXPECT(options_identity(again) == options_identity(o), "\n%s\n%s", options_to_json(again).c_str(),
           options_to_json(o).c_str());
    EXPECT(again.threads == 5 && again.np == 0 && again.out_dir.empty() && !again.force && again.timeout == 60);
    EXPECT_EQ(again.changed, Words());
}

TEST(resume_with_other_options) {
    const std::string json = options_to_json(resolve_line("--steps 100 --seed 7"));
    const auto resume = [&](const std::string& line) { return resumed(line, json); };
    EXPECT(resume("--seed 7 --replicas 8 --total-batch-size 4096").changed.empty(), "the same values are fine");
    expect_error(kExitUsage,
                 "--resume: runs/a/config.json: --batch-size: got 4, the run has 2, --seed: got 8, the run has 7; "
                 "a resume keeps what the run has", [&] { resume("--seed 8 --batch-size 4"); });
    for (const char* line : {"--layers 5", "--heads 2", "--channels 256", "--seq-len 128", "--vocab-size 7",
                             "--dropout 0.5", "--init x", "--tokenizer char", "--sampler torch", "--rows masked",
                             "--batch-size 1", "--total-batch-size 8192", "--replicas 4", "--seed 8", "--dtype bf16",
                             "--preset small"})
        expect_error(kExitUsage, "the run has", [&] { resume(line); });
    // What the config of an older version lacks has its default.
    std::string older = json;
    for (const char* key : {"\"rows\"", "\"loss\""}) {
        const size_t at = older.find(key);
        older.erase(at, older.find('\n', at) + 1 - at);
    }
    EXPECT(resumed("--rows join --loss cross-entropy", older).changed.empty(), "the default is fine");
    EXPECT_EQ(resumed("", older).rows, "join");
    expect_error(kExitUsage, "--rows: got masked, the run has join", [&] { resumed("--rows masked", older); });
    EXPECT_EQ(resumed("--loss z-loss", older).changed, Words{"--loss: got z-loss, the run has cross-entropy"});
    const Options longer = resume("--steps 200 --lr 1e-3 --eval-every 5");
    EXPECT(longer.steps == 200 && longer.lr == 1e-3 && longer.eval_every == 5 && longer.warmup_steps == 10);
    EXPECT_EQ(longer.changed, Words{"--steps: got 200, the run has 100", "--lr: got 0.001, the run has 0.005"});
    for (const char* line : {"--weight-decay 0.2", "--beta1 0.8", "--beta2 0.9", "--eps 1e-6", "--grad-clip 2",
                             "--final-lr-frac 0.5"}) {
        const Options o = resume(line);
        EXPECT(o.changed.size() == 1 && options_to_json(o) != options_to_json(resume("")), "%s: %zu changes", line,
               o.changed.size());
    }
    expect_error(kExitUsage, "--warmup-steps", [&] { resume("--steps 5"); });
    // sample and eval take what they are given and the rest from the run.
    Options eval = parse_line("eval runs/a --data other.txt");
    options_merge_saved(&eval, json, "config.json");
    EXPECT(eval.data == "other.txt" && eval.seed == 7 && eval.shape.L == 4, "eval");
}

// An option of an order says which samples the steps before have seen; those of the other lists may change.
TEST(resume_with_other_options_of_a_row) {
    for (const Choice& list : all_choices()) {
        const Row row(list.option);
        const std::string chosen = list.hyper[0].first, line = "--" + list.option + " " + chosen + " --share 0.7";
        const Lent lent(list, chosen, "share");
        const std::string json = options_to_json(resolve_line(line));
        EXPECT(resumed("--share 0.7", json).changed.empty(), "the same value is fine");
        EXPECT_EQ(json_of(resumed("", json), "share"), "0.7");
        if (list.option == "sampler")
            expect_error(kExitUsage, "--share: got 0.6, the run has 0.7", [&] { resumed("--share 0.6", json); });
        else EXPECT_EQ(resumed("--share 0.6", json).changed, Words{"--share: got 0.6, the run has 0.7"});
        const std::pair<std::string, std::string> field = {"share", "0.7"};
        const Options o = resumed("", json);
        EXPECT_EQ(std::ranges::count(options_identity(o), field), 1);
        EXPECT_EQ(std::ranges::count(options_identity(o, true), field), list.option == "sampler");
    }
}

// The rows of a list may share an option. Two lists may not, nor a list and the options of all runs: its value would be
// that of both.
TEST(an_option_is_in_one_list) {
    Options o;
    const std::vector<Option> all = option_table(&o);
    const auto is_refused = [&](const std::string& name) {
        expect_error(kExitOther, "--" + name + ": got it in two lists", [&] { option_table(&o); });
    };
    for (const Choice& list : all_choices()) {
        const std::string first = list.hyper.front().first, last = list.hyper.back().first;
        {
            const Lent one(list, first, "share"), two(list, last, "share");
            EXPECT_EQ(option_table(&o).size(), all.size() + 1);
            for (const Choice& other : all_choices()) {
                const Lent three(other, other.hyper[0].first, "share");
                if (&other != &list) is_refused("share");
            }
        }
        for (const Option& option : all) {
            const Row row(list.option + " " + option.name);
            const Lent lent(list, first, option.name.c_str());
            if (option.chosen != &(o.*list.chosen)) is_refused(option.name);
        }
    }
    auto& key = const_cast<ShapeKey&>(all_models()[0]->keys[0]);
    const ShapeKey before = key;
    for (const Option& option : all) {
        key.option = option.name.c_str();
        if (option.chosen != &o.model) is_refused(option.name);
    }
    key = before;
}

TEST(hostile_config) {
    const auto merge = [](const std::string& json) { return resumed("", json); };
    EXPECT(merge("{}").shape.L == 4, "nothing saved: the preset");
    EXPECT(merge("{\"layers\": 0, \"heads\": 0, \"channels\": 0}").shape.L == 4, "unset values stay unset");
    EXPECT(merge("{\"unknown\": [1], \"lr\": 0.5}").lr == 0.5, "other keys are not ours");
    for (const char* bad : {"", "[1]", "{\"layers\": -1}", "{\"layers\": 1.5}", "{\"layers\": \"4\"}",
          "{\"layers\": null}", "{\"layers\": 1e99}", "{\"lr\": -1}", "{\"lr\": true}", "{\"overlap\": 1}",
          "{\"overlap\": \"on\"}", "{\"preset\": \"x\"}", "{\"seed\": 18446744073709551616}", "{\"schedule\": \"\"}",
          "{\"layers\": {}}", "{\"data\": [\"x\"]}"})
        expect_refusals(kExitBadContent, {{bad, "config.json"}}, merge);
    expect_error(kExitBadContent, "heads: got 2000000000", [&] { merge("{\"heads\": 2000000000}"); });
    expect_error(kExitUsage, "--heads", [&] { merge("{\"heads\": 3}"); });
}

// What all ranks and a resumed run agree on does not depend on the place, the machine or the ranks.
TEST(identity) {
    Options o = resolve_line("--steps 10"), with_blank = o, elsewhere = o;
    with_blank.data = "a b=c.txt";
    EXPECT(std::ranges::count(options_identity(with_blank), std::pair<std::string, std::string>{"data", "a b=c.txt"}) ==
               1, "the value as it is");
    elsewhere.threads = 3, elsewhere.np = 4, elsewhere.out_dir = "z", elsewhere.resume = "x", elsewhere.timeout = 1,
    elsewhere.device = "gpu", elsewhere.verbose = true;
    EXPECT(options_identity(o) == options_identity(elsewhere) && options_to_json(o) != options_to_json(elsewhere));
    for (const char* line : {"--steps 11", "--steps 10 --seed 1", "--steps 10 --lr 1", "--steps 10 --eval-every 3",
                             "--steps 10 --overlap off"})
        EXPECT(options_identity(o) != options_identity(resolve_line(line)), "%s", line);
}

// 20,000 random argument vectors: success or Error 2, nothing else, and what resolves passes its own checks.
TEST(random_arguments) {
    const Words names = option_names(), values = {
        "0", "1", "2", "3", "8", "-1", "64", "1024", "1e3", "1e400", "512k", "2M", "2147483647", "2147483648",
        "18446744073709551615", "0.5", "1e-30", "nan", "", "-", "--", "auto", "off", "cpu", "wsd", "bpe:3", "=", "a=b",
        "\xff\xfe", "\n", "x", "nano", "gpt2-124m", "sample", "eval", "train", "--help="};
    std::mt19937 generator(12345);
    const auto random = [&](size_t n) { return generator() % n; };
    int resolved = 0, errors = 0;
    for (int round = 0; round < 20000; round++) {
        Words args;
        for (size_t k = random(6); k > 0; k--) {
            std::string name = (random(8) ? "--" : random(2) ? "-" : "--no-") + names[random(names.size())];
            if (random(10) == 0) name[random(name.size())] = char(random(256));
            if (random(20) == 0) name = values[random(values.size())];
            const std::string value = values[random(values.size())];
            if (random(2)) args.push_back(name + "=" + value);
            else {
                args.push_back(name);
                if (random(4)) args.push_back(value);
            }
        }
        bool asks = false;  // these print; they have their own test
        for (std::string& a : args) {
            asks |= a == "--help" || a == "-h" || a == "--version";
            a = a.c_str();
        }  // argv ends at a NUL
        if (asks) continue;
        try {
            Options o = parse(args);
            resolve_options(&o, random(2));
            if (o.command == "train")
                EXPECT(o.shape.C % o.shape.NH == 0 && o.total_batch_size % (int64_t(o.batch_size) * o.shape.T) == 0 &&
                           o.replicas >= 1, "round %d", round);
            Options again = parse({"--resume"});
            options_merge_saved(&again, options_to_json(o), "config.json");
            resolved++;
        } catch (const Error& e) {
            EXPECT(e.code == kExitUsage, "round %d: error %d: %s", round, e.code, e.message.c_str());
            errors++;
        }
    }
    EXPECT(resolved > 500 && errors > 5000, "%d resolved, %d errors: the test reaches too little", resolved, errors);
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
