// file.cpp -- calls the system directly and checks every result. An error names the path and the
// reason.
#include "src/base/file.h"
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "src/base/common.h"
#include "src/base/numbers.h"

[[noreturn]] static void fail(int code, const char* what, const std::string& path,
                              int error = errno) {
    die(code, "%s: %s: %s", what, shown_path(path).c_str(), std::strerror(error));
}

Descriptor::~Descriptor() {
    if (fd >= 0) ::close(fd);
}

// Returns the exit code for the errno of a failed read: no such file, a damaged medium, or
// unreadable at the moment.
static int code_of(int error) {
    switch (error) {
        case ENOENT: case ENOTDIR: case ELOOP: case ENAMETOOLONG: case ENXIO: return kExitNoInput;
        case EIO: case EBADMSG: case EUCLEAN: case ENODATA: return kExitBadContent;
        default: return kExitOther;
    }
}

[[noreturn]] static void fail_read(const char* what, const std::string& path, int error = errno) {
    fail(code_of(error), code_of(error) == kExitOther ? "cannot be read now" : what, path, error);
}

// Repeats call() while it returns -1: at once after a signal, and up to five times in 3 seconds
// after an error that may be temporary.
template <class F> static auto patiently(const std::string& path, const F& call) {
    constexpr useconds_t kFirst = 100000, kLast = 1600000;
    for (useconds_t pause = kFirst;;) {
        const auto result = call();
        if (result >= 0) return result;
        if (errno == EINTR) continue;
        const bool stays = code_of(errno) == kExitNoInput || errno == EACCES || errno == EPERM;
        if (stays || pause > kLast) return result;
        if (pause == kFirst)
            warn("%s: %s; trying again", shown_path(path).c_str(), std::strerror(errno));
        usleep(pause);
        pause *= 2;
    }
}

// O_NONBLOCK: opening a FIFO without a writer must not hang. Links are followed, since Hugging
// Face's cache has them.
InputFile::InputFile(const std::string& path, const char* what)
    : path(path), file(patiently(path, [&] {
          return ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
      })) {
    if (file.fd < 0 || patiently(path, [&] { return ::fstat(file.fd, &info); }) != 0)
        fail_read(what, path);
    size = info.st_size;
    if (S_ISREG(info.st_mode)) return;
    die(kExitNoInput, "%s: %s: got %s, want a regular file", what, shown_path(path).c_str(),
        S_ISDIR(info.st_mode) ? "a folder" : "something else");
}

void InputFile::read(uint64_t offset, void* out, size_t bytes) const {
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = patiently(path, [&] {
            return ::pread(file.fd, static_cast<char*>(out) + done, bytes - done, offset + done);
        });
        const auto where = [&] { return path + ": byte " + std::to_string(offset + done); };
        if (n < 0) fail_read("cannot read", where());
        if (n == 0)
            die(kExitBadContent, "cannot read: %s: the file was cut short while in use",
                where().c_str());
        done += n;
    }
}

bool InputFile::touched() {
    const struct stat old = info;
    if (patiently(path, [&] { return ::fstat(file.fd, &info); }) != 0)
        fail_read("cannot look up", path);
    return old.st_size != info.st_size ||
           std::memcmp(&old.st_ctim, &info.st_ctim, sizeof old.st_ctim) != 0;
}

uint32_t InputFile::checksum(uint32_t crc, uint64_t every) const {
    std::vector<char> block(kFileBlock);
    Countdown left{"checking " + path, size, "bytes"};
    for (uint64_t at = 0; at < size; at += every) {
        left.at(at);
        const size_t n = std::min(kFileBlock, size - at);
        read(at, block.data(), n);
        crc = crc32c(crc, block.data(), n);
    }
    return crc;
}

std::string read_file(const std::string& path) {
    const InputFile file(path);
    std::string text(file.size, '\0');
    file.read(0, text.data(), text.size());
    return text;
}

std::string read_kernel_file(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
}

// Returns the st_mode of a file; 0: there is none.
static mode_t mode_of(const std::string& path) {
    struct stat info;
    if (patiently(path, [&] { return ::stat(path.c_str(), &info); }) == 0) return info.st_mode;
    if (code_of(errno) == kExitNoInput) return 0;
    fail_read("cannot look up", path);
}

bool file_exists(const std::string& path) { return mode_of(path) != 0; }
bool is_directory(const std::string& path) { return S_ISDIR(mode_of(path)); }

