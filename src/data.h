// data.h -- token data: text, jsonl, .npy, llm.c shards, nanoGPT bins, one file or many, or the built-in stories; read where they lie.
//
// Sample i of a shard is tokens [i*T, i*T+T], targets shifted by one; N = floor((tokens - 1) / T) per shard; shards in sorted order.
//
// Documents (the lines of a .jsonl, the files of a folder of texts) are joined, each behind an end-of-text token if the tokenizer
// has one; a single text is one stream. Attention sees across documents. Validation is, in this order:
//   --val-data; files named val, valid or validation among --data's ("fineweb_val_000000.bin"; "val.bin" beside a "train.bin");
//   of one text, the characters from number floor(0.9 n) on; of documents, those that begin in the last tenth of the bytes, at least
//   the last, so that every tokenizer has the same; of token files, the tokens from number floor(0.9 n) on.
#pragma once
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <vector>
#include "comm.h"
#include "options.h"
#include "sampler.h"
#include "tokenizer.h"

struct Shard;                                   // a run of tokens: in a file, in memory or generated (shards.h)

struct Dataset {
    std::vector<std::shared_ptr<Shard>> shards;
    std::vector<uint64_t> first;                // number of each shard's first sample, and the total at the end
    int T = 0;
    uint64_t samples = 0;                       // N
    uint64_t tokens = 0;
    uint64_t bytes = 0;                         // of raw text; 0 = unknown (token files, endless stories)
    std::string hash;                           // identity of the tokens: hex
    std::string description;                    // "my.txt, 1,115,394 bytes: 1,003,854 training and 111,540 validation tokens"
    double floor_bits_per_byte = 0;             // the stories' entropy; 0 = unknown
    bool stories = false;                       // sample i of whole slots starts with story i * T / kStorySlot

    // T inputs and T targets of sample i < samples. Error 65 with file and position if a token is >= vocab_size, or if the file
    // has been cut short. Safe from several threads.
    void sample(uint64_t i, int* inputs, int* targets, int vocab_size) const;
};

struct Data {
    Dataset train, val;                         // val is empty when the run never evaluates and there are too few tokens
    Tokenizer tokenizer;                        // kind none when tokens have no text
    int vocab_size = 0;
};
// Opens --data, --val-data, --tokenizer as options say (resolved). Text is tokenised once per host, into memory its ranks share;
// the byte tokenizer reads a single text as it lies. Collective; comm may be null: one process.
// `init_tokenizer`: tokenizer.json of --init, or empty; init_vocab: its vocabulary size, or 0.
Data open_data(const Options& options, Comm* comm, const std::string& init_tokenizer, int init_vocab);

// A dataset of all of a --data path for `eval`, with a tokenizer already known (text with kind none: Error 2). Collective.
Dataset open_dataset(const std::string& path, const Tokenizer& tokenizer, int T, Comm* comm);

// next() returns the batch of the next leaf in program order; those of the next step are prepared in the background meanwhile.
struct BatchLoader {
    struct Batch { std::vector<int> tokens, targets; };          // (B,T)
    // Leaves [leaf_begin, leaf_end) of every step from first_step on. data must outlive the loader.
    BatchLoader(const Dataset& data, const Sampler& sampler, int vocab_size, int leaf_begin, int leaf_end, uint64_t first_step);
    const Batch& next();                                         // valid until the next call; throws what the thread met
    Batch leaf(uint64_t step, int leaf) const;                   // any leaf, at once: for the audit
  private:
    Batch make(const Sampler& order, uint64_t step, int leaf) const;
    std::shared_future<std::vector<Batch>> prepare();
    const Dataset& data;
    const Sampler sampler, audit;                                // the background's, and the one of leaf(): samplers are not shared
    const int vocab_size, leaf_begin, leaf_end;
    uint64_t step;                                               // the next to prepare
    std::shared_future<std::vector<Batch>> given, coming;        // a step's leaves
    size_t taken = 0;                                            // of given
};
