// common.h -- errors, exit codes, small text helpers, limits of options.
//
// An error is thrown where it is found and printed once, in main, as one line on stderr:
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
    kExitOther = 1,         // no memory, no thread, or an internal error
    kExitUsage = 2,         // a wrong option
    kExitBadContent = 65,   // a file's bytes are not what they should be
    kExitNoInput = 66,      // a file is missing
    kExitPeer = 69,         // another rank is lost or stuck
    kExitWrite = 74,        // a write failed
    kExitStopped = 75,      // stopped on request, saved; run again to go on
    kExitDisagree = 80,     // ranks disagree: on options, data, or what they have computed
};

struct Error {
    int code;               // an ExitCode
    std::string message;    // one line, without the "train_gpt: error: " in front
};

// Throws an Error.
[[noreturn]] void die(int code, const char* format, ...) __attribute__((format(printf, 2, 3)));
// Throws kExitBadContent, "WHERE: got GOT, want WANT".
[[noreturn]] void die_content(const std::string& where, const std::string& got,
                              const std::string& want);

// Asserts something about the program itself, never about input.
#define CHECK(condition, ...) \
    do { if (!(condition)) die(kExitOther, "internal error: " __VA_ARGS__); } while (0)

// These two print one line to stderr. Control characters are escaped, so that a file's text cannot
// control a terminal.
void print_error(const Error& error);
void warn(const char* format, ...) __attribute__((format(printf, 1, 2)));
void set_program(const char* name);             // the name in front of those lines
void set_error_rank(int rank);                  // -1: not shown (one process)
void set_error_step(int64_t step);              // -1: not shown (not training)
int64_t current_step();                         // the step last set

std::string format(const char* format, ...) __attribute__((format(printf, 1, 2)));
std::string vformat(const char* format, va_list args);
std::string with_commas(uint64_t n);            // 1234567 -> "1,234,567"
// Returns x, and a NaN without its sign: the NaN that x86 makes by default has one, and printf
// would show it.
inline double plain(double x) { return x == x ? x : __builtin_nan(""); }
// Returns text with control characters, except those in `keep`, as \xNN, and with bytes that are
// not UTF-8 as U+FFFD.
std::string escape_control(std::string_view text, std::string_view keep = "");
std::string join(const std::vector<std::string>& words, const char* separator);
std::string shell_quote(const std::string& word);  // 'my run'
// Removes the word and the separator from *rest.
std::string_view next_word(std::string_view* rest, char separator);
size_t edit_distance(std::string_view a, std::string_view b);  // Levenshtein; for "did you mean"
double now_seconds();                           // monotonic clock
std::string clock_text(double seconds);         // 3725 -> "1:02:05"

// Tells how far a long piece of work is. at() prints a line on stderr, on rank 0 alone and at most
// every 10 s: "val 3,120 of 19,531 batches, 4:10 left". Where nothing is counted, the line is "the
// save, 0:20 so far".
struct Countdown {
    std::string what;
    uint64_t all = 0;
    const char* unit = "";
    double began = now_seconds(), printed = began;
    void at(uint64_t done = 0);
};

// Reads the whole text as a decimal number, whatever the locale is; blanks are not allowed. Returns
// false if it is no number or T cannot hold it.
template <class T> bool parse_whole(std::string_view text, T* out) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
    return error == std::errc() && end == text.data() + text.size();
}

template <class T> std::string bytes_of(const T& x) {
    return {reinterpret_cast<const char*>(&x), sizeof x};
}
template <class T> constexpr T ceil_div(T a, T b) { return (a + b - 1) / b; }
template <class T> constexpr T round_up(T a, T b) { return ceil_div(a, b) * b; }

// ---- the ranges of numbers that options accept: models and optimizers use them, too

// The numbers from low to high. want: the same in words, for errors.
struct Limits {
    const char* want;
    double low, high;
    bool hold(double x) const { return x >= low && x <= high; }
};

constexpr Limits kPositive = {"> 0", 0x1p-126, 1e30};           // from the smallest normal float
constexpr Limits kShare = {"> 0 and <= 1", 0x1p-126, 1};
constexpr Limits kNotNegative = {">= 0", 0, 1e30};
constexpr Limits kBelowOne = {">= 0 and < 1", 0, 0x1.fffffep-1};    // to the largest float below 1
constexpr Limits kTiny = {"from 1e-30 to 1", 1e-30, 1};     // a smaller float would divide by zero
constexpr Limits kSize = {"from 1 to 65536", 1, 65536};
constexpr Limits kHeads = {"from 1 to 1024", 1, 1024};
constexpr Limits kLayers = {"from 1 to 4096", 1, 4096};
constexpr Limits kContext = {"from 1 to 2147483647", 1, 2147483647};

// ---- points in the program at which tests can cause a fault
//
// A test program links tests/fault.cpp, which causes the fault that LOCKSTEP_FAULT describes;
// without that file nothing happens at these points.

[[gnu::weak]] void fault_hook(const char* point, int rank, int64_t step, float* numbers, size_t n);

// Marks such a point. numbers: n of them, in device memory, that can be damaged here. Any thread
// may call it. A CUDA graph that is replayed has none of its points.
inline void fault_point(const char* point, int rank, int64_t step, float* numbers = nullptr,
                        size_t n = 0) {
    if (fault_hook) fault_hook(point, rank, step, numbers, n);
}
