// common.cpp -- the text helpers of common.h, and the one place where an error becomes a line.
#include "common.h"
#include <algorithm>
#include <ctime>
#include <unistd.h>

namespace {
const char *program = "train_gpt", *path = "./train_gpt";
int error_rank = -1;
int64_t error_step = -1;

void print_line(const char* kind, const std::string& message) {
    std::string where;
    if (error_rank >= 0) where += format("rank %d", error_rank);
    if (error_step >= 0) where += format("%sstep %lld", where.empty() ? "" : " ", (long long)error_step);
    if (!where.empty()) where = "[" + where + "]";
    const std::string line = std::string(program) + where + ": " + kind + ": " + escape_control(message) + "\n";
    for (size_t done = 0; done < line.size();) {        // one write, so that lines of several ranks do not mix
        const ssize_t n = ::write(2, line.data() + done, line.size() - done);
        if (n <= 0) break;
        done += size_t(n);
    }
}
}  // namespace

std::string vformat(const char* format, va_list args) {
    va_list again;
    va_copy(again, args);
    const int n = std::vsnprintf(nullptr, 0, format, args);
    std::string text(size_t(std::max(n, 0)), '\0');
    std::vsnprintf(text.data(), text.size() + 1, format, again);
    va_end(again);
    return text;
}

void die(int code, const char* format, ...) {
    va_list args;
    va_start(args, format);
    Error error{code, vformat(format, args)};
    va_end(args);
    throw error;
}

void print_error(const Error& error) { print_line("error", error.message); }

void warn(const char* format, ...) {
    va_list args;
    va_start(args, format);
    const std::string message = vformat(format, args);
    va_end(args);
    print_line("warning", message);
}

void set_program(const char* name) { program = name; }
void set_program_path(const char* argv0) { path = argv0; }
const char* typed_program() { return path; }
std::string tools_folder() {
    const std::string all = path;
    std::string folder = all.substr(0, all.rfind('/') == std::string::npos ? 0 : all.rfind('/') + 1);
    if (folder == "./") folder.clear();
    return folder.ends_with("build/") ? folder : folder + "build/";
}

std::string shell_quote(const std::string& word) {
    const bool plain = !word.empty() && word[0] != '-' &&
        word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./+:,@%=") == std::string::npos;
    if (plain) return word;
    std::string quoted = "'";
    for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return quoted + "'";
}
void set_error_rank(int rank) { error_rank = rank; }
void set_error_step(int64_t step) { error_step = step; }

std::string format(const char* format, ...) {
    va_list args;
    va_start(args, format);
    std::string text = vformat(format, args);
    va_end(args);
    return text;
}

std::string with_commas(uint64_t n) {
    std::string text = std::to_string(n);
    for (size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
    return text;
}

std::string_view next_word(std::string_view* rest, char separator) {
    const std::string_view word = rest->substr(0, rest->find(separator));
    rest->remove_prefix(std::min(rest->size(), word.size() + 1));
    return word;
}

std::string escape_control(std::string_view text) {
    std::string out;
    for (const char c : text) {
        const unsigned char byte = (unsigned char)c;
        if (byte < 0x20 || byte == 0x7f) out += format("\\x%02x", byte);
        else out += c;
    }
    return out;
}

double now_seconds() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<size_t> row(b.size() + 1);
    for (size_t j = 0; j <= b.size(); j++) row[j] = j;
    for (size_t i = 1; i <= a.size(); i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b.size(); j++) {
            const size_t change = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = std::min({change, row[j] + 1, row[j - 1] + 1});
        }
    }
    return row[b.size()];
}

uint64_t checked_mul(uint64_t a, uint64_t b, const char* what) {
    uint64_t product;
    if (__builtin_mul_overflow(a, b, &product)) die(kExitBadContent, "%s: size overflows: %llu x %llu", what, (unsigned long long)a, (unsigned long long)b);
    return product;
}

uint64_t checked_add(uint64_t a, uint64_t b, const char* what) {
    uint64_t sum;
    if (__builtin_add_overflow(a, b, &sum)) die(kExitBadContent, "%s: size overflows: %llu + %llu", what, (unsigned long long)a, (unsigned long long)b);
    return sum;
}
