// sample.cpp -- the command sample: continues --prompt.
#include <cstdio>
#include "tools/lm/lm.h"
#include "src/run/run.h"
#include "tools/text/text.h"

namespace BACKEND {

// whole: also the line end at its end, which a template has written.
static std::string read_standard_input(bool whole) {
    std::string text;
    for (int c; (c = std::getchar()) != EOF;) text += char(c);
    if (!whole && text.ends_with("\n")) text.pop_back();
    return text;
}

int sample(Options o, Comm*) {
    set_threads(o.threads);
    if (o.prompt == "-") o.prompt = read_standard_input(o.special_tokens);
    o.prompt = without_mark(o.prompt);
    Loaded loaded(o, 1, o.prompt.size() + size_t(o.max_tokens) + 2);       // a token has at least a byte
    if (!o.prompt.empty()) loaded.require_text("--prompt");
    else if (o.special_tokens) die(kExitUsage, "--special-tokens: want --prompt with it");
    catch_signals(false);
    print(o.prompt);
    const std::vector<int> start = sample_start(o.prompt, {}, loaded.tokenizer);
    if (const int T = loaded.model.T; start.size() > size_t(T))
        warn("--prompt: got %zu tokens, and the context is %d: its last %d are continued", start.size(), T, T);
    generate_text(&loaded.model, vocabulary_of(loaded.tokenizer, {}, ""), start, o, 0, print);
    print("\n");
    return kExitDone;
}

}  // namespace BACKEND
