// file.h -- reads and writes files with checks, computes checksums, and locks folders. A failure
// throws an Error with the path.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <utility>
#include <vector>

// Owns a file descriptor or socket, and closes it in the end. fd -1: it owns none.
struct Descriptor {
    int fd;
    explicit Descriptor(int fd = -1) : fd(fd) {}
    Descriptor(Descriptor&& other) : fd(std::exchange(other.fd, -1)) {}
    Descriptor& operator=(Descriptor&& other) { std::swap(fd, other.fd); return *this; }
    ~Descriptor();
};

// The number of bytes in a read. They stay in the CPU's cache until they are used.
constexpr uint64_t kFileBlock = 64 << 10;

// A regular file that is open for reading. `size` is its size when it was opened; bytes appended
// later are not read. A read that fails is tried again for about three seconds. If it still fails,
// the error is kExitBadContent for a damaged medium (EIO and the like), and kExitOther, "cannot be
// read now", for any other reason: a stale handle, no memory, no permission, too many files.
struct InputFile {
    uint64_t size = 0;
    const std::string path;
    // what: the beginning of an error, before the path. kExitNoInput: there is no such file, or it
    // is not regular.
    explicit InputFile(const std::string& path, const char* what = "cannot open");
    // Any thread may call this. kExitBadContent: the file was cut short.
    void read(uint64_t offset, void* out, size_t bytes) const;
    // Returns the CRC-32C of the blocks of kFileBlock bytes that begin at multiples of `every`
    // bytes: by default of all bytes.
    uint32_t checksum(uint32_t crc = 0, uint64_t every = kFileBlock) const;
    // Returns whether the file's size or its time of change differs from the last call's (at first:
    // from the open's). If so, its content may have changed.
    bool touched();
  private:
    const Descriptor file;
    struct stat info = {};
};
std::string read_file(const std::string& path);         // the whole content; for small files
std::string read_kernel_file(const std::string& path);  // of /proc or /sys; "" if it cannot be read

// These two throw an Error, as InputFile does, if the file cannot be looked up: after a wrong "no",
// a run could start from the beginning.
bool file_exists(const std::string& path);
bool is_directory(const std::string& path);
// Returns the names in a folder, sorted, without . and .. and lost+found, which each new disk has.
std::vector<std::string> list_directory(const std::string& path);
// These four throw kExitWrite. sync_directory calls fsync for a folder, and warns if the file
// system cannot do that. remove_tree does not follow links. rename_file renames a file or folder.
void make_directories(const std::string& path);
void sync_directory(const std::string& path);
void remove_tree(const std::string& path);
void rename_file(const std::string& from, const std::string& to);
// Throws kExitWrite, "WHAT: FOLDER: got ...", if the folder's disk has fewer bytes free. It does
// not see quotas.
void require_space(const std::string& folder, uint64_t bytes, const char* what);
std::string without_slash(const std::string& path);         // removes slashes at the end; "/" stays
// Returns the path without links: relative to the current folder if it is below that and begins
// with neither . nor -, else absolute. Returns a path that cannot be resolved, such as a link to
// itself, as it is.
std::string real_path(const std::string& path);
std::string link_text(const std::string& link);     // where a link points to; "" if it is none
// Returns a path as the user knows it: with the folder's present path in place of /proc/self/fd/N
// (FolderLock).
std::string shown_path(const std::string& path);
std::string base_name(const std::string& path);             // "a/b/" -> "b"
std::string parent_folder(const std::string& path);         // "a/b" -> "a", "b" -> "."
std::string path_join(const std::string& a, const std::string& b);
std::string program_path();                                 // absolute path of the running program

// Writes a new file, and counts and checksums its bytes. kExitWrite, also if the file exists.
struct FileWriter {
    explicit FileWriter(const std::string& path);
    void write(const void* data, size_t count);
    void finish();      // fsyncs and closes; without it the file is incomplete
    uint64_t bytes = 0;
    uint32_t crc = 0;   // CRC-32C of all bytes
  private:
    std::string path;
    Descriptor file;
};
// Replaces a file: writes a temporary file, fsyncs it, renames it to `path` and fsyncs the folder.
// Throws kExitWrite.
void write_file_atomic(const std::string& path, std::string_view content);
// Removes what a killed write_file_atomic(path) left.
void remove_temporaries(const std::string& path);

// Returns the CRC-32C of the bytes whose checksum is crc (0: none) and of these. "123456789" gives
// e3069283.
uint32_t crc32c(uint32_t crc, const void* data, size_t bytes);
std::array<uint8_t, 32> sha256(std::string message);
uint64_t hash_bytes(const void* data, size_t bytes, uint64_t seed);  // fast and not cryptographic

// ---- locks: flock on FOLDER/.lock, so that only one process at a time writes into the folder
//
// The text of that file names the process, for messages. A file system without flock locks nothing.

struct FolderLock {
    // /proc/self/fd/N is the folder by its descriptor, also after a move. Open files by this path.
    std::string held = {};
    // file: .lock. Its flock lasts until it is closed.
    Descriptor folder = Descriptor(), file = Descriptor();
    bool exclusive = false;     // false: the file system has no flock
    bool holds(const std::string& path) const;      // whether path is the locked folder
};
// Locks an existing folder; first releases what `lock` held. Returns false if another process has
// locked or removed the folder. kExitWrite: it cannot be locked.
bool try_lock_folder(FolderLock* lock, const std::string& path);
// Calls try_lock_folder. kExitWrite, which names the process, if that returns false; a warning if
// there is no flock. what: the folder's name in errors, "the run folder". cure: advice at the
// error's end.
void lock_folder(FolderLock* lock, const std::string& path, const char* what, const char* cure);
// Checks that the folder still exists and is still locked; call it before a write. Locks it again
// if somebody has removed .lock. kExitWrite: the folder was deleted, or another process has locked
// it.
void check_lock(FolderLock* lock, const char* what);
