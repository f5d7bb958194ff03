// shards.h -- finds the files that a --data path means, and reads consecutive tokens from files or memory.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>
#include "src/base/file.h"

enum class Format {
    text,   // plain text: each file is one document; build/prep alone tells apart the first four
    jsonl,  // JSON objects: the "text" of each is a document,
    chat,   // or each is a conversation (src/text/chat.h),
    pairs,  // or a prompt and its completion
    npy,    // numpy.save of a one-dimensional array of uint16 or uint32
    llmc,   // llm.c's header, then uint16, or uint32 for Llama 3
    raw,    // numbers without a header: NAME.u16.bin, NAME.u32.bin or NAME.u64.bin; another .bin has uint16 (nanoGPT)
};
const char* format_name(Format format);         // "text", "an llm.c token shard"

// The files that a path means: a file, the files of a folder, or the matches of a glob; all of one format, and sorted.
struct Source {
    std::string path;                           // as given
    std::vector<std::string> files = {};
    std::vector<std::string> others = {};       // what is there and not taken, but for hidden files
    Format format = Format::text;
    int skip_bad_lines = 0;                     // as the option
    bool is_text() const { return format <= Format::pairs; }
    bool is_masked() const { return format == Format::chat || format == Format::pairs; }
    bool has_documents() const { return is_text() && (format != Format::text || files.size() > 1); }
};
// Returns the path itself, the matches of a glob, or the files of a folder; without a format. Of a folder it leaves out
// hidden files, backups, and files about data, such as README.md, unless there are no others. It takes the files of
// the folders in it if it has none itself, as data/train-00000-of-00001.jsonl beside a README.md.
Source find_files(const std::string& path);
Source find_source(const std::string& path);    // kExitNoInput; kExitBadContent: not data of one kind
// Throws kExitBadContent unless all files of a source have its format. format_of(file) returns a file's format.
void check_formats(const Source& source, const std::function<Format(const std::string& file)>& format_of);

// Moves the files with the word test in their name to `others`, and those with val, valid, validation, dev or eval to
// the result, unless all have such a word. A name counts from the folder given on. For a lone "train.bin" returns the
// "val.bin" beside it. Returns no files if there are none.
Source take_validation(Source* source);
// Returns "; training: a.txt, b.txt; validation: valid.txt; not taken: test.txt"; "" for a lone file.
std::string describe_files(const Source& train, const Source& val);

// Finds a file of data/ or build/data/ beside or above the program, else in ./data; kExitNoInput says what to do.
std::string find_data_file(const std::string& name, const char* what_to_do);

// Returns a hash of the files' sizes and bytes, not of their names. Of more than kHashed bytes in all, it reads evenly
// spaced blocks of 64 KiB alone, and does not see a change between them. crcs: gets each file's CRC-32C, if all bytes
// were read.
constexpr uint64_t kHashed = 1 << 30;
using InputFiles = std::vector<std::shared_ptr<InputFile>>;
uint64_t content_hash(const InputFiles& files, std::vector<uint32_t>* crcs = nullptr);
// Opens one file at a time. all: reads all bytes of any number; alike for no more than kHashed.
uint64_t content_hash(const std::vector<std::string>& files, bool all = false);

// Compares files with the manifest.json that build/prep wrote beside them. kExitBadContent names a file that is not in
// it or has changed. crcs: from content_hash; empty: they are not compared.
void check_manifest(const Source& source, const std::vector<uint32_t>& crcs);

// This bit of a token of 4 bytes says that it is not trained on.
constexpr uint32_t kUntrained = 1u << 31;

// Consecutive tokens in a file.
struct Shard {
    size_t width = 2;                   // bytes of a token: 2, 4 or 8, unsigned, little-endian
    uint64_t begin = 0, tokens = 0;     // where they begin in the file; how many
    std::string name;                   // for messages
    std::shared_ptr<InputFile> file = {};
    uint64_t offset = 0;                // where the file's first token begins, in bytes
    bool masked = false;                // tokens that are not trained on have the bit kUntrained

    // Reads tokens [first, first + n) with their bit kUntrained; safe from any thread. kExitBadContent: one is not
    // below vocab_size.
    void read(uint64_t first, size_t n, int* out, int vocab_size) const;
};
Shard open_token_file(const std::string& path, Format format);  // npy, llmc, raw; comm_create has raised ulimit -n

inline uint64_t nine_tenths_of(uint64_t n) { return n / 10 * 9 + n % 10 * 9 / 10; }