// This does not use std::filesystem's iterator, whose noexcept functions end the process when there
// is no memory.
std::vector<std::string> list_directory(const std::string& path) {
    std::vector<std::string> names;
    const auto list = [&] {
        const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), ::closedir);
        names.clear();
        if (folder) errno = 0;
        for (const dirent* e; folder && (e = ::readdir(folder.get())); errno = 0)
            if (const std::string name = e->d_name;
                name != "." && name != ".." && name != "lost+found")
                names.push_back(name);
        return errno ? -1 : 0;
    };
    if (patiently(path, list) != 0) fail_read("cannot list", path);
    std::sort(names.begin(), names.end());
    return names;
}

void make_directories(const std::string& path) {
    struct stat info;
    const auto is_there = [&] { return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode); };
    if (path.empty() || is_there()) return;
    const std::string parent = parent_folder(without_slash(path));
    make_directories(parent);
    // The name must survive a power cut.
    if (::mkdir(path.c_str(), 0777) == 0) return sync_directory(parent);
    const int error = errno;
    if (error == EEXIST && is_there()) return;
    if (const std::string target = link_text(path); !target.empty())
        die(kExitWrite,
            "cannot make folder: %s: it is a link to %s, which is not there; mount its disk or make it",
            shown_path(path).c_str(), target.c_str());
    fail(kExitWrite, "cannot make folder", path, error);
}

void sync_directory(const std::string& path) {
    const Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder.fd >= 0 && ::fsync(folder.fd) == 0) return;
    static std::atomic<bool> said{false};
    const int error = errno;
    if (error == EIO || error == ENOSPC || error == EDQUOT || folder.fd < 0)
        fail(kExitWrite, "cannot sync folder", path);
    if (!said.exchange(true))   // some network and shared file systems have no fsync of a folder
        warn("%s: its file system cannot sync folders (%s): a power cut may lose a file's name",
             shown_path(path).c_str(), std::strerror(error));
}

void remove_tree(const std::string& path) {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (error) fail(kExitWrite, "cannot remove", path, error.value());
}

void rename_file(const std::string& from, const std::string& to) {
    if (::rename(from.c_str(), to.c_str()) != 0) fail(kExitWrite, "cannot rename", from);
}

void require_space(const std::string& folder, uint64_t bytes, const char* what) {
    struct statvfs disk;
    if (::statvfs(folder.c_str(), &disk) != 0 || disk.f_blocks == 0) return;
    if (const uint64_t got = disk.f_bavail * disk.f_frsize; got < bytes)
        die(kExitWrite, "%s: %s: got %s bytes free, want about %s; make room", what,
            shown_path(folder).c_str(), with_commas(got).c_str(), with_commas(bytes).c_str());
}

std::string without_slash(const std::string& path) {
    return path.substr(0, std::max<size_t>(path.find_last_not_of('/') + 1, 1));     // npos + 1 is 0
}

std::string real_path(const std::string& path) {
    std::error_code error, ignored;         // there may be no current folder
    const std::filesystem::path real =
        std::filesystem::weakly_canonical(without_slash(path), error);
    const std::string below =
        real.lexically_relative(std::filesystem::current_path(ignored)).string();
    return error ? path : below.find_first_not_of(".-") == 0 ? below : real.string();
}

std::string link_text(const std::string& link) {
    std::error_code ignored;
    return std::filesystem::read_symlink(link, ignored).string();
}

std::string shown_path(const std::string& path) {
    constexpr std::string_view kHeld = "/proc/self/fd/";
    if (!path.starts_with(kHeld)) return path;
    const size_t end = std::min(path.find('/', kHeld.size()), path.size());
    return real_path(link_text(path.substr(0, end))) + path.substr(end);
}

std::string base_name(const std::string& path) {
    const std::string name = without_slash(path);
    return name == "/" ? name : name.substr(name.rfind('/') + 1);
}

std::string parent_folder(const std::string& path) {
    const std::string parent = std::filesystem::path(path).parent_path();
    return parent.empty() ? "." : parent;
}

std::string path_join(const std::string& a, const std::string& b) {
    return (std::filesystem::path(a) / b).string();
}

std::string program_path() {
    const std::string path = link_text("/proc/self/exe");
    if (path.empty()) die(kExitOther, "cannot find this program: /proc/self/exe; mount /proc");
    return path;
}

FileWriter::FileWriter(const std::string& path)
    : path(path),
      file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666)) {
    if (file.fd < 0) fail(kExitWrite, "cannot create", path);
}

// A signal or a short write is no failure. Blocks of 1 MiB stay in the cache between the copy and
// the checksum.
void FileWriter::write(const void* data, size_t count) {
    for (const char* at = static_cast<const char*>(data); count > 0;) {
        const ssize_t n = ::write(file.fd, at, std::min(count, size_t(1) << 20));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            die(kExitWrite, "write failed: %s: %s after %s bytes", shown_path(path).c_str(),
                n < 0 ? std::strerror(errno) : "nothing written", with_commas(bytes).c_str());
        crc = crc32c(crc, at, n);
        bytes += n;
        at += n;
        count -= n;
    }
}

