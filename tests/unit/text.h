// text.h -- opens texts in a test's own process: ask_prep here takes the place of the one that runs build/prep.
#pragma once
#include "src/data/prepared.h"
#include "tools/text/prepare.h"
#include "tests/unit/folder.h"

inline const std::string& test_cache() {
    static const Folder folder;
    return folder.path;
}
std::string ask_prep(const std::string& request, const std::function<void()>& progress) {
    return prepare(parse_data_request(request), test_cache(), [&] { progress(); });
}

// Data, and what build/prep chose for them.
struct Opened : Data {
    Tokenizer tokenizer;
    ChatTemplate chat;
};
[[maybe_unused]] static Opened open_text(const DataOptions& o, Comm* comm = nullptr) {
    Opened opened = {open_data(o, comm), {}, {}};
    const TextChoice choice = choose_text(o, test_cache(), [] {});
    opened.tokenizer = choice.tokenizer;
    opened.chat = choice.chat;
    return opened;
}
// Opens all of a path as one dataset.
[[maybe_unused]] static Dataset open_whole(const std::string& path, const Tokenizer& tokenizer, int T) {
    DataOptions o = {.data = path, .init = {.config = "{}"}, .seq_len = T, .whole = true};
    if (tokenizer.kind == Tokenizer::none) o.vocab_size = 1 << 24;
    else o.init.tokenizer = tokenizer.to_json();
    o.init_vocab = tokenizer.vocab_size;
    return open_data(o, nullptr).val;
}
