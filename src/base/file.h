// file.h -- files: mapped reading, checked writing, checksums. Every failure is an Error with the path.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// A file descriptor or socket that closes itself; -1 is none.
struct Descriptor {
    int fd;
    explicit Descriptor(int fd = -1) : fd(fd) {}
    Descriptor(Descriptor&& other) : fd(std::exchange(other.fd, -1)) {}
    Descriptor& operator=(Descriptor&& other) { std::swap(fd, other.fd); return *this; }
    ~Descriptor();
};

// A read-only mapping that lives as long as a copy of this. An empty file has size 0.
struct MappedFile {
    const char* data = "";
    uint64_t size = 0;
    std::string path;
    std::shared_ptr<void> mapping = {};
    std::string_view text() const { return {data, size}; }
};
MappedFile map_file(const std::string& path);               // 66 if missing or not a regular file
std::string read_file(const std::string& path);             // 66; for small files
std::string read_kernel_file(const std::string& path);      // of /proc and /sys; "" if it cannot be read
Descriptor open_regular(const std::string& path, const char* what, uint64_t* size);  // for reading; 66

bool file_exists(const std::string& path);
bool is_directory(const std::string& path);
std::vector<std::string> list_directory(const std::string& path);  // names, sorted, without . and ..; 66
std::vector<std::string> expand_glob(const std::string& pattern);  // sorted; empty if nothing matches
void make_directories(const std::string& path);             // 74
void sync_directory(const std::string& path);               // fsync of a folder; 74; where there is none, a warning
void remove_tree(const std::string& path);                  // follows no links; 74
std::string without_slash(const std::string& path);         // at its end, but for "/"
std::string base_name(const std::string& path);             // "a/b/" -> "b"
std::string parent_folder(const std::string& path);         // "a/b" -> "a", "b" -> "."
std::string path_join(const std::string& a, const std::string& b);
std::string program_path();                                 // of the running program, absolute
std::string tools_folder();                                 // where export and info are: "build/"

// Writes a new file and sums up what it is given. 74.
struct FileWriter {
    explicit FileWriter(const std::string& path);
    void write(const void* data, size_t count);
    void finish();                                          // fsync and close, each checked; else it is incomplete
    uint64_t bytes = 0;
    uint32_t crc = 0;                                       // CRC-32C of all bytes
  private:
    std::string path;
    Descriptor file;
};
// Replaces a file: written under a temporary name, fsynced, renamed, folder fsynced. 74.
void write_file_atomic(const std::string& path, std::string_view content);
void remove_temporaries(const std::string& path);           // that killed processes left of write_file_atomic(path); 74

uint32_t crc32c(uint32_t crc, const void* data, size_t bytes);  // start with 0; "123456789" gives e3069283
std::array<uint8_t, 32> sha256(std::string message);
uint64_t hash_bytes(const void* data, size_t bytes, uint64_t seed);  // fast; for identities, not for security
