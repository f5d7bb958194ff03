// prepared.h -- what the trainer and build/prep tell each other. The trainer sends DataOptions, and build/prep answers
// with folders in a cache: the tokens of each text, and the vocabulary. Both are JSON on one line.
#pragma once
#include <functional>
#include <string>
#include <vector>
#include "src/base/json.h"
#include "src/data/data.h"
#include "src/data/shards.h"

// A list of numbers as JSON, and back.
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
DataOptions parse_data_request(const std::string& request);         // options that it leaves out have their defaults

struct PrepAnswer {
    std::string train = {}, val = {}, vocabulary = {};  // folders; "": that part of the data is no text
    std::vector<std::string> train_files = {}, val_files = {};  // of tokens; without any val is a part of train
    std::string files = {};                 // "; training: a.txt, b.txt; validation: valid.txt; not taken: test.txt"
    std::vector<int> start = {};            // as in Data
    Task task = {};
};
// Writes an answer. Its folders are names in `folder`.
std::string prep_answer(const PrepAnswer& answer, const std::string& folder);
// Reads an answer, whose folders become paths. folder: where they are; "": as the answer says.
PrepAnswer parse_prep_answer(const std::string& answer, const std::string& folder);

// Asks build/prep. progress is called while it works. Throws its error; kExitNoInput: build/prep is missing.
std::string ask_prep(const std::string& request, const std::function<void()>& progress);

// Tokens of a text, with those for training first, in a folder that is complete or absent:
//
//     tokens.bin   unsigned, little-endian
//     tokens.json  this struct
struct PreparedTokens {
    uint64_t count = 0, cut = 0;            // tokens; where validation begins
    uint64_t width = 2;                     // bytes of a token: 2 or 4
    bool masked = false;                    // tokens that are not trained on have the bit kUntrained
    std::string train_hash = "", val_hash = "";     // data_hash of the tokens before and behind the cut
    std::string note = "";                  // statistics of conversations
};
void write_prepared(const PreparedTokens& about, const std::vector<char>& tokens, const std::string& folder);
PreparedTokens read_prepared(const std::string& folder);    // kExitNoInput, kExitBadContent
// Returns the hash that identifies a dataset. content: what its files and tokenizer are, and which tokens it has of
// each shard: " begin+count" for each.
std::string data_hash(const std::string& content);
