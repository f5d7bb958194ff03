// stories.h -- the built-in text: small English stories from a probabilistic grammar, endless, seeded, of known entropy.
//
//     Rosa, Jack and Iris met at the mill one misty May evening. Jack found an old lamp. A fox slept in the hay. ...
//     ... Jack brought Iris the lamp. Rosa ran to the barn. Who has the lamp? Iris.
//
// Story i of a seed is a pure function of (seed, i). People go to places, find things, bring them to each other, leave them
// behind; the last line is a question and its answer, which only somebody who has read the story can give. The grammar is
// unambiguous, so each story's probability is the product of its choices and -log2 of it is exact: no model can have fewer
// bits per byte on average.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

constexpr int kStorySlot = 256;            // a story and its end-of-text tokens fill one slot; the text is at most kStorySlot - 2 bytes

constexpr uint64_t kStoryTrainSeed = 1, kStoryValidationSeed = 2;

struct Story {
    std::string text;                      // ends with the answer, "."
    double bits = 0;                       // -log2 of its probability
    size_t answer = 0;                     // where the closing answer starts in text
    int answers = 0;                       // how many answers the question's form allows: chance is 1 / answers
};
Story make_story(uint64_t seed, uint64_t i);

// The story with this text: its bits, and where its answer lies. False if no derivation gives the text: a model's samples can
// be held against it (grammar, memory and answer must all be right).
bool read_story(std::string_view text, Story* story);

// All stories of a small version of the grammar, with their probabilities: the test's check that they sum to 1 and that no two
// derivations give the same text.
std::vector<Story> enumerate_small_grammar();

// The one derivation that all of the above run: whenever the story could go on in several ways, `choose` says which; it gets the
// text so far and returns an index. Every choice appends options[index].text, with probability weight / sum of the weights.
struct StoryOption {
    std::string_view text;
    double weight;
    int id;                                // what the option means to the grammar
};
using StoryChooser = std::function<size_t(const std::string& text, const std::vector<StoryOption>& options)>;
Story tell_story(const StoryChooser& choose);
