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

// The words of the grammar. Lists are in order of frequency: word k has weight 1 / (k + 8), a mild Zipf's law.
using StoryWords = std::vector<std::string_view>;
struct StoryGrammar {
    size_t limit, sentence, question;      // bytes: of the longest story, of the longest of each with its answer
    size_t cast;                           // people in a story
    StoryWords weather, month, time;
    StoryWords name;                       // girls and boys in turn; four letters each, initials differ
    StoryWords place, thing;               // initials differ
    StoryWords looks, color;               // of a thing; the first with its article
    StoryWords walk, feeling, rub, body, cry;
    StoryWords animal, rest, spot, view;
};

// The one derivation that make_story and the tests run: whenever the story could go on in several ways, `choose` says which; it gets the
// text so far and returns an index. Every choice appends options[index].text, with probability weight / sum of the weights.
struct StoryOption {
    std::string_view text;
    double weight;
    int id;                                // what the option means to the grammar
};
using StoryChooser = std::function<size_t(const std::string& text, const std::vector<StoryOption>& options)>;
const StoryGrammar& full_grammar();
Story tell_story(const StoryChooser& choose, const StoryGrammar& grammar = full_grammar());     // a test has other words
