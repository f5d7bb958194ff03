// file.cpp -- files through the system calls themselves: each result is looked at, a failure names path and reason.
#include "file.h"
#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "common.h"

// ---------------------------------------------------------------------------------------------------------- reading

// O_NONBLOCK: opening a FIFO without a writer must not hang. Links are followed: data sets and Hugging Face's cache consist of them.
int open_regular(const std::string& path, const char* what, uint64_t* size) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == EMFILE)
        die(kExitOther, "%s: %s: this process may have no more files open; raise the limit (ulimit -n) or use larger files", what, path.c_str());
    if (fd < 0) die(kExitNoInput, "%s: %s: %s", what, path.c_str(), std::strerror(errno));
    struct stat info = {};
    const bool regular = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
    *size = uint64_t(info.st_size);
    if (regular) return fd;
    ::close(fd);
    die(kExitNoInput, "%s: %s: got %s, want a regular file", what, path.c_str(), S_ISDIR(info.st_mode) ? "a folder" : "something else");
}

MappedFile map_file(const std::string& path) {
    MappedFile file;
    file.path = path;
    const int fd = open_regular(path, "cannot open", &file.size);
    void* const memory = file.size ? ::mmap(nullptr, file.size, PROT_READ, MAP_PRIVATE, fd, 0) : nullptr;      // it refuses a length of 0
    const int error = errno;
    ::close(fd);
    if (memory == MAP_FAILED) die(kExitNoInput, "cannot map: %s: %s", path.c_str(), std::strerror(error));
    if (!memory) return file;
    file.data = static_cast<const char*>(memory);
    file.mapping.reset(memory, [size = file.size](void* at) { ::munmap(at, size); });
    return file;
}

std::string read_file(const std::string& path) {
    return std::string(map_file(path).text());
}

std::string read_kernel_file(const std::string& path) {
    std::string text;
    FILE* file = std::fopen(path.c_str(), "re");
    if (!file) return text;
    char block[4096];
    for (size_t n; (n = std::fread(block, 1, sizeof block, file)) > 0;) text.append(block, n);
    std::fclose(file);
    return text;
}

// ---------------------------------------------------------------------------------------------------------- folders

bool file_exists(const std::string& path) {
    struct stat info;
    return ::stat(path.c_str(), &info) == 0;
}

bool is_directory(const std::string& path) {
    struct stat info;
    return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

std::vector<std::string> list_directory(const std::string& path) {
    // Not std::filesystem's iterator: its noexcept functions end the process when there is no memory.
    const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), ::closedir);
    std::vector<std::string> names;
    errno = folder ? 0 : errno;
    for (const dirent* e; folder && (e = ::readdir(folder.get())); errno = 0)
        if (std::strcmp(e->d_name, ".") != 0 && std::strcmp(e->d_name, "..") != 0) names.push_back(e->d_name);
    if (errno) die(kExitNoInput, "cannot list: %s: %s", path.c_str(), std::strerror(errno));
    std::sort(names.begin(), names.end());
    return names;
}

std::vector<std::string> expand_glob(const std::string& pattern) {
    glob_t found{};
    std::vector<std::string> paths;
    if (::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found) == 0) paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    ::globfree(&found);
    std::sort(paths.begin(), paths.end());              // by bytes: the same on every machine
    return paths;
}

void make_directories(const std::string& path) {
    if (path.empty() || is_directory(path)) return;
    const std::string parent = parent_folder(path.substr(0, path.find_last_not_of('/') + 1));
    make_directories(parent);
    if (::mkdir(path.c_str(), 0777) == 0) {
        sync_directory(parent);                         // the new name must survive a power cut, or what is put into it does not
        return;
    }
    const int error = errno;
    if (error == EEXIST && is_directory(path)) return;   // another rank was faster
    die(kExitWrite, "cannot make folder: %s: %s", path.c_str(), std::strerror(error));
}

void sync_directory(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int result = fd < 0 ? -1 : ::fsync(fd);
    const int error = errno;
    if (fd >= 0) ::close(fd);
    if (result) die(kExitWrite, "cannot sync folder: %s: %s", path.c_str(), std::strerror(error));
}

