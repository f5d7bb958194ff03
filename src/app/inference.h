// inference.h -- runs a model forward: losses of data, continued texts and answers.
#pragma once
#include <functional>
#include <numbers>
#include <string>
#include "models/model.h"
#include "src/comm/comm.h"
#include "src/data/data.h"
#include "src/options/options.h"

namespace BACKEND {

struct Score {
    double nats = 0, text_nats = 0;     // sums of -ln p: of all tokens; of tokens that have text
    uint64_t bytes = 0, tokens = 0;     // bytes of that text; targets that are not -1
    uint32_t requests = 0;              // requests to stop that ended the evaluation early
    double loss() const { return nats / double(tokens); }
    double bpb() const { return text_nats / std::numbers::ln2 / double(bytes); }        // NaN where tokens have no text
};

// Scores the first `batches` batches of B windows of data.val, or all of them if `batches` is 0. The last batch may be
// smaller. Each batch has one sum, and the sums are added in order, so any number of ranks gives the same bits.
// to_its_end: requests to stop do not end it early. Collective.
Score evaluate(Model* model, const Data& data, int B, int64_t batches, Comm* comm, bool to_its_end = false);

using Print = std::function<void(const std::string&)>;
// Continues the tokens `start` --samples times with a line between them; after the first, --prompt is printed again. A
// sample ends at the token that ends a text or turn, after --max-tokens, or at a request to stop. Passes whole
// characters to `print` as they are generated, and returns all of them. With the same seed another stream gives other
// samples. start: empty: the model's last token.
std::string generate_text(Model* model, const Vocabulary& vocabulary, const std::vector<int>& start,
                          const Options& options, uint32_t stream, const Print& print);

// Appends up to --max-tokens tokens. Ends at a token that ends a text or turn, or when stops() is true. Returns the
// tokens' text.
std::string continue_text(Model* model, const Vocabulary& vocabulary, const Options& options, uint32_t stream,
                          std::vector<int>* tokens, const Print& print, const std::function<bool()>& stops);

}  // namespace BACKEND
