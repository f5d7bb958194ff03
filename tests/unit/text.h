// text.h -- opens texts in a test's own process, which does the work of build/prep.
#pragma once
#include "src/data/data.h"
#include "tools/text/prepare.h"
#include "tests/test.h"

inline const std::string& test_cache() {
    static const Folder folder;
    return folder.path;
}

// Data, and what build/prep chose for them.
struct Opened : Data {
    Tokenizer tokenizer;
    ChatTemplate chat;
};
[[maybe_unused]] static Opened open_text(const TextOptions& o, bool evaluates = true) {
    const auto nothing = [] {};
    Opened opened = {read_data(prepare(o, test_cache(), nothing), o.seq_len), {}, {}};
    require_samples(opened, evaluates);
    TextOptions first = o;
    first.data = find_mixture(o.data)[0].path;
    const TextChoice choice = choose_text(first, test_cache(), nothing);
    opened.tokenizer = choice.tokenizer;
    opened.chat = choice.chat;
    return opened;
}
// Opens all of a path as one dataset.
[[maybe_unused]] static Dataset open_whole(const std::string& path, const Tokenizer& tokenizer, int T) {
    TextOptions o = {.data = path, .init = {.config = "{}"}, .seq_len = T, .whole = true};
    if (tokenizer.kind == Tokenizer::none) o.vocab_size = 1 << 24;
    else o.init.tokenizer = tokenizer.to_json();
    o.init_vocab = tokenizer.vocab_size;
    const Data data = read_data(prepare(o, test_cache(), [] {}), T);
    require_samples(data, true);
    return data.val;
}
