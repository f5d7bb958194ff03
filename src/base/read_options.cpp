// read_options.cpp -- parses the command line of a tool (words.h); train_gpt and lm have a parser of their own.
#include <algorithm>
#include "src/base/words.h"

Words read_options(const std::vector<OptionRow>& rows, const Words& words) {
    Words rest, given, known = {"--help"};
    for (const OptionRow& row : rows)
        if (*row.help) known.push_back(row.name);
    for (size_t i = 0; i < words.size(); i++) {
        const std::string word = words[i], name = option_name(word);
        const auto row = std::ranges::find(rows, name, &OptionRow::name);
        if (!is_option(word)) {
            rest.push_back(word);
            continue;
        }
        if (row == rows.end()) unknown_option(word.substr(0, word.find('=')), known);
        if (contains(given, name)) refuse_option(name, "two values", "one");
        given.push_back(name);
        const bool text = std::holds_alternative<std::string*>(row->to) && takes_any_text(*row);
        const std::string want = text ? "a value, " + row->value : wanted(*row);
        const std::string value = option_value(*row, words, &i, want);
        if (!set_option(*row, value)) refuse_option(name, shown(value), want);
    }
    return rest;
}
