// prepared.h -- the messages between the trainer and build/prep. The trainer sends DataOptions, and build/prep answers
// with folders in a cache: the tokens of each text, and the vocabulary. A message is JSON on one line. What build/prep
// does with messages is in tools/text/answer.cpp.
#pragma once
#include <functional>
#include <string>
#include <vector>
#include "src/base/json.h"
#include "src/data/data.h"
#include "src/data/shards.h"

// Skips all but whole numbers >= 0.
template <class T> std::vector<T> parse_list(const Json& json) {
    std::vector<T> list;
    uint64_t n = 0;
    for (JsonItems i(json); i.next();)
        if (i.value.as_u64(&n)) list.push_back(T(n));
    return list;
}

// Calls f(name, field) for every field of DataOptions.
template <class O, class F> void each_option(O& o, const F& f) {
    f("data", o.data);
    f("val_data", o.val_data);
    f("tokenizer", o.tokenizer);
    f("chat_template", o.chat_template);
    f("init_path", o.init_path);
    for (const auto& [name, text] : kModelTexts) f(name, o.init.*text);
    f("init_weights", o.init_weights);
    f("prompt", o.prompt);
    f("task", o.task);
    f("cache", o.cache);
    f("init_vocab", o.init_vocab);
    f("vocab_size", o.vocab_size);
    f("seq_len", o.seq_len);
    f("skip_bad_lines", o.skip_bad_lines);
    f("special_tokens", o.special_tokens);
    f("frozen_by", o.frozen_by);
    f("whole", o.whole);
    f("evaluates", o.evaluates);
    f("says", o.says);
}

std::string data_request(const DataOptions& options);

struct PrepAnswer {
    std::string train = {}, val = {}, vocabulary = {};  // folders; "": there is none, as for token files
    std::vector<std::string> train_files = {}, val_files = {};  // token files; with no `val` at all train is split
    std::string files = {};                 // "; training: a.txt, b.txt; validation: valid.txt; not taken: test.txt"
    std::vector<int> start = {};            // Data::start
    Task task = {};
};
// Reads the message and makes paths of its folders. folder: the folder that they are in; "": the one in the message.
PrepAnswer parse_prep_answer(const std::string& answer, const std::string& folder);

// Runs build/prep and returns its answer. Calls progress() meanwhile. Throws its error; kExitNoInput if it is missing.
std::string ask_prep(const std::string& request, const std::function<void()>& progress);

// The tokens of a text, training tokens first. They are in a folder, which is complete or does not exist:
//
//     tokens.bin   unsigned, little-endian
//     tokens.json  this struct
struct PreparedTokens {
    uint64_t count = 0, cut = 0;            // number of tokens; the first token of validation
    uint64_t width = 2;                     // bytes of a token: 2 or 4
    bool masked = false;                    // some tokens have the bit kUntrained
    std::string train_hash = "", val_hash = "";     // data_hash of the tokens before the cut and from the cut on
    std::string note = "";                  // for the console: statistics of conversations
};
PreparedTokens read_prepared(const std::string& folder);    // kExitNoInput, kExitBadContent
// Returns the hash that identifies a dataset. content: describes its files and tokenizer, and has " begin+count" for
// its tokens in each shard.
std::string data_hash(const std::string& content);
