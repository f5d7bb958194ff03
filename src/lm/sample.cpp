// sample.cpp -- the command sample: continues --prompt.
#include <cstdio>
#include "src/lm/lm.h"
#include "src/run/run.h"
#include "src/text/text.h"

namespace BACKEND {

static std::string read_standard_input() {
    std::string text;
    for (int c; (c = std::getchar()) != EOF;) text += char(c);
    if (text.ends_with("\n")) text.pop_back();
    return text;
}

int sample(Options o, Comm*) {
    set_threads(o.threads);
    if (o.prompt == "-") o.prompt = read_standard_input();
    o.prompt = without_mark(o.prompt);
    Loaded loaded(o.paths[0], 1, o.prompt.size() + size_t(o.max_tokens) + 2);       // a token has at least a byte
    if (!o.prompt.empty()) loaded.require_text("--prompt");
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
