// prepared.h -- the messages between the trainer and build/prep. The trainer sends DataOptions, and build/prep answers
// with folders in a cache: the tokens of each text, and the vocabulary. A message is JSON on one line.
#pragma once
#include <functional>
#include <string>
#include <vector>
#include "src/base/json.h"
#include "src/data/data.h"
#include "src/data/shards.h"

// These convert a list of numbers to JSON and back. parse_list skips all but whole numbers >= 0.
template <class T> std::string json_list(const std::vector<T>& numbers) {
    std::string list = "[";
    for (const T n : numbers) list += (list.size() > 1 ? "," : "") + std::to_string(n);
    return list + "]";
}

template <class T> std::vector<T> parse_list(const Json& json) {
    std::vector<T> list;
    uint64_t n = 0;
    for (JsonItems i(json); i.next();)
        if (i.value.as_u64(&n)) list.push_back(T(n));
    return list;
}

std::string data_request(const DataOptions& options);
DataOptions parse_data_request(const std::string& request);         // an option that it lacks has its default

struct PrepAnswer {
    std::string train = {}, val = {}, vocabulary = {};  // folders; "": there is none, as for token files
    std::vector<std::string> train_files = {}, val_files = {};  // token files; with no `val` at all train is split
    std::string files = {};                 // "; training: a.txt, b.txt; validation: valid.txt; not taken: test.txt"
    std::vector<int> start = {};            // Data::start
    Task task = {};
};
// Returns the message. The answer's folders are names of folders inside `folder`.
std::string prep_answer(const PrepAnswer& answer, const std::string& folder);
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
