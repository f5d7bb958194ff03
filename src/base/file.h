// file.h -- files: checked reading and writing, checksums. Every failure is an Error with the path.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <sys/stat.h>
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

// A regular file that is open for reading, as large as it is then: what is appended later is not read. A read that
// fails is tried again for some three seconds. What stays is kExitBadContent where the medium is damaged (EIO and its
// like) and kExitOther, "cannot be read now", for all else: a stale handle, no memory, no permission, too many files.
struct InputFile {
    uint64_t size = 0;
    const std::string path;
    // what: stands in front of the path in an error. kExitNoInput: there is no such file, or it is not a regular one.
    explicit InputFile(const std::string& path, const char* what = "cannot open");
    void read(uint64_t offset, void* out, size_t bytes) const;  // safe from any thread; kExitBadContent: it is shorter
    uint32_t checksum(uint32_t crc = 0) const;              // crc32c of all bytes
    // Tells whether the file's size or times have changed since the last call or the open: content may have, then.
    bool touched();
  private:
    const Descriptor file;
    struct stat info = {};
};
std::string read_file(const std::string& path);             // whole; for small files
std::string read_kernel_file(const std::string& path);      // of /proc and /sys; "" if it cannot be read

// Reads a file from its begin on, in pieces.
struct FileReader {
    const std::shared_ptr<const InputFile> file;
    explicit FileReader(const std::string& path) : file(std::make_shared<InputFile>(path)) {}
    // What comes next, valid until the next call: n bytes or more, fewer only at the end of the file.
    std::string_view look(uint64_t n);
    void take(size_t n) { taken += n; }                     // of what look gave
    bool line(std::string_view* out);                       // takes the next line, without its end; false: none
  private:
    std::string ahead = {};
    size_t taken = 0;                                       // bytes of `ahead`
    uint64_t at = 0;                                        // where the file goes on behind `ahead`
};

// These two are Errors, as of an InputFile, where nobody can say: "no" may mean to begin anew.
bool file_exists(const std::string& path);
bool is_directory(const std::string& path);
std::vector<std::string> list_directory(const std::string& path);  // names, sorted, without . and ..
std::vector<std::string> expand_glob(const std::string& pattern);  // sorted; empty if nothing matches
void make_directories(const std::string& path);             // kExitWrite, as the next three
void sync_directory(const std::string& path);               // fsync of a folder; where there is none, a warning
void remove_tree(const std::string& path);                  // follows no links
void rename_file(const std::string& from, const std::string& to);  // or a folder
// kExitWrite, "WHAT: FOLDER: got ...", if the folder's disk has less room than that (quotas do not show).
void require_space(const std::string& folder, uint64_t bytes, const char* what);
std::string without_slash(const std::string& path);         // at its end, but for "/"
std::string base_name(const std::string& path);             // "a/b/" -> "b"
std::string parent_folder(const std::string& path);         // "a/b" -> "a", "b" -> "."
std::string path_join(const std::string& a, const std::string& b);
std::string program_path();                                 // of the running program, absolute

// Writes a new file and sums up what it is given. Throws kExitWrite.
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
// Replaces a file: written under a temporary name, fsynced, renamed, folder fsynced. Throws kExitWrite.
void write_file_atomic(const std::string& path, std::string_view content);
void remove_temporaries(const std::string& path);           // that killed processes left of write_file_atomic(path)

uint32_t crc32c(uint32_t crc, const void* data, size_t bytes);  // start with 0; "123456789" gives e3069283
std::array<uint8_t, 32> sha256(std::string message);
uint64_t hash_bytes(const void* data, size_t bytes, uint64_t seed);  // fast; for identities, not for security
