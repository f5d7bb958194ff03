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
    text,   // plain text: each file is one document; only build/prep tells the first four apart
    jsonl,  // JSON objects; the "text" of each is a document
    chat,   // JSON objects; each is a conversation (tools/text/chat.h)
    pairs,  // JSON objects; each is a prompt and its completion
    npy,    // numpy.save of a one-dimensional array of uint16 or uint32
    llmc,   // llm.c's header, then uint16, or uint32 for Llama 3
    raw,    // numbers without a header: NAME.u16.bin, NAME.u32.bin, NAME.u64.bin; any other .bin is uint16 (nanoGPT)
};
Format format_of(const std::string& path);      // npy, llmc or raw; text for everything else

// Returns the path of data/NAME beside the program, in build/ there, one or two folders above it, or in ./data.
// kExitNoInput: it is in none of them; what_to_do ends that message.
std::string find_data_file(const std::string& name, const char* what_to_do);
std::string find_story(const char* name);       // finds a file of the built-in text

// Returns a hash of the files' sizes and bytes, not of their names. If there are more than kHashed bytes, it reads only
// evenly spaced blocks of 64 KiB and misses changes between them. *crcs gets each file's CRC-32C if all was read.
constexpr uint64_t kHashed = 1 << 30;
uint64_t content_hash(const InputFiles& files, std::vector<uint32_t>* crcs = nullptr);
// The same with one file open at a time. all: reads all bytes even if there are more than kHashed.
uint64_t content_hash(const std::vector<std::string>& files, bool all = false);

struct Listed { uint64_t tokens; uint32_t crc; };         // a shard in manifest.json: its size and CRC-32C
// Reads the manifest.json in which build/prep has listed a folder's shards, by name; {} if there is none.
// kExitBadContent if build/prep has not completed the folder.
std::map<std::string, Listed> read_manifest(const std::string& folder);
// Compares shards with the manifest.json beside them, if there is one. kExitBadContent names a file that it does not
// list or that has changed. crcs: from content_hash; if empty, CRCs are not compared.
void check_manifest(const std::vector<std::string>& files, const std::vector<uint32_t>& crcs);

Shard open_token_file(const std::string& path);     // npy, llmc, raw; it stays open: comm_create raises ulimit -n

inline uint64_t nine_tenths_of(uint64_t n) { return n / 10 * 9 + n % 10 * 9 / 10; }
