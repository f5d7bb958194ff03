// data.h -- datasets of tokens, in a folder that build/prep has written: the user's token files, or
// tokens that it has made from texts. docs/data.md describes the folder.
//
// Sample i of a shard has tokens [i T, i T + T) as inputs and tokens [i T + 1, i T + T + 1) as
// targets. A shard has floor((tokens - 1) / T) samples. Documents (lines of a .jsonl, files of a
// folder of texts) are joined. This program's own tokenizers put an end-of-text token before each
// document, and none into a single text. Other tokenizers put their begin token, if they have one,
// before each document or single text, and end-of-text behind each document.
//
// The validation data are val_data; else the files of `data` that are named val, valid, dev or eval
// (sources.h in tools/text has all names); else the last tenth of `data`. That is a tenth of the
// characters of a single text, of the tokens of token files, or the documents that begin in the
// last tenth of the bytes, at least one.
//
// With --rows masked the tokens between documents decide, too, which tokens belong together.
//
// Each conversation (tools/text/chat.h) is one sample, padded or cut to T tokens. The loss ignores
// targets of -1.
//
// With --rows documents a sample is a row of whole documents, or conversations, which build/prep has
// packed, and of padding: token 0 without a target.
#pragma once
#include <algorithm>
#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include "src/base/numbers.h"
#include "src/base/words.h"
#include "src/comm/comm.h"

struct InputFile;                       // src/base/file.h

// A 4-byte token with this bit set is not trained on: as a target it counts as -1.
constexpr uint32_t kUntrained = 1u << 31;
// So is one with this bit, too: a conversation begins with it, and may share a row with others.
constexpr uint32_t kBegins = 1u << 30;

// Consecutive tokens in a file, which stays open while a run reads it.
struct Shard {
    std::shared_ptr<InputFile> file = {};
    uint64_t width = 2;                 // bytes of a token: 2, 4 or 8, unsigned, little-endian
    uint64_t offset = 0;                // where the file's first token begins, in bytes
    uint64_t begin = 0, tokens = 0;     // number of the first token in the file; how many tokens
    // crc is file->checksum(0, every) at the start. every 0: it is a file of the cache.
    uint64_t every = 0, crc = 0;
    bool masked = false;                // some tokens have the bits kUntrained and kBegins
    // From token KEY of the file on: how many bytes of the text as given a byte of a token's text
    // stands for. Tokens have the text after NFC.
    std::map<uint64_t, double> given = {{0, 1}};

    // Reads tokens [first, first + n) of the shard, with these bits. Any thread may call
    // it. kExitBadContent if a token is not below vocab_size.
    void read(uint64_t first, size_t n, int* out, int vocab_size) const;
};

// Consecutive tokens of a shard, which are a sample or a part of it.
struct Piece {
    const Shard* shard;
    uint64_t first, tokens;             // the number of the first in the shard; how many
    static constexpr int kBits = 24;    // of `tokens` in a table of rows
};

struct Dataset {
    std::vector<Shard> shards = {};
    // The number of the first sample that begins in each shard or later, and at the end the number
    // of samples. starts: likewise of tokens; only if rows are packed.
    std::vector<uint64_t> first = {}, starts = {};
    // A mixture has several sources: paths has the path of each, as the user gave it, and weights
    // has its part of the training samples. Other data are one source, whose path is "". begins has
    // the number of each source's first sample, and at the end the number of samples.
    Words paths = {};
    std::vector<double> weights = {};
    std::vector<uint64_t> begins = {};
    int T = 0;                          // tokens per sample
    int overlap = 0;                    // tokens that a sample shares with the one before
    // A token sees its own document alone: --rows masked, with the tokens between documents, and
    // --rows documents, where the table has them.
    std::optional<DocumentTokens> apart = {};
    // --rows documents: the table of rows (docs/data.md). padding: the share of places in them
    // that have no token.
    std::shared_ptr<InputFile> rows = {};
    double padding = 0;
    uint64_t samples = 0, tokens = 0;
    std::string path = {};              // as the user gave it; "": there is no such dataset
    std::string hash = {};              // identifies the tokens; hexadecimal
    std::string description = {};       // "my.txt: 108 training and 12 validation tokens"

