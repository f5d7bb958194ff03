// shards.h -- which files a --data path means, and reading runs of tokens from files or memory.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>
#include "src/base/file.h"

enum class Format {
    text,   // one document, or one of several
    jsonl,  // a JSON object on each line, its "text" a document
    chat,   // the same with conversations: see chat.h
    pairs,  // or with prompts and completions
    npy,    // numpy.save of a one-dimensional array of uint16 or uint32
    llmc,   // llm.c's header, then uint16, or uint32 of Llama 3
    raw,    // uint16 without a header (nanoGPT)
};
const char* format_name(Format format);         // "text", "an llm.c token shard"

// A file, the files of a folder, the matches of a glob: all of one format, sorted.
struct Source {
    std::string path;                           // as given
    std::vector<std::string> files = {};
    Format format = Format::text;
    bool is_text() const { return format <= Format::pairs; }
    bool is_masked() const { return format == Format::chat || format == Format::pairs; }
    bool has_documents() const { return is_text() && (format != Format::text || files.size() > 1); }
};
// The files of a folder but hidden ones, the path itself, or what matches a glob; sorted.
std::vector<std::string> find_files(const std::string& path);
Source find_source(const std::string& path);    // kExitNoInput; kExitBadContent: not data of one kind

// Moves the files with the word val, valid or validation in their name to the result, unless all or none have it. For a
// lone "train.bin" returns the "val.bin" beside it. Returns no files if there are none.
Source take_validation(Source* source);

// Finds a file of data/ or build/data/ beside or above the program, else in ./data; kExitNoInput says what to do.
std::string find_data_file(const std::string& name, const char* what_to_do);

// Identifies the content of files by sizes and bytes, not names. Of more than kHashed bytes in all, evenly spaced
// blocks of 64 KiB count: a change between them is not seen. crcs: gets each file's CRC-32C, if all bytes count.
constexpr uint64_t kHashed = 1 << 30;
using InputFiles = std::vector<std::shared_ptr<InputFile>>;
uint64_t content_hash(const InputFiles& files, std::vector<uint32_t>* crcs = nullptr);
uint64_t content_hash(const std::vector<std::string>& files);   // opens one at a time

// Holds files to the manifest.json that build/prep left beside them. kExitBadContent names one that is missing, not of
// it, or has changed. crcs: as content_hash gives them; empty: they are not compared.
void check_manifest(const Source& source, const std::vector<uint32_t>& crcs);

// Consecutive tokens in a file or in memory.
struct Shard {
    size_t width = 2;                   // bytes of a token: 2 or 4, unsigned, little-endian
    uint64_t begin = 0, tokens = 0;     // which of the file or memory
    std::string name;                   // for messages
    std::shared_ptr<InputFile> file = {};   // null: in memory
    uint64_t offset = 0;                // of the file's first token, bytes
    const char* memory = nullptr;
    bool masked = false;                // tokens that are not trained on have the bit kUntrained
    std::shared_ptr<void> owner = {};   // frees memory; null: it is comm's

    // Reads tokens [first, first + n) with kUntrained. kExitBadContent if one is not below vocab_size. Any thread.
    void read(uint64_t first, size_t n, int* out, int vocab_size) const;
};
Shard open_token_file(const std::string& path, Format format);  // npy, llmc, raw; comm_create has raised ulimit -n

// A text without the byte order mark that may stand at its begin.
inline std::string_view without_mark(std::string_view text) {
    return text.substr(text.starts_with("\xef\xbb\xbf") ? 3 : 0);
}
inline bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == line.npos; }
size_t nine_tenths(std::string_view text);  // byte where character floor(9 n / 10) of n begins
inline uint64_t nine_tenths_of(uint64_t n) { return n / 10 * 9 + n % 10 * 9 / 10; }
