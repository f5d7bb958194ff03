// inference.h -- runs a model forward: losses of data, continued texts and answers.
#pragma once
#include <functional>
#include <numbers>
#include <string>
#include "models/model.h"
#include "src/app/options.h"
#include "src/comm/comm.h"
#include "src/data/data.h"

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
// Continues --prompt, or answers it by a template, --samples times with a line between them. A sample ends at the token
// that ends a text or turn, after --max-tokens, or at a request to stop. Passes whole characters to `print` as they are
// generated, and returns all of them. With the same seed another stream gives other samples.
std::string generate_text(Model* model, const Tokenizer& tokenizer, const ChatTemplate& chat, const Options& options,
                          uint32_t stream, const Print& print);

// Returns the tokens of a conversation, followed by the beginning of the assistant's next turn.
std::vector<int> chat_prompt(const Conversation& conversation, const ChatTemplate& chat, const Tokenizer& tokenizer);
// Appends up to --max-tokens tokens. Ends at an end-of-text token, at token `end` (-1: none), or when stops() is true.
// Returns the tokens' text.
std::string continue_text(Model* model, const Tokenizer& tokenizer, int end, const Options& options, uint32_t stream,
                          std::vector<int>* tokens, const Print& print, const std::function<bool()>& stops);

}  // namespace BACKEND