void remove_tree(const std::string& path) {
    const auto remove_one = [](const char* name, const struct stat*, int, FTW*) { return ::remove(name); };
    if (::nftw(path.c_str(), remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT)     // does not follow links
        die(kExitWrite, "cannot remove: %s: %s", path.c_str(), std::strerror(errno));
}

std::string base_name(const std::string& path) {
    const size_t last = path.find_last_not_of('/');
    if (last == std::string::npos) return path.empty() ? "" : "/";
    return path.substr(0, last + 1).substr(path.rfind('/', last) + 1);     // npos + 1 is 0
}

std::string parent_folder(const std::string& path) {
    const size_t slash = path.rfind('/');
    return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

std::string path_join(const std::string& a, const std::string& b) {
    if (a.empty() || (!b.empty() && b[0] == '/')) return b;
    return a.back() == '/' ? a + b : a + "/" + b;
}

std::string program_path() {
    char path[PATH_MAX];
    const ssize_t n = ::readlink("/proc/self/exe", path, sizeof path);
    if (n <= 0) die(kExitOther, "/proc/self/exe: %s", std::strerror(errno));
    return std::string(path, size_t(n));
}

// ---------------------------------------------------------------------------------------------------------- writing

FileWriter::FileWriter(const std::string& path, bool exists) : path(path) {
    fd = ::open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC | (exists ? 0 : O_CREAT | O_EXCL), 0666);
    if (fd < 0) die(kExitWrite, "cannot %s: %s: %s", exists ? "open" : "create", path.c_str(), std::strerror(errno));
}

void FileWriter::start_at(uint64_t offset) {
    if (::lseek(fd, off_t(offset), SEEK_SET) < 0) die(kExitWrite, "cannot seek: %s: %s", path.c_str(), std::strerror(errno));
    bytes = 0;
    crc = 0;
}

FileWriter::~FileWriter() {
    if (fd >= 0) ::close(fd);
}

// The one loop that writes: a signal (EINTR) or a short write is no failure, and blocks of 1 MiB keep the data in the cache
// between checksum and copy.
void FileWriter::write(const void* data, size_t count) {
    constexpr size_t kBlock = size_t(1) << 20;
    for (const char* at = static_cast<const char*>(data); count > 0;) {
        const size_t block = std::min(count, kBlock);
        crc = crc32c(crc, at, block);
        for (size_t done = 0; done < block;) {
            const ssize_t n = ::write(fd, at + done, block - done);
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0) {
                die(kExitWrite, "write failed: %s: %s after %s bytes", path.c_str(),
                    n < 0 ? std::strerror(errno) : "nothing written", with_commas(bytes + done).c_str());
            }
            done += size_t(n);
        }
        bytes += block;
        at += block;
        count -= block;
    }
}

// A failed fsync is never repeated: the kernel marks the pages clean, and a second call would report success (Rebello et al.,
// "Can Applications Recover from fsync Failures?", USENIX ATC 2020).
void FileWriter::finish() {
    int result = ::fsync(fd), error = errno;
    if (::close(fd) != 0 && errno != EINTR && result == 0) result = -1, error = errno;   // Linux closes even when EINTR
    fd = -1;
    if (result) die(kExitWrite, "write failed: %s: %s when it was synced", path.c_str(), std::strerror(error));
}

void write_file_atomic(const std::string& path, std::string_view content) {
    const std::string temporary = path + ".tmp" + std::to_string(::getpid());
    ::unlink(temporary.c_str());                        // of a killed process that had this number
    try {
        FileWriter file(temporary);
        file.write(content.data(), content.size());
        file.finish();
        if (::rename(temporary.c_str(), path.c_str()))
            die(kExitWrite, "cannot rename: %s: %s", temporary.c_str(), std::strerror(errno));
    } catch (const Error&) {
        ::unlink(temporary.c_str());
        throw;
    }
    sync_directory(parent_folder(path));
}

// ---------------------------------------------------------------------------------------------------------- CRC-32C

