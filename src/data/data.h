// data.h -- datasets of tokens: from text, jsonl, .npy, llm.c shards or nanoGPT bins, one file or many.
//
// Sample i of a shard is tokens [i*T, i*T+T], targets shifted by one; N = floor((tokens - 1) / T) per shard. Documents
// (lines of a .jsonl, files of a folder of texts) are joined, each behind an end-of-text token; a single text is one
// stream without that token. Validation is val_data, else what take_validation finds in `data`, else the last tenth: of
// one text its characters, of token files their tokens, of documents those that begin in the last tenth of the bytes or
// the last.
//
// A conversation (chat.h) is a sample of its own, filled up to T tokens; what is longer is cut. The target of a token
// that is not trained on is -1.
#pragma once
#include <cstdint>
#include <future>
#include <string>
#include <vector>
#include "src/comm/comm.h"
#include "src/data/chat.h"
#include "src/data/sampler.h"
#include "src/data/shards.h"
#include "src/data/tokenizer.h"

struct Dataset {
    std::vector<Shard> shards;
    std::vector<uint64_t> first;        // number of each shard's first sample, and the total at the end
    int T = 0;
    uint64_t samples = 0, tokens = 0;
    std::string hash;                   // identity of the tokens: hex
    std::string description;            // "my.txt: 108 training and 12 validation tokens"

    // Copies T inputs and T targets of sample i < samples. 65: a bad token, a file cut short. Safe from any thread.
    void sample(uint64_t i, int* inputs, int* targets, int vocab_size) const;
    uint64_t trained(uint64_t i, int vocab_size) const;     // its targets that are not -1
};

struct DataOptions {
    std::string data, val_data;             // paths; empty: the built-in stories
    std::string tokenizer;                  // as --tokenizer; empty: init_tokenizer, else byte for text
    std::string init_tokenizer, init_path;  // text and path of tokenizer.json of the model to start from, or empty
    std::string chat_template, init_chat;   // as --chat-template; that model's template
    int init_vocab = 0, vocab_size = 0;     // that model's; --vocab-size; or 0
    bool init_eot = false;                  // that model may know its end-of-text token
    int seq_len = 0;                        // T
    bool evaluates = true;                  // false: the validation part may be empty
};
struct Data {
    Dataset train, val;
    Tokenizer tokenizer;                    // kind none when tokens have no text
    ChatTemplate chat;                      // of conversations; without a form the data are none
    int vocab_size = 0;
};
// Text is tokenised once per host, into memory its ranks share. Collective; comm null: one process. Errors 2, 65, 66.
Data open_data(const DataOptions& options, Comm* comm);

// All of a path as one dataset, with a known tokenizer; of conversations, as choose_chat_template. Collective.
Dataset open_dataset(const std::string& path, const Tokenizer& tokenizer, int T, Comm* comm,
                     const std::string& chat_template = "auto", const std::string& jinja = "");

// Prepares the batches of the next step in the background.
struct BatchLoader {
    struct Batch { std::vector<int> tokens, targets; };         // (B,T)
    // Micro-batches [first_batch, last_batch) of every step from first_step on. data must outlive the loader.
    BatchLoader(const Dataset& data, const Sampler& sampler, int vocab_size, int first_batch, int last_batch,
                uint64_t first_step);
    const Batch& next();                                        // in program order; valid until the next call
    uint64_t step_targets() const { return given.targets; }     // of all ranks, in the step that next() was of
    Batch micro_batch(uint64_t step, int micro_batch) const;    // any one, at once: for the audit
  private:
    struct Step { std::vector<Batch> batches; uint64_t targets = 0; };
    Batch make(const Sampler& order, uint64_t step, int micro_batch) const;
    std::shared_future<Step> prepare();
    const Dataset& data;
    const Sampler sampler, audit;                               // one thread each; audit is micro_batch()'s
    const int vocab_size, first_batch, last_batch;
    uint64_t step;                                              // the next to prepare
    Step given;
    size_t taken = 0;                                           // of its batches
    std::shared_future<Step> coming;                            // the next
};
