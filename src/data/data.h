// data.h -- datasets of tokens, from text, jsonl, .npy, llm.c shards or nanoGPT bins, one file or many.
//
// Sample i of a shard has the T tokens from i*T on as inputs, and those from i*T+1 on as targets. A shard has
// floor((tokens - 1) / T) samples. Documents (lines of a .jsonl, files of a folder of texts) are joined, each behind an
// end-of-text token; a single text has none. Validation is val_data, else what take_validation finds in `data`, else
// the last tenth: of one text's characters, of token files' tokens, or the documents that begin in the last tenth of
// the bytes, at least one.
//
// A conversation (chat.h) is a sample of its own: it is filled up or cut to T tokens. The target -1 is not trained on.
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

// Files that stay open while a run reads them.
struct Content {
    InputFiles files;
    uint64_t hash = 0;                  // at the start; 0: another rank of this host looks after them
};

struct Dataset {
    std::vector<Shard> shards = {};
    std::vector<uint64_t> first = {};   // number of each shard's first sample, and the total at the end
    int T = 0;
    uint64_t samples = 0, tokens = 0;
    std::string hash = {};              // identifies the tokens; hexadecimal
    std::shared_ptr<Content> content = {};  // what the shards are read from; null: memory
    std::string description = {};       // "my.txt: 108 training and 12 validation tokens"

    // Copies T inputs and T targets of sample i < samples. kExitBadContent: a bad token, a file cut short. Any thread.
    void sample(uint64_t i, int* inputs, int* targets, int vocab_size) const;
    uint64_t trained(uint64_t i, int vocab_size) const;     // how many targets are not -1
};

struct DataOptions {
    std::string data, val_data;             // paths; empty: the built-in stories
    std::string tokenizer;                  // as --tokenizer; empty: init_tokenizer, else byte for text
    std::string init_tokenizer, init_path;  // text and path of tokenizer.json of the model to start from, or empty
    std::string chat_template, init_chat;   // as --chat-template; that model's template
    int init_vocab = 0, vocab_size = 0;     // that model's; --vocab-size; or 0
    bool frozen = false;                    // that model's embedding stays as it is: no token can be added
    bool init_eot = false;                  // its texts may begin with end-of-text
    int seq_len = 0;                        // T
    bool evaluates = true;                  // false: the validation part may be empty
};
// Multiple-choice questions (src/app/tasks.h).
struct Task {
    struct Row { std::vector<int> tokens; int scored; };        // a text, and how many tokens at its end are scored
    // A question: the row of its first ending, the number of the right one, the length of each.
    struct Item { size_t first; int label; std::vector<size_t> characters; };
    std::string name;                       // the file's, without .jsonl
    std::vector<Row> rows;                  // each a context and one ending
    std::vector<Item> items;
};
struct Data {
    Dataset train, val;
    Tokenizer tokenizer;                    // kind none when tokens have no text
    ChatTemplate chat;                      // form null: no conversations
    int vocab_size = 0;
    Task task;                              // questions of --task; without it there are none
};
// kExitBadContent if files that are open have been written to and are not what they were at the start: a save would be
// of other data than it says. What replaces one of them under its name does not count: the open one stays what it was.
void check_unchanged(const Data& data);

// Text is tokenised once per host, into memory its ranks share. Collective; comm null: one process. Throws kExitUsage,
// kExitBadContent, kExitNoInput.
Data open_data(const DataOptions& options, Comm* comm);

// All of a path as one dataset, with a known tokenizer. chat_template, jinja: see choose_chat_template. Collective.
Dataset open_dataset(const std::string& path, const Tokenizer& tokenizer, int T, Comm* comm,
                     const std::string& chat_template = "auto", const std::string& jinja = "");

// Prepares the batches of the next step in the background.
struct BatchLoader {
    struct Batch { std::vector<int> tokens, targets; };         // (B,T)
    // Micro-batches [first_batch, last_batch) of every step from first_step on. data must outlive the loader.
    BatchLoader(const Dataset& data, const Sampler& sampler, int vocab_size, int first_batch, int last_batch,
                uint64_t first_step);
    const Batch& next();                                        // this rank's next one; valid until the next call
    uint64_t step_targets() const { return given.targets; }     // trained targets of that step, over all ranks
    Batch micro_batch(uint64_t step, int micro_batch) const;    // makes any one at once, for the audit
  private:
    struct Step { std::vector<Batch> batches; uint64_t targets = 0; };
    Batch make(const Sampler& order, uint64_t step, int micro_batch) const;
    std::shared_future<Step> prepare();
    const Dataset& data;
    const Sampler sampler, audit;                               // for the thread of prepare(); for micro_batch()
    const int vocab_size, first_batch, last_batch;
    uint64_t step;                                              // the next one to prepare
    Step given;                                                 // from which next() takes
    size_t taken = 0;                                           // how many of them next() gave
    std::shared_future<Step> coming;                            // the step after it
};
