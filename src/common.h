// common.h -- errors, exit codes and small text helpers; everything includes it.
//
// An error is thrown where it is found and printed once, in main: nothing below main ends the process, so tests and
// fuzzers can call every reader. One line on stderr:
//
//     train_gpt[rank 1 step 12]: error: what: subject: got X, want Y; what to do
#pragma once
#include <charconv>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

enum ExitCode {
    kExitDone = 0,
    kExitOther = 1,       // memory, threads, an internal error
    kExitUsage = 2,       // a wrong option
    kExitBadContent = 65, // a file's bytes are not what they should be
    kExitNoInput = 66,    // a file is missing
    kExitPeer = 69,       // another rank is lost or stuck
    kExitWrite = 74,      // a write failed
    kExitStopped = 75,    // stopped on request, saved; run again to go on
    kExitDisagree = 80,   // the replicas disagree
};

struct Error {
    int code;             // an ExitCode
    std::string message;  // one line, without the "train_gpt: error: " in front
};

// Throws Error{code, message}. Bytes of the message below 0x20 are written as \xNN, so a file's text cannot drive a terminal.
[[noreturn]] void die(int code, const char* format, ...) __attribute__((format(printf, 2, 3)));

// An assertion about the program itself, never about input.
#define CHECK(condition, ...) \
    do { if (!(condition)) die(kExitOther, "internal error: " __VA_ARGS__); } while (0)

// Prints "train_gpt[rank R step S]: error: message" to stderr in one write; for main and for threads that must end the process.
void print_error(const Error& error);
// A line "train_gpt[...]: warning: ..." on stderr.
void warn(const char* format, ...) __attribute__((format(printf, 1, 2)));

// What print_error and warn put in front; rank -1 (one process) and step -1 (not training) are left out.
void set_program(const char* name);
void set_program_path(const char* argv0);              // and how a user calls it again: "./train_gpt"
const char* typed_program();
std::string tools_folder();                            // where a user finds the tools from there: "build/"
std::string shell_quote(const std::string& word);      // as a shell wants it: 'my run'
void set_error_rank(int rank);
void set_error_step(int64_t step);

std::string format(const char* format, ...) __attribute__((format(printf, 1, 2)));
std::string vformat(const char* format, va_list args);
std::string with_commas(uint64_t n);                   // 1234567 -> "1,234,567"
// All of text as a number of T: no locale, no blanks, no other base; false if it is none or T cannot hold it.
template <class T> bool parse_whole(std::string_view text, T* out) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
    return error == std::errc() && end == text.data() + text.size();
}
std::string_view next_word(std::string_view* rest, char separator);    // the text up to it; both are taken from the front of *rest
std::string escape_control(std::string_view text);     // bytes below 0x20 and 0x7f as \xNN
double now_seconds();                                  // monotonic clock
size_t edit_distance(std::string_view a, std::string_view b);   // Levenshtein; for "did you mean"

// a * b and a + b that throw kExitBadContent("<what>: size overflows") instead of wrapping; for numbers read from files.
uint64_t checked_mul(uint64_t a, uint64_t b, const char* what);
uint64_t checked_add(uint64_t a, uint64_t b, const char* what);

template <class T> constexpr T ceil_div(T a, T b) { return (a + b - 1) / b; }
template <class T> constexpr T round_up(T a, T b) { return ceil_div(a, b) * b; }