// Castagnoli's polynomial 0x1EDC6F41, reflected. Eight tables: one step takes eight bytes ("slicing by 8", Kounavis and Berry 2005).
namespace {
using CrcTables = std::array<std::array<uint32_t, 256>, 8>;

constexpr CrcTables make_crc_tables() {
    CrcTables t{};
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++) c = c >> 1 ^ (c & 1 ? 0x82F63B78u : 0);
        t[0][i] = c;
    }
    for (size_t k = 1; k < 8; k++)
        for (size_t i = 0; i < 256; i++) t[k][i] = t[k - 1][i] >> 8 ^ t[0][t[k - 1][i] & 255];
    return t;
}
constexpr CrcTables kCrc = make_crc_tables();

uint64_t load64(const unsigned char* p) {
    uint64_t x;
    std::memcpy(&x, p, 8);
    return x;
}

uint32_t crc_tables(uint32_t c, const unsigned char* p, size_t n) {
    for (; n >= 8; p += 8, n -= 8) {
        const uint64_t x = load64(p) ^ c;
        c = 0;
        for (size_t k = 0; k < 8; k++) c ^= kCrc[7 - k][x >> (8 * k) & 255];
    }
    for (; n > 0; p++, n--) c = c >> 8 ^ kCrc[0][(c ^ *p) & 255];
    return c;
}

// A checksum is a polynomial over GF(2) modulo Castagnoli's, its highest power in the lowest bit. n zero bytes behind a file multiply its
// checksum by x^(8n); then the other part's is added (Adler's crc32_combine, zlib).
constexpr uint32_t crc_product(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (uint32_t bit = 1u << 31; bit; bit >>= 1) {
        product ^= a & bit ? b : 0;
        b = b >> 1 ^ (b & 1 ? 0x82F63B78u : 0);
    }
    return product;
}

constexpr uint32_t crc_zeros(uint64_t n) {
    uint32_t result = 1u << 31;                         // 1
    for (uint32_t power = 1u << 23; n; n >>= 1, power = crc_product(power, power))      // x^8, then its squares
        if (n & 1) result = crc_product(power, result);
    return result;
}

#ifdef __x86_64__
// The instruction takes one step per cycle but three cycles for each: three blocks side by side, then joined.
constexpr size_t kBlock = 8192;
constexpr uint32_t kBlockOfZeros = crc_zeros(kBlock);
uint64_t shift_block(uint64_t c) { return crc_product(kBlockOfZeros, uint32_t(c)); }

__attribute__((target("sse4.2"))) uint32_t crc_sse42(uint32_t c, const unsigned char* p, size_t n) {
    uint64_t wide = c;
    for (; n >= 3 * kBlock; p += 3 * kBlock, n -= 3 * kBlock) {
        uint64_t b = 0, d = 0;
        for (size_t i = 0; i < kBlock; i += 8) {
            wide = __builtin_ia32_crc32di(wide, load64(p + i));
            b = __builtin_ia32_crc32di(b, load64(p + kBlock + i));
            d = __builtin_ia32_crc32di(d, load64(p + 2 * kBlock + i));
        }
        wide = shift_block(shift_block(wide) ^ b) ^ d;
    }
    for (; n >= 8; p += 8, n -= 8) wide = __builtin_ia32_crc32di(wide, load64(p));
    c = uint32_t(wide);
    for (; n > 0; p++, n--) c = __builtin_ia32_crc32qi(c, *p);
    return c;
}
const bool has_sse42 = __builtin_cpu_supports("sse4.2");
#endif
}  // namespace

uint32_t crc32c(uint32_t crc, const void* data, size_t bytes) {
    const unsigned char* p = static_cast<const unsigned char*>(data);
#ifdef __x86_64__
    if (has_sse42) return ~crc_sse42(~crc, p, bytes);
#endif
    return ~crc_tables(~crc, p, bytes);
}

uint32_t crc32c_portable(uint32_t crc, const void* data, size_t bytes) {
    return ~crc_tables(~crc, static_cast<const unsigned char*>(data), bytes);
}

uint32_t crc32c_join(uint32_t a, uint32_t b, uint64_t bytes_of_b) { return crc_product(crc_zeros(bytes_of_b), a) ^ b; }

// ---------------------------------------------------------------------------------------------------------- SHA-256

