// inference.h -- what trained weights are for: losses, text and answers.
#pragma once
#include <cmath>
#include <functional>
#include <string>
#include "models/model.h"
#include "src/app/options.h"
#include "src/comm/comm.h"
#include "src/data/data.h"

namespace BACKEND {

struct Score {
    double nats = 0, text_nats = 0;     // of all tokens; of those that stand for text
    uint64_t bytes = 0, tokens = 0;     // of that text; all
    uint32_t requests = 0;              // to stop, which broke the evaluation off
    double loss() const { return nats / double(tokens); }
    double bpb() const { return text_nats / std::log(2.0) / double(bytes); }        // NaN where tokens have no text
};

// Losses of the first `batches` batches of B windows of data.val; 0: all, the last batch may be smaller. Each batch is
// one double, added in order: the same bits for any number of ranks. Collective.
Score evaluate(Model* model, const Data& data, int B, int64_t batches, Comm* comm);

using Print = std::function<void(const std::string&)>;
// Continues --prompt, or with a template answers it, by up to --max-tokens, to the end of the text or turn or until a
// request to stop; --samples times, with a line between them. `print` gets whole characters as they come; returns all
// of them. stream separates the samples of one seed.
std::string generate_text(Model* model, const Tokenizer& tokenizer, const ChatTemplate& chat, const Options& options,
                          uint32_t stream, const Print& print);

// The tokens in front of the assistant's next turn.
std::vector<int> tokens_of(const Conversation& conversation, const ChatTemplate& chat, const Tokenizer& tokenizer);
// Appends up to --max-tokens to `tokens`, to the end of the text or to token `end`, or until `stops`; returns their
// text.
std::string continue_text(Model* model, const Tokenizer& tokenizer, int end, const Options& options, uint32_t stream,
                          std::vector<int>* tokens, const Print& print, const std::function<bool()>& stops);

}  // namespace BACKEND
