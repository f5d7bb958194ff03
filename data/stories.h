// stories.h -- the built-in text: small English stories from a probabilistic grammar, endless, seeded, of known entropy.
//
// Story i of a seed is a pure function of (seed, i). People go to places, take things, give them away; the last line is a
// question and its answer, which only somebody who has read the story can give. The grammar is unambiguous, so each story's
// probability is the product of its choices and -log2 of it is exact: no model can have fewer bits per byte on average.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

constexpr int kStorySlot = 256;            // a story and its end-of-text tokens fill one slot; the text is at most kStorySlot - 2 bytes

struct Story {
    std::string text;                      // ends with the answer, "."
    double bits = 0;                       // -log2 of its probability
    size_t answer = 0;                     // where the closing answer starts in text
    int answers = 0;                       // how many answers the question's form allows: chance is 1 / answers
};
Story make_story(uint64_t seed, uint64_t i);

// All stories of a small version of the grammar, with their probabilities: the test's check that they sum to 1 and that no two
// derivations give the same text.
std::vector<Story> enumerate_small_grammar();
