// file.h -- files: mapped reading, checked writing, checksums. Every failure is an Error with the path.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

// A read-only mapping, as long as a copy of this lives; empty files map to size 0.
struct MappedFile {
    const char* data = "";
    uint64_t size = 0;
    std::string path;
    std::shared_ptr<void> mapping;
    std::string_view text() const { return {data, size}; }
};
int open_regular(const std::string& path, const char* what, uint64_t* size);   // for reading; 66 missing or not a regular file
MappedFile map_file(const std::string& path);           // 66
std::string read_file(const std::string& path);         // 66; for small files
std::string read_kernel_file(const std::string& path);  // of /proc and /sys, whose sizes say nothing; "" if it cannot be read

bool file_exists(const std::string& path);
bool is_directory(const std::string& path);
std::vector<std::string> list_directory(const std::string& path);      // names, sorted, without . and ..
std::vector<std::string> expand_glob(const std::string& pattern);      // sorted; empty if nothing matches
void make_directories(const std::string& path);                        // 74
void sync_directory(const std::string& path);                          // fsync of a folder; 74
void remove_tree(const std::string& path);                             // 74
std::string base_name(const std::string& path);
std::string path_join(const std::string& a, const std::string& b);
std::string parent_folder(const std::string& path);                    // of a path without '/' at its end: "a/b" -> "a", "b" -> "."
std::string program_path();                                            // of the running program

// Writes a new file, in blocks, with a checksum of what was given; 74 on any failure, named.
struct FileWriter {
    explicit FileWriter(const std::string& path, bool exists = false);   // exists: one that another rank has made, to write a part of
    ~FileWriter();                                       // closes; without finish() the file is incomplete
    void start_at(uint64_t offset);                      // the next byte goes there; bytes and crc begin anew
    void write(const void* data, size_t bytes);
    void finish();                                       // flush, fsync, close, each checked
    uint64_t bytes = 0;
    uint32_t crc = 0;                                    // CRC-32C of all bytes
    FileWriter(const FileWriter&) = delete;
  private:
    std::string path;
    int fd = -1;
};
// Whole file through a temporary name: fsync, rename, fsync of the folder.
void write_file_atomic(const std::string& path, std::string_view content);

uint32_t crc32c(uint32_t crc, const void* data, size_t bytes);         // start with 0; "123456789" gives e3069283
uint32_t crc32c_join(uint32_t a, uint32_t b, uint64_t bytes_of_b);     // of a file, from those of its two parts
uint32_t crc32c_portable(uint32_t crc, const void* data, size_t bytes);   // what crc32c does where there is no instruction for it
struct Sha256 {                                                        // FIPS 180-4
    Sha256();
    void update(const void* data, size_t bytes);
    std::string hex();                                                 // ends it
    void digest(uint8_t out[32]);
  private:
    uint32_t state[8]; uint8_t block[64]; uint64_t total;
};
uint64_t hash_bytes(const void* data, size_t bytes, uint64_t seed);    // fast, 64 bits; for identities, not for security
