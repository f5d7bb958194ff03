// words.h -- parses the options on a command line, for train_gpt and the tools, and makes errors and --help from them.
#pragma once
#include <string>
#include <string_view>
#include <variant>
#include <vector>
#include "src/base/common.h"

using Words = std::vector<std::string>;
using OptionTarget = std::variant<std::string*, bool*, int*, int64_t*, uint64_t*, float*, double*>;

struct OptionRow {
    std::string name;               // as it is typed: "--steps", "-o"
    std::string value;              // in --help: "N"; if it has no capitals, the words to choose from; "": a flag
    const char* help;               // "": --help does not show the option, since only other programs use it
    OptionTarget to;                // the variable that gets the value; its value before that is the default
    Limits limits = kNotNegative;   // limits of a number
    const char* alone = "";         // the value if the option is given without one; "": it must have one
};

Words split(std::string_view text, char separator = ' ');
bool contains(const Words& list, const std::string& word);
std::string replaced(std::string text, char from, char to);
std::string shown(const std::string& text);     // for errors: its first 80 bytes; "nothing" for ""

bool takes_any_text(const OptionRow& row);      // whether its value, a text, is not one of some words
// Returns the option's value as a text from which set_option reads exactly that value.
std::string value_text(const OptionRow& row);
// Sets the option's value. Returns false if the text is no valid value. Numbers may be 2.5e3, 512k or 2M.
bool set_option(const OptionRow& row, const std::string& text);
// Returns what the option accepts: "a number > 0", "cosine|linear|constant|wsd".
std::string wanted(const OptionRow& row);
// Returns the option's line of --help. defaults: it ends with "(default X)", unless it is a flag or X is not valid.
std::string help_line(const OptionRow& row, const std::string& help, int width, bool defaults);

// The errors of the following functions are kExitUsage.
bool is_option(const std::string& word);        // whether it begins with "-"; a "-" alone is no option
std::string option_name(const std::string& word);       // "--seq-len" of "--seq_len=4"
[[noreturn]] void refuse_option(const std::string& name, const std::string& got, const std::string& want);
// Throws an error that suggests the option which may be meant: `name` is another program's name for it, unfinished, or
// misspelt. known: each option's name and behind it what others call it, "--lr learning-rate -l".
[[noreturn]] void unknown_option(const std::string& name, const Words& known);
// Returns the value of option words[*i]; if it is the next word, increments *i. want: what an error asks for.
std::string option_value(const OptionRow& row, const Words& words, size_t* i, const std::string& want);
// Sets the options among the words of a tool, and returns all words that are neither options nor their values.
Words read_options(const std::vector<OptionRow>& rows, const Words& words);
