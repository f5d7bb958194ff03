// reader.h -- reads files in pieces and finds files by patterns, for what reads the world's files: prep, import, info.
#pragma once
#include <memory>
#include "src/base/common.h"
#include "src/base/file.h"

// Reads a file in pieces, from its start to its end.
struct FileReader {
    const std::shared_ptr<const InputFile> file;
    explicit FileReader(const std::string& path) : file(std::make_shared<InputFile>(path)) {}
    // Returns the next bytes: n or more, fewer only at the end of the file. They are valid until the next call.
    std::string_view look(uint64_t n);
    void take(size_t n) { taken += n; }                     // moves on by n of the bytes that look returned
    bool line(std::string_view* out);                       // reads the next line, without '\n'; false: no line is left
  private:
    std::string ahead = {};
    size_t taken = 0;                                       // how many bytes of `ahead` were taken
    uint64_t at = 0;                                        // offset in the file of the byte after `ahead`
};

// Returns a * b, for numbers that were read from a file. kExitBadContent if the product overflows.
inline uint64_t checked_mul(uint64_t a, uint64_t b, const char* what) {
    if (uint64_t product; !__builtin_mul_overflow(a, b, &product)) return product;
    die(kExitBadContent, "%s: size overflows", what);
}

// Returns the paths that match a pattern as in a shell (* ? [...] \x), sorted. folder: where the pattern begins; its
// name is no pattern.
std::vector<std::string> expand_glob(const std::string& pattern, const std::string& folder = "");
