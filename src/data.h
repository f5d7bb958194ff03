// data.h -- token data: text, jsonl, .npy, llm.c shards, nanoGPT bins, one file or many, or the built-in stories; mapped, never read whole.
//
// Sample i of a shard is tokens [i*T, i*T+T], targets shifted by one; N = floor((tokens - 1) / T) per shard; shards in sorted order.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>
#include "comm.h"
#include "options.h"
#include "sampler.h"
#include "tokenizer.h"

struct Shard;                                   // a run of tokens: mapped or generated (data.cpp)

struct Dataset {
    std::vector<std::shared_ptr<Shard>> shards;
    std::vector<uint64_t> first;                // number of each shard's first sample, and the total at the end
    int T = 0;
    uint64_t samples = 0;                       // N
    uint64_t tokens = 0;
    uint64_t bytes = 0;                         // of raw text; 0 = unknown (no bits per byte)
    std::string hash;                           // identity of the content: hex
    std::string description;                    // "my.txt, 1,115,394 bytes"
    double floor_bits_per_byte = 0;             // the stories' entropy; 0 = unknown
    bool stories = false;

    // T inputs and T targets of sample i < samples. Error 65 with file and position if a token is >= vocab_size.
    void sample(uint64_t i, int* inputs, int* targets, int vocab_size) const;
};

struct Data {
    Dataset train, val;
    Tokenizer tokenizer;                        // kind none when tokens have no text
    int vocab_size = 0;
};
// Opens --data, --val-data, --tokenizer as options say (resolved). Text is tokenised once per host, into memory its ranks share.
// `init_tokenizer`: tokenizer.json of --init, or empty; init_vocab: its vocabulary size, or 0.
Data open_data(const Options& options, Comm* comm, const std::string& init_tokenizer, int init_vocab);

// A dataset of any --data path for `eval`, with a tokenizer already known.
Dataset open_dataset(const std::string& path, const Tokenizer& tokenizer, int T, Comm* comm);

// Prepares leaves in the background: next() returns the batch of the next leaf in program order and starts on the one after.
struct BatchLoader {
    struct Batch { std::vector<int> tokens, targets; };          // (B,T)
    // Leaves [leaf_begin, leaf_end) of every step from first_step on.
    BatchLoader(const Dataset& data, const Sampler& sampler, int vocab_size, int leaf_begin, int leaf_end, uint64_t first_step);
    ~BatchLoader();
    const Batch& next();                                         // valid until the next call; throws what the thread met
    Batch leaf(uint64_t step, int leaf) const;                   // any leaf, at once: for the audit
  private:
    void run();
    const Dataset& data; Sampler sampler; int vocab_size, leaf_begin, leaf_end; uint64_t step; int at;
    Batch slots[3];
    int filled = 0, taken = 0; bool stop = false; std::string error; int error_code = 0;
    std::mutex mutex; std::condition_variable changed; std::thread thread;
};