// A failed fsync is never repeated: the kernel marks the pages clean, and a second call would
// report success (Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC
// 2020).
void FileWriter::finish() {
    const bool synced = ::fsync(file.fd) == 0;
    const int error = errno;
    const bool closed = ::close(std::exchange(file.fd, -1)) == 0 || errno == EINTR;
    if (!synced || !closed) fail(kExitWrite, "write failed", path, synced ? errno : error);
}

void write_file_atomic(const std::string& path, std::string_view content) {
    const std::string temporary = path + ".tmp" + std::to_string(::getpid());
    ::unlink(temporary.c_str());    // a killed process with the same pid may have left it
    try {
        FileWriter file(temporary);
        file.write(content.data(), content.size());
        file.finish();
        rename_file(temporary, path);
    } catch (const Error&) {
        ::unlink(temporary.c_str());
        throw;
    }
    sync_directory(parent_folder(path));
}

void remove_temporaries(const std::string& path) {
    const std::string folder = parent_folder(path), begin = base_name(path) + ".tmp";
    for (const std::string& name : list_directory(folder))
        if (int pid; name.starts_with(begin) &&
                     parse_whole(std::string_view(name).substr(begin.size()), &pid))
            remove_tree(path_join(folder, name));
}

// Castagnoli's polynomial, reflected: kCrc[b] is the checksum of byte b.
static constexpr auto kCrc = [] {
    std::array<uint32_t, 256> table{};
    for (uint32_t b = 0; b < 256; b++) {
        table[b] = b;
        for (int bit = 0; bit < 8; bit++)
            table[b] = table[b] >> 1 ^ (table[b] & 1 ? 0x82F63B78u : 0);
    }
    return table;
}();

static constexpr uint32_t crc_table(uint32_t c, const char* p, size_t n) {
    for (; n > 0; p++, n--) c = c >> 8 ^ kCrc[uint8_t(*p ^ c)];
    return c;
}
static_assert(~crc_table(~0u, "123456789", 9) == 0xe3069283);

#ifdef __x86_64__
__attribute__((target("sse4.2"))) static uint32_t crc_sse42(uint32_t c, const char* p, size_t n) {
    for (uint64_t x; n >= 8; p += 8, n -= 8) {
        std::memcpy(&x, p, 8);
        c = uint32_t(__builtin_ia32_crc32di(c, x));
    }
    for (; n > 0; p++, n--) c = __builtin_ia32_crc32qi(c, uint8_t(*p));
    return c;
}
static const auto crc_best = __builtin_cpu_supports("sse4.2") ? crc_sse42 : crc_table;
#else
static const auto crc_best = crc_table;
#endif

uint32_t crc32c(uint32_t crc, const void* data, size_t bytes) {
    return ~crc_best(~crc, static_cast<const char*>(data), bytes);
}

// SHA-256 as in FIPS 180-4.
std::array<uint8_t, 32> sha256(std::string message) {
    using std::rotr;
    // The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
    std::vector<uint32_t> k;
    for (int p = 2; k.size() < 64; p++) {
        bool prime = true;
        for (int d = 2; d * d <= p; d++) prime &= p % d != 0;
        if (prime) k.push_back(uint64_t(std::ldexp(std::cbrt(p), 32)));
    }
    std::array<uint32_t, 8> hash = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    const uint64_t bits = message.size() * 8;
    message += '\x80';
    message.resize(round_up<size_t>(message.size() + 8, 64));
    for (size_t i = 0; i < 8; i++) message.rbegin()[i] = bits >> 8 * i;
    for (size_t at = 0; at < message.size(); at += 64) {
        uint32_t w[64] = {};
        for (size_t i = 0; i < 64; i++) w[i / 4] = w[i / 4] << 8 | uint8_t(message[at + i]);
        for (size_t t = 16; t < 64; t++) {
            const uint32_t s0 = rotr(w[t - 15], 7) ^ rotr(w[t - 15], 18) ^ w[t - 15] >> 3;
            const uint32_t s1 = rotr(w[t - 2], 17) ^ rotr(w[t - 2], 19) ^ w[t - 2] >> 10;
            w[t] = w[t - 16] + s0 + w[t - 7] + s1;
        }
        auto s = hash;                                  // has the standard's variables a to h
        for (size_t t = 0; t < 64; t++) {
            const uint32_t a = s[0], b = s[1], c = s[2], e = s[4], f = s[5], g = s[6];
            const uint32_t t1 = s[7] + (rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25)) +
                                ((e & f) ^ (~e & g)) + k[t] + w[t];
            const uint32_t t2 =
                (rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
            std::copy_backward(s.begin(), s.end() - 1, s.end());
            s[4] += t1;
            s[0] = t1 + t2;
        }
        for (size_t i = 0; i < 8; i++) hash[i] += s[i];
    }
    std::array<uint8_t, 32> digest;
    for (size_t i = 0; i < 32; i++) digest[i] = hash[i / 4] >> (24 - i % 4 * 8);
    return digest;
}

