// commands.cpp -- the command line of lm: its commands, the options that each takes, and how --help begins.
#include "tools/lm/commands.h"
#include <algorithm>
#include <map>
#include "src/base/words.h"

static const std::map<std::string, std::string> kTakes = {
    {"sample", "device dtype threads seed prompt special-tokens samples temperature top-k top-p max-tokens"},
    {"chat", "device dtype threads seed system chat-template temperature top-k top-p max-tokens"},
    {"eval", "device dtype threads data skip-bad-lines special-tokens tokenizer chat-template batch-size seq-len task "
             "perplexity stride np"}};

static bool has_option(const std::string& option) {
    return std::ranges::any_of(kTakes, [&](const auto& command) { return contains(split(command.second), option); });
}

static std::string help_head(Options* options, bool) {
    options->tokenizer = "";                            // the run's
    return format("lm %s: runs models that train_gpt has trained; train_gpt sample, chat and eval become it.\n\n",
                  version_text()) +
           "  lm sample OUT [options]    write text; OUT is a run or a checkpoint folder\n"
           "  lm chat OUT [options]      a conversation; Ctrl-C stops an answer, Ctrl-D ends it\n"
           "  lm eval OUT [options]      loss over the run's whole validation text, or over --data\n"
           "  mpirun -np 8 lm eval OUT   8 ranks; so do torchrun, srun, and --np 8 without any of them\n\n"
           "Data, tokenizer, batch and context are the run's, unless others are given.\n";
}

// Refuses options that the command would ignore.
static void take_command(Options* options, const Words& words) {
    const std::string command = words.empty() ? "train" : words[0];
    if (command == "train")
        die(kExitUsage, "command: got %s, want sample, chat or eval OUT; train_gpt trains",
            words.empty() ? "none" : "train");
    const auto takes = kTakes.find(command);
    if (takes == kTakes.end())
        die(kExitUsage, "unknown command %s; want sample, chat or eval OUT", shown(command).c_str());
    for (const std::string& given : options->given)
        if (!contains(split(takes->second), given))
            die(kExitUsage, "--%s: has no effect on %s, which takes %s", given.c_str(), command.c_str(),
                takes->second.c_str());
    if (words.size() != 2)
        die(kExitUsage, "%s: got %zu words, want one, the folder of a run or checkpoint, as runs/last%s",
            command.c_str(), words.size() - 1,
            words.size() > 2 ? "; a text goes with --prompt, a value with blanks needs quotes" : "");
    options->command = command;
    options->paths = {words[1]};
}

const Program kLm = {"lm", help_head, has_option, take_command};
