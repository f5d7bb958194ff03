// inference.h -- what trained weights are for: the loss over a text, and text. Also the programs `sample` and `eval`.
#pragma once
#include <cmath>
#include <functional>
#include <string>
#include <vector>
#include "choose.h"
#include "comm.h"
#include "data.h"
#include "gpt.h"
#include "options.h"

namespace BACKEND {

struct Score { double loss = NAN, bpb = NAN; uint64_t tokens = 0; uint32_t requests = 0; };

// Mean loss over the first `batches` batches of B windows (0 = all windows, the last batch may be smaller); one double per batch, added in
// order: the same bits for any number of ranks. Bits per byte counts the targets that stand for text: the nats of end-of-text tokens and
// their zero bytes stay out. A request to stop breaks it off within about a second, on all ranks alike: `requests` has it. Collective.
Score evaluate(Gpt* model, const Data& data, const Dataset& set, int B, int64_t batches, Comm* comm);

// How often the model answers the closing questions of `count` stories exactly, reading each story up to the answer; greedy.
struct Answers { int right = 0, asked = 0; double chance = 0; };
Answers closing_questions(Gpt* model, const Tokenizer& tokenizer, uint64_t seed, int count, Comm* comm);

// Where a sample starts: the prompt, after a document's first token; without a prompt that token, or a new line.
std::vector<int> opening(const Tokenizer& tokenizer, const std::string& prompt, int vocab_size);

// Continues the tokens (not empty) by up to max_tokens, to the end of the text or until the program is asked to stop. `print` gets whole
// characters as they come; returns all of them.
std::string generate_text(Gpt* model, const Tokenizer& tokenizer, std::vector<int> tokens, int max_tokens, const Choosing& how,
                          const std::function<void(const std::string&)>& print);

// The programs; they return exit codes.
int sample(Options options, Comm* comm);
int eval(Options options, Comm* comm);

}  // namespace BACKEND
