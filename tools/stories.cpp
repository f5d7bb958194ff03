// stories.cpp (tool) -- prints the built-in stories, for people to look at.
//
//     build/stories                        ten stories
//     build/stories --seed 7 --n 1000      others
//     build/stories --bits                 each with its bits, bits per byte and chance of guessing the answer
#include <cstdlib>
#include <cstring>
#include "common.h"
#include "stories.h"

namespace {

uint64_t parse_count(const char* option, const char* text) {
    if (!text) die(kExitUsage, "%s: got nothing, want a number", option);
    char* end = nullptr;
    const uint64_t n = std::strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end) die(kExitUsage, "%s: got '%s', want a number", option, text);
    return n;
}

void print_stories(uint64_t seed, uint64_t n, bool with_bits) {
    double bits = 0, bytes = 0;
    for (uint64_t i = 0; i < n; i++) {
        const Story s = make_story(seed, i);
        if (with_bits) std::printf("[%.2f bits, %.3f per byte, chance 1/%d] ", s.bits, s.bits / double(s.text.size()), s.answers);
        std::printf("%s\n", s.text.c_str());
        bits += s.bits, bytes += double(s.text.size());
    }
    if (with_bits && n > 0) std::printf("mean: %.1f bytes, %.2f bits, %.4f bits per byte\n", bytes / double(n), bits / double(n), bits / bytes);
    if (std::fflush(stdout) != 0 || std::ferror(stdout)) die(kExitWrite, "stdout: a write failed");
}

}  // namespace

int main(int argc, char** argv) {
    set_program("stories");
    try {
        uint64_t seed = 1337, n = 10;
        bool with_bits = false;
        for (int k = 1; k < argc; k++) {
            if (!std::strcmp(argv[k], "--bits")) with_bits = true;
            else if (!std::strcmp(argv[k], "--seed")) seed = parse_count("--seed", argv[k + 1]), k++;
            else if (!std::strcmp(argv[k], "--n")) n = parse_count("--n", argv[k + 1]), k++;
            else die(kExitUsage, "option: got '%s', want [--seed S] [--n N] [--bits]", argv[k]);
        }
        print_stories(seed, n, with_bits);
    } catch (const Error& e) {
        print_error(e);
        return e.code;
    }
    return kExitDone;
}
