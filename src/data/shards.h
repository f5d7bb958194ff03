// shards.h -- finds the files that a --data path means, and opens those that hold tokens.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>
#include "src/data/data.h"

enum class Format {
    text,   // plain text: each file is one document
    jsonl,  // a JSON object on each line; build/prep alone tells apart these three: the "text" is a document,
    chat,   // or the line is a conversation (src/text/chat.h),
    pairs,  // or a prompt and its completion
    npy,    // numpy.save of a one-dimensional array of uint16 or uint32
    llmc,   // llm.c's header, then uint16, or uint32 for Llama 3
    raw,    // uint16 without a header (nanoGPT)
};
const char* format_name(Format format);         // "text", "an llm.c token shard"

// The files that a path means: a file, the files of a folder, or the matches of a glob; all of one format, and sorted.
struct Source {
    std::string path;                           // as given
    std::vector<std::string> files = {};
    Format format = Format::text;
    bool is_text() const { return format <= Format::pairs; }
    bool is_masked() const { return format == Format::chat || format == Format::pairs; }
    bool has_documents() const { return is_text() && (format != Format::text || files.size() > 1); }
};
// Returns the files of a folder except hidden ones, or the path itself, or the matches of a glob; sorted.
std::vector<std::string> find_files(const std::string& path);
Source find_source(const std::string& path);    // kExitNoInput; kExitBadContent: not data of one kind
// Throws kExitBadContent unless all files of a source have its format. format_of(file) returns a file's format.
void check_formats(const Source& source, const std::function<Format(const std::string& file)>& format_of);

// Moves the files with the word val, valid or validation in their name to the result, unless all or none have it. For a
// lone "train.bin" returns the "val.bin" beside it. Returns no files if there are none.
Source take_validation(Source* source);

// Finds a file of data/ or build/data/ beside or above the program, else in ./data; kExitNoInput says what to do.
std::string find_data_file(const std::string& name, const char* what_to_do);

// Returns a hash of the files' sizes and bytes, not of their names. Of more than kHashed bytes in all, it reads evenly
// spaced blocks of 64 KiB alone, and does not see a change between them. crcs: gets each file's CRC-32C, if all bytes
// were read.
constexpr uint64_t kHashed = 1 << 30;
uint64_t content_hash(const InputFiles& files, std::vector<uint32_t>* crcs = nullptr);
// Opens one file at a time. all: reads all bytes of any number; alike for no more than kHashed.
uint64_t content_hash(const std::vector<std::string>& files, bool all = false);

// Compares files with the manifest.json that build/prep wrote beside them. kExitBadContent names a file that is not in
// it or has changed. crcs: from content_hash; empty: they are not compared.
void check_manifest(const Source& source, const std::vector<uint32_t>& crcs);

Shard open_token_file(const std::string& path, Format format);  // npy, llmc, raw; comm_create has raised ulimit -n

inline uint64_t nine_tenths_of(uint64_t n) { return n / 10 * 9 + n % 10 * 9 / 10; }
