// shards.h -- recognises files of tokens, and opens them.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>
#include "src/data/data.h"

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
Format format_of(const std::string& path);      // text: it is none of tokens, and build/prep knows more

// Finds a file of data/ or build/data/ beside or above the program, else in ./data; kExitNoInput says what to do.
std::string find_data_file(const std::string& name, const char* what_to_do);
std::string find_story(const char* name);       // a file of the built-in text

// Returns a hash of the files' sizes and bytes, not of their names. Of more than kHashed bytes in all, it reads evenly
// spaced blocks of 64 KiB alone, and does not see a change between them. crcs: gets each file's CRC-32C, if all bytes
// were read.
constexpr uint64_t kHashed = 1 << 30;
uint64_t content_hash(const InputFiles& files, std::vector<uint32_t>* crcs = nullptr);
// Opens one file at a time. all: reads all bytes of any number; alike for no more than kHashed.
uint64_t content_hash(const std::vector<std::string>& files, bool all = false);

struct Listed { uint64_t tokens; uint32_t crc; };         // a shard in the manifest
// Reads what build/prep has recorded about a folder's shards; returns none if it did not make the folder.
// kExitBadContent if it has not finished there.
std::map<std::string, Listed> read_manifest(const std::string& folder);
// Compares files with the manifest.json that build/prep wrote beside them. kExitBadContent names a file that is not in
// it or has changed. crcs: from content_hash; empty: they are not compared.
void check_manifest(const std::vector<std::string>& files, const std::vector<uint32_t>& crcs);

Shard open_token_file(const std::string& path);     // npy, llmc, raw; comm_create has raised ulimit -n

inline uint64_t nine_tenths_of(uint64_t n) { return n / 10 * 9 + n % 10 * 9 / 10; }
