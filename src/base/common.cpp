// common.cpp -- see common.h.
#include "src/base/common.h"
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <unistd.h>
#include "src/base/utf8.h"

static const char* program = "train_gpt";
static std::atomic<int> error_rank{-1};         // threads beside the main one print errors too
static std::atomic<int64_t> error_step{-1};

void set_program(const char* name) { program = name; }
void set_error_rank(int rank) { error_rank = rank; }
void set_error_step(int64_t step) { error_step = step; }
int64_t current_step() { return error_step; }

// Writes the line in one call, so that lines of several ranks do not mix.
static void print_line(const char* kind, const std::string& message) {
    std::string where;
    if (const int rank = error_rank; rank >= 0) where += format(" rank %d", rank);
    if (const int64_t step = error_step; step >= 0) where += format(" step %ld", step);
    if (!where.empty()) where = "[" + where.substr(1) + "]";
    const std::string line = program + where + ": " + kind + ": " + escape_control(message) + "\n";
    if (::write(2, line.data(), line.size()) < 0) return;       // there is no stderr to tell that
}

void print_error(const Error& error) { print_line("error", error.message); }

void warn(const char* format, ...) {
    va_list args;
    va_start(args, format);
    const std::string message = vformat(format, args);
    va_end(args);
    print_line("warning", message);
}

void die(int code, const char* format, ...) {
    va_list args;
    va_start(args, format);
    Error error{code, vformat(format, args)};
    va_end(args);
    throw error;
}

void die_content(const std::string& where, const std::string& got, const std::string& want) {
    throw Error{kExitBadContent, where + ": got " + got + ", want " + want};
}

std::string format(const char* format, ...) {
    va_list args;
    va_start(args, format);
    std::string text = vformat(format, args);
    va_end(args);
    return text;
}

std::string vformat(const char* format, va_list args) {
    char* text = nullptr;
    const int length = ::vasprintf(&text, format, args);
    const std::string copy(text, std::max(length, 0));
    std::free(text);
    return copy;
}

std::string with_commas(uint64_t n) {
    std::string text = std::to_string(n);
    for (size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
    return text;
}

std::string escape_control(std::string_view text, std::string_view keep) {
    std::string out;
    while (!text.empty()) {
        const Utf8Char c = decode_utf8(text);
        const bool control = c.code < 0x20 || (c.code >= 0x7F && c.code < 0xA0);
        if (!c.valid) out += "\uFFFD";
        else if (control && keep.find(text[0]) == keep.npos) out += format("\\x%02x", c.code);
        else out += text.substr(0, c.length);
        text.remove_prefix(c.length);
    }
    return out;
}

std::string join(const std::vector<std::string>& words, const char* separator) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
    return text;
}

std::string shell_quote(const std::string& word) {
    static constexpr char kPlain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_./+:,@%=";
    if (!word.empty() && word[0] != '-' && word.find_first_not_of(kPlain) == word.npos) return word;
    std::string quoted = "'";
    for (const char c : word) {
        if (c == '\'') quoted += "'\\'";
        quoted += c;
    }
    return quoted + "'";
}

std::string_view next_word(std::string_view* rest, char separator) {
    const std::string_view word = rest->substr(0, rest->find(separator));
    rest->remove_prefix(std::min(rest->size(), word.size() + 1));
    return word;
}

size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<size_t> row(b.size() + 1);
    for (size_t j = 0; j <= b.size(); j++) row[j] = j;
    for (size_t i = 0; i < a.size(); i++) {
        size_t diagonal = row[0]++;
        for (size_t j = 0; j < b.size(); j++) {
            const size_t change = diagonal + (a[i] != b[j]);
            diagonal = row[j + 1];
            row[j + 1] = std::min({change, row[j + 1] + 1, row[j] + 1});
        }
    }
    return row.back();
}

double now_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

std::string clock_text(double seconds) {
    const long long s = std::llround(seconds), m = s / 60, h = m / 60;
    return h ? format("%lld:%02lld:%02lld", h, m % 60, s % 60) : format("%lld:%02lld", m, s % 60);
}

void Countdown::at(uint64_t done) {
    const double now = now_seconds(), passed = now - began;
    if (now - printed < 10 || error_rank > 0) return;
    printed = now;
    const std::string count =
        format(" %s of %s %s", with_commas(done).c_str(), with_commas(all).c_str(), unit);
    const double left = done ? passed / done * (all - done) : passed;
    std::fprintf(stderr, "%s%s, %s %s\n", escape_control(what).c_str(), done ? count.c_str() : "",
                 clock_text(left).c_str(), done ? "left" : "so far");
}