    // Copies the T inputs and T targets of sample i < samples. Targets that the sample before has,
    // or that lie behind the shard, are -1. given: gets Shard::given of each target. begin: gets
    // where in the sample each input's document begins. Thread-safe. kExitBadContent: a bad token,
    // a short file.
    void sample(uint64_t i, int* inputs, int* targets, int vocab_size, double* given = nullptr,
                int* begin = nullptr) const;
    // Returns how many of sample i's targets are not -1.
    uint64_t trained(uint64_t i, int vocab_size) const;
    // Opens the table of rows of T tokens, and so packs the samples. kExitBadContent.
    void open_rows(const std::string& path);
    // Returns what sample i < samples has. kExitBadContent: the table is damaged.
    std::vector<Piece> pieces(uint64_t i) const;
    // Returns how many batches of B samples of source k an evaluation scores: `most` of them, or all
    // if `most` is 0.
    uint64_t batches(size_t k, int B, int64_t most) const;
};

// The contents of the text files in a model's folder; "" for a file that does not exist.
struct ModelTexts {
    std::string config = {}, generation_config = {}, tokenizer_config = {};
    std::string special_tokens_map = {}, tokenizer = {}, chat_template = {};
};
constexpr std::pair<const char*, std::string ModelTexts::*> kModelTexts[] = {
    {"config.json", &ModelTexts::config},
    {"generation_config.json", &ModelTexts::generation_config},
    {"tokenizer_config.json", &ModelTexts::tokenizer_config},
    {"tokenizer.json", &ModelTexts::tokenizer},
    {"special_tokens_map.json", &ModelTexts::special_tokens_map},
    {"chat_template.jinja", &ModelTexts::chat_template}};
ModelTexts read_model_texts(const std::string& folder);

struct DataOptions {
    // The options of `build/prep --answer`. None: the built-in stories, in bytes.
    Words prep = {};
    ModelTexts init;                        // text files of the model that the run starts from
    // A folder for prepared texts if the user has no cache. It may be "".
    std::string cache;
    int seq_len = 0;                        // T
    std::string rows = "join";              // --rows
    bool evaluates = true;                  // false: the validation part may be empty
};

// What the trainer knows of a tokenizer: the bytes of each token, the tokens that begin and end a
// text, and the files that it copies into checkpoints without reading them.
struct Vocabulary {
    // "byte", "gpt2" or the tokenizer's file. "none": tokens have no text.
    std::string name = "none";
    int tokens = 0;                         // of the tokenizer; a model may have more
    std::vector<int> ends;                  // tokens that end a text or a turn
    DocumentTokens documents;               // the tokens before and behind each document
    // Control tokens of the data whose rows in --init's weights are untrained.
    std::vector<int> untrained = {};
    // Members for config.json: which tokens begin and end a text.
    std::string config = "{}";
    bool chats = false;                     // the training data are conversations
    // One per id of the model; empty for control tokens and unused ids.
    Words bytes;
    // Names and contents of the tokenizer's files.
    std::vector<std::pair<std::string, std::string>> files = {};

    bool has_text() const { return !bytes.empty(); }
    // Returns a token's bytes. Control tokens and unused ids give an empty string.
    std::string_view text(int token) const {
        return size_t(token) < bytes.size() ? bytes[token] : std::string_view();
    }
};

struct Data {
    Dataset train = {}, val = {};
    Vocabulary vocabulary = {};   // has_text() is false if the data are tokens without a tokenizer
    int vocab_size = 0;           // V, rows of the embedding; the tokenizer may have fewer tokens
    std::vector<int> start = {};  // the tokens of --prompt, with which a sample begins
};
// Throws kExitBadContent if the content of an open token file has changed since the start, because
// a checkpoint would name other data than the run has read. A new file under the same name does no
// harm: the old one stays open.
void check_unchanged(const Dataset& part);

