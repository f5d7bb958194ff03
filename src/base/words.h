// words.h -- command lines: parses the options of train_gpt and the tools, and makes errors and
// --help from them; finds and starts tools, the other programs that were built with this one, as
// git does with its commands.
#pragma once
#include <functional>
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

// An option of a program, whoever declares it: the trainer, a tool, a model, an optimizer, a
// schedule or a reduction.
struct Option {
    std::string name;               // "steps", which is typed as --steps, or "-o"
    // What --help shows: "N", or the words to choose from if there are no capitals: one of "a|b", or
    // any of "a,b". "": a flag.
    std::string value;
    // "": --help does not show the option, since only other programs use it.
    const char* help;
    // The variable that gets the value; its value before that is the default.
    OptionTarget to;
    // What other programs call it, for "did you mean": "learning-rate -l".
    const char* elsewhere = "";
    Limits limits = kNotNegative;   // limits of a number
    // The value if the option is given without one. "": it must have one.
    const char* alone = "";
    std::map<std::string, std::string> aliases = {};    // other words for its values
    const char* group = "";         // the title in --help
    // The option that chooses among those who may have this one, such as --model, and the choices
    // that have it. Null: all runs have it.
    const std::string* chosen = nullptr;
    Words owners = {};
    // Returns whether this run may have it. Without a choice any run may.
    bool applies() const { return !chosen || chosen->empty() || contains(owners, *chosen); }
    bool is_text() const { return std::holds_alternative<std::string*>(to); }
    std::string typed() const { return name.starts_with('-') ? name : "--" + name; }
};

// An option with a number that a row of a list brings, such as an optimizer's, and its default
// `value`. elsewhere: its names in other trainers, for "did you mean". with_init: the default with
// --init; 0: the same default.
struct Hyper {
    const char* option;
    double value;
    Limits limits;
    const char *elsewhere, *help;
    double with_init = 0;
};

// Returns the row of a name that the option of the list accepts.
template <class Rows> const auto& find_row(const Rows& rows, const std::string& name) {
    for (const auto& row : rows)
        if (name == row.name) return row;
    die(kExitOther, "internal error: no %s", name.c_str());
}

// Returns the option's value as a text from which set_option reads exactly that value.
std::string value_text(const Option& option);
// Sets the option's value. Returns false if the text is no valid value. Numbers may be 2.5e3, 512k
// or 2M.
bool set_option(const Option& option, const std::string& text);
// Returns what the option accepts: "a number > 0", "cosine|linear|constant|wsd".
std::string wanted(const Option& option);

// Sets the options among the words, and returns the words that are neither options nor their
// values. Appends the names of the options to *given. Errors are kExitUsage. They suggest the
// option that may be meant by a name that is misspelt, unfinished or another program's. want: what
// they say in front of what an option with a text accepts.
Words read_options(const std::vector<Option>& options, const Words& words, Words* given,
                   const char* want = "");
// Throws kExitUsage, "NAME: got GOT, want WANT".
[[noreturn]] void refuse_option(const std::string& name, const std::string& got,
                                const std::string& want);

// ---- tools

// Returns the tool's path: beside this program, or in build/ there. The tool may be missing.
std::string tool_path(const std::string& name);
// Returns tool_path(name). kExitNoInput: the tool is missing. what: what needs the tool, an option
// ("--np") or command.
std::string require_tool(const std::string& what, const std::string& name);
// Replaces this process by the tool (execv): the pid does not change, and the tool's exit code
// becomes this process's. name: the tool's argv[0], which ps shows; by default its path.
// kExitOther: the tool cannot be started.
[[noreturn]] void hand_over(const std::string& what, const std::string& path,
                            const Words& arguments, const std::string& name = "");

// Runs a tool that reads a request from its standard input, to the end, and writes lines to its
// standard output. An empty line reports progress, and this calls progress(). Any other line is the
// answer; returns the last one, or "" if there is none. If the tool's exit code is not 0, the last
// answer is its error, which this throws with that code. kExitOther: it cannot start, or a signal
// has killed it. Signals are blocked in the tool. If this process dies, or if progress() throws,
// which ends this call, the tool ends at its next progress line: see answer_request in
// tools/tool.h.
std::string ask_tool(const std::string& what, const std::string& path, const Words& arguments,
                     const std::string& request, const std::function<void()>& progress);
