// test_file.cpp -- checksums against published vectors, reading of odd things, writing that fails.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include "src/base/file.h"
#include "tools/text/reader.h"
#include "tests/test.h"

namespace {
std::string pattern(size_t n) {
    std::string s(n, '\0');
    uint32_t x = 1;
    for (char& c : s) c = char((x = x * 1664525 + 1013904223) >> 24);
    return s;
}

// Files of this process may not grow beyond n bytes while this lives.
struct FileSizeLimit {
    rlimit old{};
    explicit FileSizeLimit(size_t n) {
        std::signal(SIGXFSZ, SIG_IGN);
        getrlimit(RLIMIT_FSIZE, &old);
        const rlimit now{n, old.rlim_max};
        setrlimit(RLIMIT_FSIZE, &now);
    }
    ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &old); }
};
}  // namespace

TEST(crc32c_vectors) {
    // RFC 3720, B.4: 32 zeros, 32 times 0xFF, 0..31, 31..0; and the customary check value.
    std::string zeros(32, '\0'), ones(32, '\xff'), up(32, '\0'), down(32, '\0');
    for (int i = 0; i < 32; i++) up[size_t(i)] = char(i), down[size_t(i)] = char(31 - i);
    const struct { std::string text; uint32_t want; } cases[] = {
        {"", 0}, {"123456789", 0xe3069283}, {zeros, 0x8a9136aa}, {ones, 0x62a8ab43}, {up, 0x46dd794e},
        {down, 0x113fdb5c}};
    for (const auto& c : cases) {
        const uint32_t got = crc32c(0, c.text.data(), c.text.size());
        EXPECT_EQ(got, c.want);
    }
}

TEST(crc32c_pieces_and_alignment) {
    const std::string s = pattern(1003);
    for (size_t begin = 0; begin < 9; begin++) {
        const uint32_t whole = crc32c(0, s.data() + begin, s.size() - begin);
        for (size_t cut = begin; cut <= s.size(); cut += 13) {
            const uint32_t a = crc32c(crc32c(0, s.data() + begin, cut - begin), s.data() + cut, s.size() - cut);
            EXPECT(a == whole, "begin %zu cut %zu: %08x, want %08x", begin, cut, a, whole);
        }
    }
}

// One wrong bit of a long text shows.
TEST(crc32c_long) {
    std::string s = pattern(80000);
    for (const size_t n : {24575u, 80000u}) {
        const uint32_t crc = crc32c(5, s.data(), n);
        s[n / 2] ^= 16;
        EXPECT(crc32c(5, s.data(), n) != crc, "%zu bytes: a flipped bit makes no difference", n);
    }
}