// FIPS 180-4, sections 4.2.2, 5.3.3 and 6.2. The constants are the first 32 bits of the fractional parts of the cube roots of
// the first 64 primes; the initial state those of the square roots of the first 8.
namespace {
constexpr uint32_t kSha[64] = {0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
                               0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
                               0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
                               0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
                               0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
                               0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
                               0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
                               0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

void sha_block(uint32_t state[8], const uint8_t* block) {
    using std::rotr;
    uint32_t w[64];
    for (size_t t = 0; t < 16; t++)
        w[t] = uint32_t(block[4 * t]) << 24 | uint32_t(block[4 * t + 1]) << 16 | uint32_t(block[4 * t + 2]) << 8 | block[4 * t + 3];
    for (size_t t = 16; t < 64; t++) {
        const uint32_t s0 = rotr(w[t - 15], 7) ^ rotr(w[t - 15], 18) ^ w[t - 15] >> 3;
        const uint32_t s1 = rotr(w[t - 2], 17) ^ rotr(w[t - 2], 19) ^ w[t - 2] >> 10;
        w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5], g = state[6], h = state[7];
    for (size_t t = 0; t < 64; t++) {
        const uint32_t t1 = h + (rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25)) + ((e & f) ^ (~e & g)) + kSha[t] + w[t];
        const uint32_t t2 = (rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
        h = g; g = f; f = e; e = d + t1; d = c; c = b; b = a; a = t1 + t2;
    }
    const uint32_t add[8] = {a, b, c, d, e, f, g, h};
    for (size_t i = 0; i < 8; i++) state[i] += add[i];
}
}  // namespace

Sha256::Sha256()
    : state{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}, block{}, total(0) {}

void Sha256::update(const void* data, size_t bytes) {
    const uint8_t* p = static_cast<const uint8_t*>(data);
    while (bytes > 0) {
        const size_t used = total % 64, n = std::min(bytes, 64 - used);
        std::memcpy(block + used, p, n);
        total += n;
        p += n;
        bytes -= n;
        if (total % 64 == 0) sha_block(state, block);
    }
}

void Sha256::digest(uint8_t out[32]) {
    const uint64_t bits = total * 8;
    const uint8_t end = 0x80, zero = 0;
    update(&end, 1);
    while (total % 64 != 56) update(&zero, 1);
    uint8_t length[8];
    for (int i = 0; i < 8; i++) length[i] = uint8_t(bits >> (56 - 8 * i));
    update(length, 8);
    for (int i = 0; i < 32; i++) out[i] = uint8_t(state[i / 4] >> (24 - 8 * (i % 4)));
}

std::string Sha256::hex() {
    uint8_t out[32];
    digest(out);
    std::string text;
    for (const uint8_t byte : out) text += format("%02x", byte);
    return text;
}

// ------------------------------------------------------------------------------------------------------ fast hash

// Four independent lanes of multiply, rotate, multiply: a lane is a bijection of its state and of each word, so one changed word
// always changes its lane; four of them hide the latency of the multiplications.
uint64_t hash_bytes(const void* data, size_t bytes, uint64_t seed) {
    constexpr uint64_t kA = 0x9e3779b97f4a7c15, kB = 0xd6e8feb86659fd93;    // odd; 2^64 / golden ratio, and a mixer's constant
    const auto mix = [](uint64_t z) {                                       // splitmix64's finaliser
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
        z = (z ^ z >> 27) * 0x94d049bb133111eb;
        return z ^ z >> 31;
    };
    const unsigned char* p = static_cast<const unsigned char*>(data);
    uint64_t lane[4];
    for (uint64_t i = 0; i < 4; i++) lane[i] = mix(seed + kA * (i + 1));
    const auto take = [&](const unsigned char* from) {
        for (size_t i = 0; i < 4; i++) lane[i] = std::rotl(lane[i] ^ load64(from + 8 * i) * kA, 29) * kB;
    };
    size_t left = bytes;
    for (; left >= 32; left -= 32, p += 32) take(p);
    unsigned char last[32] = {};                                            // the length, mixed in below, tells padding from zeros
    if (left > 0) std::memcpy(last, p, left);
    take(last);
    uint64_t h = mix(bytes);
    for (const uint64_t x : lane) h = mix(h ^ x);
    return h;
}
