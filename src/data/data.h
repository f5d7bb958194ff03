// data.h -- datasets of tokens, from .npy, llm.c shards or nanoGPT bins, one file or many, or from text as build/prep
// prepares it.
//
// Sample i of a shard has the T tokens from i*T on as inputs, and those from i*T+1 on as targets. A shard has
// floor((tokens - 1) / T) samples. Documents (lines of a .jsonl, files of a folder of texts) are joined, with what the
// tokenizer puts before each and an end-of-text token behind. In this program's own tokenizers these are one token,
// which stands before each, and a single text has none. Another tokenizer's stands before a single text, too.
//
// The validation data are val_data, or else files of `data` with such names (src/text/sources.h), or else the last
// tenth of `data`: of the characters of a single text, of the tokens of token files, and of several documents those
// that begin in the last tenth of the bytes, at least one.
//
// Each conversation (src/text/chat.h) is one sample, padded or cut to T tokens. The loss ignores targets of -1.
#pragma once
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include "src/base/numbers.h"
#include "src/comm/comm.h"
#include "src/data/sampler.h"

struct InputFile;                       // src/base/file.h
using InputFiles = std::vector<std::shared_ptr<InputFile>>;

// This bit of a token of 4 bytes says that it is not trained on.
constexpr uint32_t kUntrained = 1u << 31;

// Consecutive tokens in a file.
struct Shard {
    size_t width = 2;                   // bytes of a token: 2, 4 or 8, unsigned, little-endian
    uint64_t begin = 0, tokens = 0;     // where they begin in the file; how many
    std::string name;                   // for messages
    std::shared_ptr<InputFile> file = {};
    uint64_t offset = 0;                // where the file's first token begins, in bytes
    bool masked = false;                // tokens that are not trained on have the bit kUntrained

    // Reads tokens [first, first + n) with their bit kUntrained; safe from any thread. kExitBadContent: one is not
    // below vocab_size.
    void read(uint64_t first, size_t n, int* out, int vocab_size) const;
};

// Files that stay open while a run reads them.
struct Content {
    InputFiles files;
    uint64_t hash = 0;                  // at the start; 0: another rank of this host checks them
};

struct Dataset {
    std::vector<Shard> shards = {};
    std::vector<uint64_t> first = {};   // number of each shard's first sample, and the total at the end
    int T = 0;
    uint64_t samples = 0, tokens = 0;
    std::string hash = {};              // identifies the tokens; hexadecimal
    std::shared_ptr<Content> content = {};  // the user's files; null: build/prep has made the tokens
    std::string description = {};       // "my.txt: 108 training and 12 validation tokens"

    // Copies T inputs and T targets of sample i < samples. kExitBadContent: a bad token, a file cut short. Any thread.
    void sample(uint64_t i, int* inputs, int* targets, int vocab_size) const;
    uint64_t trained(uint64_t i, int vocab_size) const;     // how many targets of sample i are not -1
};

// The text files of a model's folder; one that is not there is empty.
struct ModelTexts {
    std::string config = {}, generation_config = {}, tokenizer_config = {}, special_tokens_map = {}, tokenizer = {},
        chat_template = {};
};
constexpr std::pair<const char*, std::string ModelTexts::*> kModelTexts[] = {
    {"config.json", &ModelTexts::config}, {"generation_config.json", &ModelTexts::generation_config},
    {"tokenizer_config.json", &ModelTexts::tokenizer_config}, {"tokenizer.json", &ModelTexts::tokenizer},
    {"special_tokens_map.json", &ModelTexts::special_tokens_map}, {"chat_template.jinja", &ModelTexts::chat_template}};
ModelTexts read_model_texts(const std::string& folder);

struct DataOptions {
    std::string data = {}, val_data = {};   // paths; empty: the built-in stories
    std::string tokenizer = {};             // as --tokenizer; empty: init.tokenizer, else byte for text
    std::string chat_template = {};         // as --chat-template
    ModelTexts init = {};                   // of the model to start from
    std::string init_path = {};             // of its tokenizer.json
    std::string init_weights = {};          // the folder of its weights, if a run begins with them
    std::string prompt = {}, task = {};     // as --prompt and --task
    std::string cache = {};                 // a folder in which texts go if the user has no cache; may be empty
    int init_vocab = 0, vocab_size = 0;     // that model's or 0; --vocab-size or 0
    int seq_len = 0;                        // T
    int skip_bad_lines = 0;                 // as the option
    std::string frozen_by = {};             // the option that freezes its embedding: no token can be added; or ""
    bool whole = false;                     // all of `data` is for validation, and no token is added
    bool evaluates = true;                  // false: the validation part may be empty
    bool says = true;                       // build/prep reports its progress on stderr
};

