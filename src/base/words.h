// words.h -- options as words of a command line, for train_gpt and the tools: what each accepts, and what is refused.
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
    std::string value;              // in --help: "N"; without capitals the words to choose from; "": a flag
    const char* help;               // "": is not shown, for other programs
    OptionTarget to;                // where the value goes; what stands there before is the default
    Limits limits = kNotNegative;   // of a number
    const char* alone = "";         // the value if none is given; "": there has to be one
};

Words split(std::string_view text, char separator = ' ');
bool contains(const Words& list, const std::string& word);
std::string replaced(std::string text, char from, char to);
std::string shown(const std::string& text);     // cut, since a pasted file must not fill the screen; "nothing" for ""

// Returns the text that set_option reads back exactly.
std::string value_text(const OptionRow& row);
// Returns false if the text is no value of the option. Numbers may be 2.5e3, 512k or 2M.
bool set_option(const OptionRow& row, const std::string& text);
// Returns what it accepts: "a number > 0", "cosine|linear|constant|wsd".
std::string wanted(const OptionRow& row);
// Returns its line of --help. defaults: it ends with "(default X)", unless that is off, unset or out of the limits.
std::string help_line(const OptionRow& row, const std::string& help, int width, bool defaults);

// Errors are kExitUsage.
bool is_option(const std::string& word);        // "-" is none
std::string option_name(const std::string& word);       // "--seq-len" of "--seq_len=4"
[[noreturn]] void refuse_option(const std::string& name, const std::string& got, const std::string& want);
// Suggests an option: another program's name for it, an unfinished name, or a typing error. known: each option's name
// and behind it what others call it, "--lr learning-rate -l".
[[noreturn]] void unknown_option(const std::string& name, const Words& known);
// Returns the value of the option words[*i], and moves *i on if it is the next word. want: for the error of none.
std::string option_value(const OptionRow& row, const Words& words, size_t* i, const std::string& want);
// Sets the options among the words, and returns the other words.
Words read_options(const std::vector<OptionRow>& rows, const Words& words);
