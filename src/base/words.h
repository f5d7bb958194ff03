// words.h -- parses the options on a command line, for train_gpt and the tools, and makes errors and --help from them.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>
#include "src/base/common.h"

using Words = std::vector<std::string>;
using OptionTarget = std::variant<std::string*, bool*, int*, int64_t*, uint64_t*, float*, double*>;

Words split(std::string_view text, char separator = ' ');
bool contains(const Words& list, const std::string& word);
std::string replaced(std::string text, char from, char to);
std::string shown(const std::string& text);     // for errors: its first 80 bytes; "nothing" for ""

// An option of a program, whoever declares it: the trainer, a tool, a model, an optimizer, a schedule or a reduction.
struct Option {
    std::string name;               // "steps", which is typed as --steps, or "-o"
    std::string value;              // in --help: "N"; if it has no capitals, the words to choose from; "": a flag
    const char* help;               // "": --help does not show the option, since only other programs use it
    OptionTarget to;                // the variable that gets the value; its value before that is the default
    const char* elsewhere = "";     // what other programs call it, for "did you mean": "learning-rate -l"
    Limits limits = kNotNegative;   // limits of a number
    const char* alone = "";         // the value if the option is given without one; "": it must have one
    std::map<std::string, std::string> aliases = {};    // other words for its values
    const char* group = "";         // the title in --help
    // The option that chooses among those who may have this one, such as --model, and the choices that have it. Null:
    // all runs have it.
    const std::string* chosen = nullptr;
    Words owners = {};
    // Without a choice, any run may have it.
    bool applies() const { return !chosen || chosen->empty() || contains(owners, *chosen); }
    bool is_text() const { return std::holds_alternative<std::string*>(to); }
    std::string typed() const { return name.starts_with('-') ? name : "--" + name; }
};

// Returns the option's value as a text from which set_option reads exactly that value.
std::string value_text(const Option& option);
// Sets the option's value. Returns false if the text is no valid value. Numbers may be 2.5e3, 512k or 2M.
bool set_option(const Option& option, const std::string& text);
// Returns what the option accepts: "a number > 0", "cosine|linear|constant|wsd".
std::string wanted(const Option& option);

// Sets the options among the words, and returns the words that are neither options nor their values. Appends the names
// of the options to *given. Errors are kExitUsage. They suggest the option that may be meant by a name that is
// misspelt, unfinished or another program's. want: what they say in front of what an option with a text accepts.
Words read_options(const std::vector<Option>& options, const Words& words, Words* given, const char* want = "");
// Throws kExitUsage, "NAME: got GOT, want WANT".
[[noreturn]] void refuse_option(const std::string& name, const std::string& got, const std::string& want);