// What the trainer knows of a tokenizer: the bytes of each token, the tokens that begin and end a text, and the files
// that it copies into checkpoints unread.
struct Vocabulary {
    std::string name = "none";              // of the tokenizer: "byte", "gpt2", its file; "none": tokens have no text
    int tokens = 0;                         // how many the tokenizer has; a model may have more
    std::vector<int> ends = {};             // tokens that end a text or a turn
    DocumentTokens documents = {};          // that stand around each document
    std::vector<int> untrained = {};        // control tokens of the data whose rows in the model are not trained
    std::string config = "{}";              // members that config.json gets: which tokens begin and end a text
    bool chats = false;                     // the training data are conversations
    bool is_bpe = false;                    // GGUF has a form for it
    std::vector<std::string> bytes = {};    // of each of the model's tokens; empty for control tokens and unused ids
    std::vector<std::pair<std::string, std::string>> files = {};    // names and contents

    bool has_text() const { return !bytes.empty(); }
    // Returns a token's bytes. Control tokens and unused ids give an empty string.
    std::string_view text(int token) const {
        return size_t(token) < bytes.size() ? bytes[size_t(token)] : std::string_view();
    }
};

// Multiple-choice questions, as HellaSwag, ARC, PIQA and MMLU ask them. An ending's score is the sum of log p of its
// tokens; the rule is that of the lm-evaluation-harness (0.4, api/task.py and models/huggingface.py).
struct Task {
    struct Row { std::vector<int> tokens; int scored; };        // a text, and how many tokens at its end are scored
    // A question: the row of its first ending, the number of the right ending, the length of each ending.
    struct Item { size_t first; int label; std::vector<size_t> characters; };
    std::string name;                       // the file's name without .jsonl
    std::vector<Row> rows;                  // each a context and one ending
    std::vector<Item> items;
};
// acc is the share of questions whose right ending has the largest score; acc_norm compares the scores per character.
struct TaskScore {
    std::string name;
    uint64_t items = 0, right = 0, right_norm = 0;
    double chance = 0;                      // share of right answers by guessing
    uint32_t requests = 0;                  // requests to stop that ended it early
    std::string text() const;               // "hellaswag acc 0.294 acc_norm 0.306 +- 0.005 (10042, chance 0.250)"
};

struct Data {
    Dataset train = {}, val = {};
    Vocabulary vocabulary = {};             // it has no text if the data are tokens without a tokenizer
    int vocab_size = 0;                     // rows of the embedding; the tokenizer may have fewer tokens
    std::vector<int> start = {};            // tokens with which a sample begins: those of --prompt
    Task task = {};                         // questions of --task; without it there are none
};
// Throws kExitBadContent if the content of an open data file has changed since the start: a checkpoint would identify
// other data than the run has read. A new file under the same name does not matter, because the old one stays open.
void check_unchanged(const Data& data);

// Opens the data. The first rank of each host asks build/prep for all that depends on text; the others wait.
// Collective; comm null: one process. Throws kExitUsage, kExitBadContent, kExitNoInput, kExitWrite.
Data open_data(const DataOptions& options, Comm* comm);

// Prepares the batches of the next step in the background.
struct BatchLoader {
    struct Batch { std::vector<int> tokens, targets; };         // (B,T)
    // Loads micro-batches [first_batch, last_batch) of every step from first_step on. data must outlive the loader.
    BatchLoader(const Dataset& data, const Sampler& sampler, int vocab_size, int first_batch, int last_batch,
                uint64_t first_step);
    const Batch& next();                                        // this rank's next batch; valid until the next call
    uint64_t step_targets() const { return given.targets; }     // targets of its step other than -1, over all ranks
    Batch micro_batch(uint64_t step, int micro_batch) const;    // makes any batch at once, for the audit
  private:
    struct Step { std::vector<Batch> batches; uint64_t targets = 0; };
    std::shared_future<Step> prepare();
    const Dataset& data;
    const Sampler sampler;
    const int vocab_size, first_batch, last_batch;
    uint64_t step;                                              // the next one to prepare
    Step given;                                                 // the one from which next() returns batches
    size_t taken = 0;                                           // how many of them it has returned
    std::shared_future<Step> coming;                            // the step after it
};
