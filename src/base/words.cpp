// words.cpp -- see words.h.
#include "src/base/words.h"
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include "src/base/common.h"

Words split(std::string_view text, char separator) {
    Words words;
    while (!text.empty())
        if (const std::string_view word = next_word(&text, separator); !word.empty()) words.emplace_back(word);
    return words;
}

bool contains(const Words& list, const std::string& word) { return std::ranges::find(list, word) != list.end(); }

std::string replaced(std::string text, char from, char to) {
    std::ranges::replace(text, from, to);
    return text;
}

std::string shown(const std::string& text) { return text.empty() ? "nothing" : text.substr(0, 80); }

// ---- text <-> value

bool takes_any_text(const OptionRow& row) {
    return std::ranges::any_of(row.value, [](char c) { return c >= 'A' && c <= 'Z'; });
}

std::string value_text(const OptionRow& row) {
    return std::visit([](const auto* value) -> std::string {
        using T = std::decay_t<decltype(*value)>;
        char digits[64];
        if constexpr (std::is_same_v<T, std::string>) return *value;
        else if constexpr (std::is_same_v<T, bool>) return *value ? "on" : "off";
        else return {digits, std::to_chars(digits, std::end(digits), *value).ptr};
    }, row.to);
}

// Reads a number. A whole number in digits is exact; in other forms (2.5e3, 512k, 2M) it may be up to 2^53.
template <class T> static bool parse_number(std::string_view text, const Limits& limits, T* out) {
    constexpr bool kWhole = std::is_integral_v<T>;
    if (kWhole && parse_whole(text, out)) return limits.hold(double(*out));
    const double unit = text.ends_with('k') ? 1e3 : text.ends_with('M') ? 1e6 : 1;
    double x;
    if (!parse_whole(text.substr(0, text.size() - (unit > 1)), &x) || !limits.hold(x *= unit)) return false;
    if (kWhole && (x != std::floor(x) || x > std::min(0x1p53, double(std::numeric_limits<T>::max())))) return false;
    *out = T(x);
    return limits.hold(double(*out));           // a float is rounded
}

bool set_option(const OptionRow& row, const std::string& text) {
    return std::visit([&](auto* to) {
        using T = std::remove_pointer_t<decltype(to)>;
        if constexpr (std::is_same_v<T, std::string>) {
            *to = text;
            return takes_any_text(row) ? !text.empty() : contains(split(row.value, '|'), text);
        } else if constexpr (std::is_same_v<T, bool>) {
            *to = text == "on" || text == "true";
            return *to || text == "off" || text == "false";
        } else {
            return parse_number(text, row.limits, to);
        }
    }, row.to);
}

std::string wanted(const OptionRow& row) {
    return std::visit([&](const auto* value) -> std::string {
        using T = std::decay_t<decltype(*value)>;
        if (std::is_same_v<T, std::string> || std::is_same_v<T, bool>) return row.value.empty() ? "on|off" : row.value;
        return (std::is_integral_v<T> ? "a whole number " : "a number ") + std::string(row.limits.want);
    }, row.to);
}

std::string help_line(const OptionRow& row, const std::string& help, int width, bool defaults) {
    const std::string value = value_text(row), left = row.name + " " + row.value;
    const bool has = defaults && !row.value.empty() && !value.empty() && set_option(row, value);
    return format("  %-*s %s%s\n", width, left.c_str(), help.c_str(), has ? (" (default " + value + ")").c_str() : "");
}

// ---- words

bool is_option(const std::string& word) { return word.size() > 1 && word[0] == '-'; }

std::string option_name(const std::string& word) { return replaced(word.substr(0, word.find('=')), '_', '-'); }

void refuse_option(const std::string& name, const std::string& got, const std::string& want) {
    die(kExitUsage, "%s: got %s, want %s", name.c_str(), got.c_str(), want.c_str());
}

void unknown_option(const std::string& name, const Words& known) {
    const auto without_dashes = [](const std::string& x) { return x.starts_with("--") ? x.substr(2) : x; };
    const std::string typed = replaced(name, '_', '-'), bare = typed.substr(typed.starts_with("--") ? 2 : 1);
    std::string meant;
    size_t least = bare.size() / 4 + 2;
    for (const std::string& names : known)
        for (const std::string& other : split(names)) {
            const std::string own = names.substr(0, names.find(' '));
            const bool half = bare.size() >= 3 && without_dashes(own).starts_with(bare);
            const size_t distance = other == typed ? 0 : half ? 1 : edit_distance(bare, without_dashes(other));
            if (distance < least) meant = own, least = distance;
        }
    die(kExitUsage, "unknown option %s; %s", shown(name).c_str(),
        meant.empty() ? "--help lists all" : ("did you mean " + meant + "?").c_str());
}

std::string option_value(const OptionRow& row, const Words& words, size_t* i, const std::string& want) {
    const std::string& word = words[*i];
    if (const size_t equals = word.find('='); equals != word.npos) return word.substr(equals + 1);
    if (row.value.empty()) return "on";
    const std::string next = *i + 1 < words.size() ? words[*i + 1] : "--";
    double x;
    const bool fits = std::holds_alternative<std::string*>(row.to) ? !next.starts_with('-') : parse_whole(next, &x);
    if (*row.alone && !fits) return row.alone;
    if (next.starts_with("--")) refuse_option(row.name, "no value", want);
    ++*i;
    return next;
}
