// token_files.h -- recognises files of tokens, and opens them.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>
#include "src/base/json.h"
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

// Returns the distance in bytes between the blocks that content_hash reads: kFileBlock, or more if there are more than
// kHashed bytes in all.
constexpr uint64_t kHashed = 1 << 30;
uint64_t hashed_every(const std::vector<std::string>& files);
// Returns a hash of the files' sizes and of their blocks that begin at multiples of `every` bytes, not of their names.
// *crcs gets each file's checksum of these blocks.
uint64_t content_hash(const std::vector<std::string>& files, uint64_t every, std::vector<uint32_t>* crcs = nullptr);
// Returns the hash that identifies a dataset. content: describes its files and tokenizer, and has " begin+count" for
// its tokens in each shard.
std::string data_hash(const std::string& content);

using Given = std::map<uint64_t, double>;        // Shard::given
std::string given_json(const Given& given);
Given read_given(const Json& list, const char* what);

// A file in manifest.json: its number of tokens, its CRC-32C, whether it is for validation, Shard::given or {}.
struct Listed { uint64_t tokens, crc; bool validation; Given given; };
// Reads the manifest.json in which build/prep, or a script of the user, has listed a folder's shards, by name; {} if
// there is none. A shard without a CRC-32C has kNoCrc. kExitBadContent if build/prep has not completed the folder.
constexpr uint64_t kNoCrc = UINT64_MAX;
std::map<std::string, Listed> read_manifest(const std::string& folder);
// Compares token files with the manifest.json beside them, if there is one. kExitBadContent names a file that it does
// not list or that has changed. crcs: from content_hash, of all blocks; if empty, CRCs are not compared.
void check_manifest(const std::vector<std::string>& files, const std::vector<uint32_t>& crcs);

Shard open_token_file(const std::string& path);     // npy, llmc, raw; it stays open: comm_create raises ulimit -n

inline uint64_t nine_tenths_of(uint64_t n) { return n / 10 * 9 + n % 10 * 9 / 10; }
