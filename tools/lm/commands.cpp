// commands.cpp -- see commands.h.
#include "tools/lm/commands.h"
#include <algorithm>
#include <map>
#include <strings.h>
#include "src/base/file.h"
#include "src/base/words.h"
#include "src/run/run.h"
#include "tools/tool.h"

// The commands of lm, and the options that each takes.
static const std::map<std::string, std::string> kTakes = {
    {"sample", "device dtype threads seed prompt special-tokens samples temperature top-k top-p max-tokens"},
    {"chat", "device dtype threads seed system chat-template temperature top-k top-p max-tokens"},
    {"eval", "device dtype threads data rows skip-bad-lines special-tokens tokenizer chat-template batch-size seq-len "
             "task perplexity stride np"}};

bool merge_options_of(const std::string& path, Options* options) {
    const std::string run = run_of(path), config = path_join(run, "config.json");
    if (run.empty() || !file_exists(config)) return false;
    options_merge_saved(options, read_file(config), config);
    return true;
}

Options parse_command(int argc, const char* const* argv) {
    Options o = read_command(argc, argv);
    if (o.command == "help" || o.command == "version") return o;
    if (o.command == "train")
        die(kExitUsage, "command: got %s, want sample, chat or eval OUT; train_gpt trains",
            contains(o.argv, "train") ? "train" : "none");
    const auto takes = kTakes.find(o.command);
    if (takes == kTakes.end())
        die(kExitUsage, "unknown command %s; want sample, chat or eval OUT", shown(o.command).c_str());
    const auto& [command, options] = *takes;
    for (const std::string& given : o.given)
        if (!contains(split(options), given))
            die(kExitUsage, "--%s: has no effect on %s, which takes %s", given.c_str(), command.c_str(),
                options.c_str());
    if (o.paths.size() != 1)
        die(kExitUsage, "%s: got %zu words, want one, the folder of a run or checkpoint, as runs/last%s",
            command.c_str(), o.paths.size(),
            o.paths.empty() ? "" : "; a text goes with --prompt, a value with blanks needs quotes");
    return o;
}

static std::string head_of_lm() {
    return format("lm %s: runs models that train_gpt has trained; train_gpt sample, chat and eval become it.\n\n",
                  version_text()) +
           "  lm sample OUT [options]    write text; OUT is a run or a checkpoint folder\n"
           "  lm chat OUT [options]      a conversation; Ctrl-C stops an answer, Ctrl-D ends it\n"
           "  lm eval OUT [options]      loss over the run's whole validation text, or over --data\n"
           "  mpirun -np 8 lm eval OUT   8 ranks; so do torchrun, srun, and --np 8 without any of them\n\n"
           "Data, tokenizer, batch and context are the run's, unless others are given.\n";
}

static std::string head_of_trainer(const std::string& preset) {
    return format("train_gpt %s: trains language models, the same bits on any number of ranks.\n\n", version_text()) +
           "  train_gpt [options]               train; without options this machine's preset on a built-in text\n"
           "  train_gpt sample OUT [options]    write text; OUT is a run or a checkpoint folder\n"
           "  train_gpt chat OUT [options]      a conversation; Ctrl-C stops an answer, Ctrl-D ends it\n"
           "  train_gpt eval OUT [options]      loss over the run's whole validation text, or over --data\n"
           "  mpirun -np 8 train_gpt ...        8 ranks; so do torchrun, srun, and --np 8 without any of them\n"
           "  train_gpt help data               these options alone: model, data, optimisation, system, ...\n\n"
           "--seq-len 64, --seq-len=64 and --seq_len 64 are the same; 512k = 512000.\n"
           "Defaults are those of --preset " + preset +
           "; see also --help with --preset, --model, --optimizer, --reduce or --device gpu.\n";
}

static bool has_option(const std::string& name) {
    return std::ranges::any_of(kTakes, [&](const auto& command) { return contains(split(command.second), name); });
}

std::string help_text(const Options& asked, bool of_lm) {
    Options o;
    for (const auto choice :
         {&Options::model, &Options::preset, &Options::optimizer, &Options::schedule, &Options::reduce})
        o.*choice = asked.*choice;
    if (of_lm) o.tokenizer = "";                        // it is the run's
    else resolve_options(&o, asked.device == "gpu");
    const bool all = asked.paths.empty() || asked.paths[0] == "train" || kTakes.contains(asked.paths[0]);
    const std::string topic = all ? "" : asked.paths[0];
    std::string text, group;
    Words groups;
    for (const Option& option : option_table(&o)) {
        if (!contains(groups, option.group)) groups.push_back(option.group);
        if (strncasecmp(option.group, topic.c_str(), topic.size()) != 0) continue;
        if (of_lm && !has_option(option.name)) continue;
        if (group != option.group) text += format("\n%s\n", (group = option.group).c_str());
        const std::string owners = option.owners.empty() ? "" : " (of " + join(option.owners, ", ") + ")";
        text += help_line(option, option.help + owners, 28, option.applies());
    }
    if (group.empty())
        die(kExitUsage, "help: got %s, want one of %s", shown(topic).c_str(), join(groups, ", ").c_str());
    if (!topic.empty()) return text.substr(1);
    return (of_lm ? head_of_lm() : head_of_trainer(o.preset)) + text +
           "\nExit codes: 0 done, 2 usage, 65 bad content of a file, 66 missing input, 69 a rank is lost,\n"
           "74 a write failed, 75 stopped on request and saved, 80 replicas disagree, 1 anything else.\n";
}