// Reads the data in a folder that build/prep has written, in samples of T tokens. kExitNoInput,
// kExitBadContent.
Data read_data(const std::string& folder, int T);
// kExitBadContent if a part has no sample, though it is needed.
void require_samples(const Data& data, bool evaluates);
// Opens the data. The first rank of each host asks build/prep for the folder, and the others wait.
// Collective; comm is null for one process. Throws kExitUsage, kExitBadContent, kExitNoInput,
// kExitWrite.
Data open_data(const DataOptions& options, Comm* comm);
// Returns the path of data/NAME beside the program, in build/ there, one or two folders above it,
// or in ./data. kExitNoInput: it is in none of them; what_to_do ends that message.
std::string find_data_file(const std::string& name,
                           const char* what_to_do = "run ninja, which makes the built-in text, or "
                                                    "give --data");

// ---- which sample comes next: a pure function, whose only state is the step

// Returns element i < n of a permutation of 0..n-1 that (seed, epoch) selects.
uint64_t permute(uint64_t i, uint64_t n, uint64_t seed, uint64_t epoch);
// Returns what torch.randperm(n) returns with a CPU generator of this seed. kExitUsage unless
// n < 2^32 / 20.
std::vector<int64_t> torch_randperm(int64_t n, uint64_t seed);

// What an order of data may depend on. It is fixed for a run. src/data/orders has the orders.
struct Sampler {
    // Returns which sample is the run's sequence c, from 0: sequence c % B of micro-batch c / B % G
    // of step c / B / G. Of a step's micro-batches the first G / R are those of replica 0, the next
    // ones those of replica 1, ...
    using Order = uint64_t(const Sampler& run, uint64_t c);
    Order* order;
    std::vector<uint64_t> first;        // as Dataset::begins
    uint64_t seed = 0;
    int B = 0, G = 0, R = 1;
    std::map<std::string, double> hyper = {};   // values of options, the order's own among them
    std::vector<double> weights = {1};  // as Dataset::weights, the largest first
    // Returns which sample is sequence b (0..B-1) of micro-batch k (0..G-1) of the step.
    uint64_t index(uint64_t step, int k, int b) const {
        return order(*this, (step * G + k) * B + b);
    }
};

// Returns this rank's batches, and prepares those of the next step in another thread.
struct BatchLoader {
    struct Batch {
        // (B,T). begin: where in its sample each token's document begins; --rows join: empty.
        std::vector<int> tokens, targets, begin;
        std::vector<uint64_t> samples;                          // (B)  their numbers
        void copy(int* to) const {                              // (3,B,T)
            for (const auto* part : {&tokens, &targets, &begin})
                to = std::copy(part->begin(), part->end(), to);
        }
        const int* begins() const { return begin.empty() ? nullptr : begin.data(); }
    };
    // Loads micro-batches [first_batch, last_batch) of every step from first_step on. data must
    // outlive the loader.
    BatchLoader(const Dataset& data, const Sampler& sampler, int vocab_size, int first_batch,
                int last_batch, uint64_t first_step);
    // Returns this rank's next batch, which is valid until the next call.
    const Batch& next();
    // Returns the numbers (B) of the samples of this rank's batch i of that step. They stay at the
    // same address.
    const uint64_t* samples(int i) const { return &numbers[size_t(i) * sampler.B]; }
    // Returns how many targets of that step are not -1, over all ranks.
    uint64_t step_targets() const { return given.targets; }
    // Makes any batch of the run, for the audit.
    Batch micro_batch(uint64_t step, int micro_batch) const;
  private:
    struct Step { std::vector<Batch> batches; uint64_t targets = 0; };
    std::shared_future<Step> prepare();
    const Dataset& data;
    const Sampler sampler;
    const int vocab_size, first_batch, last_batch;
    uint64_t step;          // the next step to prepare
    Step given;             // the step from which next() returns batches
    size_t taken = 0;       // how many of its batches next() has returned
    std::vector<uint64_t> numbers;      // (own micro-batches, B)
    std::shared_future<Step> coming;    // the step after it, which a thread prepares
};