TEST(sha256_vectors) {
    const auto sha = [](const std::string& text) {
        std::string hex;
        for (const uint8_t byte : sha256(text)) hex += format("%02x", byte);
        return hex;
    };
    // FIPS 180-4's examples: "", "abc", 448 bits, a million times a.
    const struct { std::string text; const char* want; } cases[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {std::string(1000000, 'a'), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"}};
    for (const auto& c : cases) EXPECT(sha(c.text) == c.want, "%zu bytes: %s", c.text.size(), sha(c.text).c_str());
}

TEST(hash_bytes_sees_every_bit_and_the_length) {
    for (const size_t n : {0, 1, 7, 8, 31, 32, 33, 100}) {
        std::string s = pattern(n);
        const uint64_t h = hash_bytes(s.data(), n, 1);
        EXPECT(h != hash_bytes(s.data(), n, 2), "seed, n=%zu", n);
        for (size_t bit = 0; bit < 8 * n; bit++) {
            s[bit / 8] = char(s[bit / 8] ^ 1 << bit % 8);
            EXPECT(h != hash_bytes(s.data(), n, 1), "bit %zu of n=%zu", bit, n);
            s[bit / 8] = char(s[bit / 8] ^ 1 << bit % 8);
        }
        s += '\0';
        EXPECT(h != hash_bytes(s.data(), n + 1, 1), "a zero byte more, n=%zu", n);
    }
    // Sign flips of neighbouring floats must not cancel, nor a swap of two words.
    std::vector<float> x(64, 1.0f);
    const uint64_t h = hash_bytes(x.data(), 256, 0);
    for (size_t i = 0; i < 64; i++)
        for (size_t j = i + 1; j < 64; j++) {
            x[i] = x[j] = -1;
            EXPECT(h != hash_bytes(x.data(), 256, 0), "signs of %zu and %zu", i, j);
            x[i] = x[j] = 1;
        }
}

TEST(reading_refuses_what_is_no_file) {
    Folder dir;
    expect_error(kExitNoInput, "No such file", [&] { InputFile(dir / "absent"); });
    expect_error(kExitNoInput, "got a folder", [&] { InputFile(dir.path); });
    EXPECT_EQ(mkfifo((dir / "fifo").c_str(), 0600), 0);
    expect_error(kExitNoInput, "want a regular file", [&] { read_file(dir / "fifo"); });  // must not hang either
    expect_error(kExitNoInput, "want a regular file", [&] { read_file("/dev/zero"); });
    EXPECT_EQ(symlink("loop", (dir / "loop").c_str()), 0);
    expect_error(kExitNoInput, "symbolic links", [&] { InputFile(dir / "loop"); });
    expect_error(kExitNoInput, "", [&] { list_directory(dir / "absent"); });
}

TEST(a_file_is_read_as_large_as_it_was_opened) {
    Folder dir;
    write_file_atomic(dir / "empty", "");
    const InputFile empty(dir / "empty");
    EXPECT(empty.size == 0 && empty.checksum() == 0 && read_file(dir / "empty").empty(), "empty");
    const std::string s = pattern(300000);
    write_file_atomic(dir / "f", s);
    const InputFile file(dir / "f");
    FileReader reader(dir / "f");
    FILE* const log = fopen((dir / "f").c_str(), "a");
    fputs("appended", log);
    fclose(log);
    const uint32_t want = crc32c(0, s.data(), s.size()), behind = crc32c(7, s.data(), s.size());
    EXPECT(file.checksum() == want && file.checksum(7) == behind, "sum");
    EXPECT(reader.look(1 << 20) == s, "what was appended is read");
}

TEST(a_file_that_shrinks_is_an_error) {
    Folder dir;
    write_file_atomic(dir / "f", pattern(300000));
    const InputFile file(dir / "f");
    FileReader reader(dir / "f");
    EXPECT(reader.look(1).size() >= 1 && truncate((dir / "f").c_str(), 100000) == 0, "truncate");
    std::string all(300000, '\0');
    const std::string want = "f: byte 100000: the file was cut short";
    expect_error(kExitBadContent, want, [&] { file.read(0, all.data(), all.size()); });
    expect_error(kExitBadContent, want, [&] { file.checksum(); });
    expect_error(kExitBadContent, want, [&] { reader.look(300000); });
}

TEST(lines_of_any_length) {
    Folder dir;
    const std::string longest(500000, 'x');
    const std::vector<std::string> want = {"", "a\r", std::string("b\0c", 3), longest, "", "end"};
    for (const char* last : {"\n", ""}) {
        std::string text;
        for (const std::string& line : want) text += line + (&line == &want.back() ? last : "\n");
        write_file_atomic(dir / "f", text);
        FileReader reader(dir / "f");
        std::vector<std::string> got;
        for (std::string_view line; reader.line(&line);) got.emplace_back(line);
        EXPECT(got == want, "%zu lines", got.size());
    }
}

TEST(what_was_written_to_is_noticed) {
    Folder dir;
    write_file_atomic(dir / "f", "abc");
    InputFile file(dir / "f");
    EXPECT(!file.touched(), "nothing has happened");
    const timespec times[2] = {{1, 0}, {1, 0}};
    EXPECT(utimensat(AT_FDCWD, (dir / "f").c_str(), times, 0) == 0 && file.touched() && !file.touched(), "once");
    write_file_atomic(dir / "f", "ABC");                            // another file of this name
    char text[3];
    file.read(0, text, 3);
    EXPECT(std::string(text, 3) == "abc", "the open one stays what it was");
}

TEST(a_sparse_file_of_100_gb_opens_at_once) {
    Folder dir;
    const int fd = open((dir / "huge").c_str(), O_CREAT | O_WRONLY, 0600);
    const bool made = ftruncate(fd, off_t(100) << 30) == 0;
    close(fd);
    if (!made) SKIP("this file system has no files of 100 GB");
    EXPECT(InputFile(dir / "huge").size == size_t(100) << 30, "size");
}

TEST(paths) {
    EXPECT(base_name("a/b/") == "b" && base_name("b") == "b" && base_name("/") == "/" &&
               base_name("") == "");
    EXPECT(path_join("a", "b") == "a/b" && path_join("a/", "b") == "a/b" &&
               path_join("", "b") == "b" && path_join("a", "/b") == "/b");
    EXPECT(file_exists(program_path()) && program_path()[0] == '/', "%s", program_path().c_str());
}

TEST(real_paths) {
    Folder dir;
    const std::string here = std::filesystem::current_path().string();
    const std::string real = std::filesystem::canonical(dir.path).string();
    std::filesystem::create_directory_symlink(here, dir / "here");
    std::filesystem::create_symlink("itself", dir / "itself");
    const std::pair<std::string, std::string> cases[] = {
        {"src//base/", "src/base"}, {"./src/../src", "src"}, {here + "/src", "src"}, {dir / "here/src/", "src"},
        {"absent/x/", "absent/x"}, {".", here}, {here, here}, {"./-x", here + "/-x"}, {"./.x", here + "/.x"},
        {dir / "absent/", real + "/absent"}, {dir / "itself", dir / "itself"}, {"", ""}, {"/", "/"}};
    for (const auto& [path, want] : cases)
        EXPECT(real_path(path) == want, "%s: got %s, want %s", path.c_str(), real_path(path).c_str(), want.c_str());
}

TEST(folders) {
    Folder dir;
    make_directories(dir / "x/y//z/");
    make_directories(dir / "x/y/z");
    EXPECT(is_directory(dir / "x/y/z"), "x/y/z");
    write_file_atomic(dir / "x/b.txt", "b");
    write_file_atomic(dir / "x/a.txt", "a");
    write_file_atomic(dir / "x/B.txt", "B");
    const std::vector<std::string> want = {"B.txt", "a.txt", "b.txt", "y"};
    EXPECT_EQ(list_directory(dir / "x"), want);
    const std::vector<std::string> found = expand_glob(dir / "x/?.txt");
    EXPECT(found.size() == 3 && found[0] == dir / "x/B.txt", "%zu", found.size());
    EXPECT(expand_glob(dir / "x/*.bin").empty(), "none");
    make_directories(dir / "x/[odd]");
    write_file_atomic(dir / "x/[odd]/.hidden", "");
    write_file_atomic(dir / "x/[odd]/c.txt", "");
    EXPECT_EQ(expand_glob(dir / "*/?odd]/*"), std::vector<std::string>{dir / "x/[odd]/c.txt"});
    EXPECT_EQ(expand_glob(dir / "x/\\[odd]//c.[st]xt"), std::vector<std::string>{dir / "x/[odd]//c.txt"});
    EXPECT(expand_glob(dir / "x/*/").size() == 2 && expand_glob(dir / "x/a.txt/*").empty(), "folders");
    EXPECT(expand_glob(dir / "x/a.txt").size() == 1 && expand_glob(dir / "*/absent").empty(), "no pattern");
    remove_tree(dir / "x/[odd]");
    expect_error(kExitWrite, "cannot make folder", [&] { make_directories(dir / "x/a.txt/q"); });
    expect_error(kExitWrite, "cannot make folder", [&] { make_directories(dir / "x/a.txt"); });
    EXPECT_EQ(symlink("/etc", (dir / "x/link").c_str()), 0);
    remove_tree(dir / "x");
    remove_tree(dir / "x");
    EXPECT(!file_exists(dir / "x") && file_exists("/etc"), "remove_tree follows no links");
}

TEST(writer_counts_and_sums) {
    Folder dir;
    const std::string s = pattern(3 * (1 << 20) + 17);
    FileWriter file(dir / "f");
    file.write(s.data(), 5);
    file.write(s.data() + 5, s.size() - 5);
    file.write(s.data(), 0);
    file.finish();
    EXPECT(file.bytes == s.size() && file.crc == crc32c(0, s.data(), s.size()), "%llu", (unsigned long long)file.bytes);
    EXPECT_EQ(read_file(dir / "f"), s);
    expect_error(kExitWrite, "File exists", [&] { FileWriter again(dir / "f"); });
    expect_error(kExitWrite, "No such file", [&] { FileWriter nowhere(dir / "no/f"); });
    EXPECT_EQ(symlink("f2", (dir / "link").c_str()), 0);
    expect_error(kExitWrite, "link", [&] { FileWriter through(dir / "link"); });
}

TEST(a_full_disk_is_an_error) {
    Folder dir;
    const std::string s = pattern(100000);
    {
        FileSizeLimit limit(65536);
        expect_error(kExitWrite, "File too large after 65,536 bytes", [&] {
            FileWriter file(dir / "f");
            file.write(s.data(), s.size());
        });
        write_file_atomic(dir / "small", "old");
        expect_error(kExitWrite, "File too large", [&] { write_file_atomic(dir / "small", s); });
    }
    EXPECT(read_file(dir / "small") == "old", "the old content stays");
    EXPECT(list_directory(dir.path) == (std::vector<std::string>{"f", "small"}), "no temporary file stays");
}

TEST(atomic_write_replaces) {
    Folder dir;
    write_file_atomic(dir / "f", "one");
    write_file_atomic(dir / "f", "two");
    write_file_atomic((dir / "f") + ".tmp" + std::to_string(getpid()), "a stale temporary file of this process number");
    write_file_atomic(dir / "f", "three");
    EXPECT(read_file(dir / "f") == "three" && list_directory(dir.path).size() == 1, "content");
    expect_error(kExitWrite, "No such file", [&] { write_file_atomic(dir / "no/f", "x"); });
}

// A signal in the middle of a write into a slow pipe: the loop must go on where it stopped. A FileWriter opens only new
// files, so a big file under a timer that fires all the time stands for it.
TEST(signals_do_not_lose_bytes) {
    Folder dir;
    struct sigaction action {
    }, old{};
    action.sa_handler = [](int) {};  // without SA_RESTART
    sigaction(SIGALRM, &action, &old);
    const itimerval often{{0, 200}, {0, 200}}, never{};
    setitimer(ITIMER_REAL, &often, nullptr);
    const std::string s = pattern(size_t(4) << 20);
    {
        FileWriter file(dir / "f");
        file.write(s.data(), s.size());
        file.finish();
    }
    setitimer(ITIMER_REAL, &never, nullptr);
    sigaction(SIGALRM, &old, nullptr);
    EXPECT_EQ(read_file(dir / "f"), s);
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