// Hashes in four independent lanes, which hides the latency of the multiplications. A changed word
// always changes the hash of its lane.
uint64_t hash_bytes(const void* data, size_t bytes, uint64_t seed) {
    // Two odd numbers: 2^64 / golden ratio, and one from a mixer.
    constexpr uint64_t kA = 0x9e3779b97f4a7c15, kB = 0xd6e8feb86659fd93;
    uint64_t lane[4];
    for (uint64_t i = 0; i < 4; i++) lane[i] = mix64(seed + kA * (i + 1));
    // The last block is filled up with zeros.
    for (size_t at = 0; at <= bytes; at += 32) {
        uint64_t words[4] = {};
        if (at < bytes)
            std::memcpy(words, static_cast<const char*>(data) + at,
                        std::min<size_t>(bytes - at, 32));
        for (size_t i = 0; i < 4; i++) lane[i] = std::rotl(lane[i] ^ words[i] * kA, 29) * kB;
    }
    // The number of bytes distinguishes these zeros from data.
    uint64_t h = mix64(bytes);
    for (const uint64_t x : lane) h = mix64(h ^ x);
    return h;
}

// ---- locks

static bool same_file(int fd, const std::string& path) {
    struct stat a, b;
    return fstat(fd, &a) == 0 && stat(path.c_str(), &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

bool FolderLock::holds(const std::string& path) const {
    return folder.fd >= 0 && same_file(folder.fd, path);
}

[[noreturn]] static void die_in_use(const char* what, const std::string& folder, const char* cure) {
    std::string by = read_kernel_file(path_join(folder, ".lock"));
    by = by.empty() ? "a process that does not say who" : by.substr(0, by.find('\n'));
    die(kExitWrite, "%s is in use: %s: by %s; wait until that has ended%s", what,
        shown_path(folder).c_str(), by.c_str(), cure);
}

// Opens and locks .lock in lock->held, again if another process has removed the file that this one
// has just opened. Returns false if another process has locked or removed the folder.
static bool lock_file(FolderLock* lock) {
    const std::string path = path_join(lock->held, ".lock");
    constexpr int kFlags = O_NOFOLLOW | O_CLOEXEC;
    do {
        lock->file = Descriptor(open(path.c_str(), O_RDWR | O_CREAT | kFlags, 0666));
        // In a group's folder it may be another user's, and only readable. Most file systems can
        // lock it all the same.
        if (lock->file.fd < 0 && errno == EACCES)
            lock->file = Descriptor(open(path.c_str(), O_RDONLY | kFlags));
        if (lock->file.fd < 0 && errno == ENOENT) return false;
        if (lock->file.fd < 0) fail(kExitWrite, "cannot lock", path);
        lock->exclusive = flock(lock->file.fd, LOCK_EX | LOCK_NB) == 0;
        if (!lock->exclusive && errno == EWOULDBLOCK) return false;
    } while (!same_file(lock->file.fd, path));
    char host[65] = {};
    gethostname(host, sizeof host - 1);
    if (ftruncate(lock->file.fd, 0) == 0)
        dprintf(lock->file.fd, "process %d on %s\n", getpid(), host);
    return true;
}

bool try_lock_folder(FolderLock* lock, const std::string& path) {
    *lock = {.folder = Descriptor(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC))};
    if (lock->folder.fd < 0 && errno == ENOENT) return false;
    if (lock->folder.fd < 0) fail(kExitWrite, "cannot lock", path);
    lock->held = format("/proc/self/fd/%d", lock->folder.fd);
    return lock_file(lock);
}

void lock_folder(FolderLock* lock, const std::string& path, const char* what, const char* cure) {
    if (!try_lock_folder(lock, path)) die_in_use(what, path, cure);
    if (!lock->exclusive)
        warn("%s: %s: its file system cannot lock files; let one process at a time write there",
             what, shown_path(path).c_str());
}

void check_lock(FolderLock* lock, const char* what) {
    const std::string now = link_text(lock->held), file = path_join(lock->held, ".lock");
    if (now.ends_with(" (deleted)") && !lock->holds(now))
        die(kExitWrite, "the folder is gone: %s: it was deleted while this process wrote into it",
            now.c_str());
    // It may be that it cannot be looked up now.
    if (same_file(lock->file.fd, file) || errno != ENOENT) return;
    if (!lock_file(lock)) die_in_use(what, lock->held, "");
}
