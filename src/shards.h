// shards.h -- files of tokens and files of text: what kind a file is, and reading runs of tokens from it. Used by data.cpp.
//
// Tokens are read with pread into the caller's memory, not through a mapping: a file that is cut short while a run trains is
// then an Error that names it, not a SIGBUS. All counts and offsets have 64 bits.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

enum class Format {
    text,       // one document, or one of several
    jsonl,      // a JSON object on each line, its "text" a document
    npy,        // numpy.save of a one-dimensional array of integers
    llmc,       // llm.c's header, then uint16 or uint32
    raw,        // uint16 without a header (nanoGPT)
};
const char* format_name(Format format);                     // "text", "an llm.c token shard"

// The files that a --data path means (a file, the files of a folder, the matches of a glob), all of one format, sorted.
struct Source {
    std::string path;                                       // as given
    std::vector<std::string> files;
    Format format = Format::text;
    uint64_t bytes = 0;                                     // of all files
    size_t folders = 0;                                     // in the folder or among the matches: not looked into
    bool is_text() const { return format == Format::text || format == Format::jsonl; }
};
Source find_source(const std::string& path);                // 66 nothing there, 65 not data or not all of one kind

// Takes out the files whose name has the word val, valid or validation ("fineweb_val_000000.bin", "val.bin"), unless all or none
// has. A lone "train.bin" finds the "val.bin" beside it, as nanoGPT's scripts write them. No files: none there.
Source take_validation(Source* source);

// What identifies the content of files: sizes and bytes, not names. Up to 1 GiB in all every byte counts; beyond it 1,024 or
// more blocks of 64 KiB, evenly spaced over each file. 16 hexadecimal digits.
std::string content_hash(const std::vector<std::string>& files);

struct InputFile {                                          // open for reading; shared by the shards that lie in it
    uint64_t size = 0;
    const int fd;
    const std::string path;
    explicit InputFile(const std::string& path);            // 66 missing or not a regular file
    ~InputFile();
    InputFile(const InputFile&) = delete;
    InputFile& operator=(const InputFile&) = delete;
    void read(uint64_t offset, void* out, size_t bytes) const;      // 65 if the file ends before
};

// A run of tokens: in a file, in memory, or told by the stories' generator.
struct Shard {
    enum Kind { u8, u16, u32, i32, i64, stories } kind = u8;
    uint64_t tokens = 0;
    std::string name;                                       // for messages
    uint64_t begin = 0;                                     // number of the first token within its file, memory or stories
    std::shared_ptr<InputFile> file;                        // in a file: tokens start at this byte
    uint64_t offset = 0;
    const char* memory = nullptr;                           // in memory, kept alive by owner (null: by the ranks' shared segment)
    std::shared_ptr<void> owner;
    uint64_t seed = 0;                                      // stories: slot k, kStorySlot tokens, holds story k: eot, text, eot ...
    int eot = 0;

    // Tokens [first, first + n). Error 65 if one is not in 0..vocab_size-1. Safe from several threads.
    void read(uint64_t first, size_t n, int* out, int vocab_size) const;
    Shard part(uint64_t first, uint64_t n) const;
};
Shard open_token_file(const std::string& path, Format format);      // npy, llmc, raw

// Byte where character number floor(9 n / 10) of n characters begins (nanoGPT's int(n * 0.9)); a character is whatever is not
// a continuation byte of UTF-8.
size_t nine_tenths(std::string_view text);
inline uint64_t nine_tenths_of(uint64_t n) { return n / 10 * 9 + n % 10 * 9 / 10; }

// Length of a beginning of text, at least `want` bytes if there is so much, that can be encoded apart from the rest and gives the
// same tokens: GPT-2's pieces never hold white space after something else, so it ends where white space follows something else.
size_t safe_chunk(std::string_view text, size_t want);
