// test_file.cpp -- checksums against published vectors, reading of odd things, writing that fails.
#include <fcntl.h>
#include <sys/time.h>
#include <unistd.h>
#include <algorithm>
#include <filesystem>
#include <numeric>
#include "tools/text/reader.h"
#include "tests/test.h"
#include "tests/unit/limit.h"

namespace {
std::string pattern(size_t n) {
    std::string s(n, '\0');
    uint32_t x = 1;
    for (char& c : s) c = char((x = x * 1664525 + 1013904223) >> 24);
    return s;
}
}  // namespace

TEST(crc32c_vectors) {
    // RFC 3720, B.4: 32 zeros, 32 times 0xFF, 0..31, 31..0; and the customary check value.
    std::string up(32, '\0');
    std::iota(up.begin(), up.end(), '\0');
    const std::pair<std::string, uint32_t> cases[] = {
        {"", 0}, {"123456789", 0xe3069283}, {std::string(32, '\0'), 0x8a9136aa}, {std::string(32, '\xff'), 0x62a8ab43},
        {up, 0x46dd794e}, {{up.rbegin(), up.rend()}, 0x113fdb5c}};
    for (const auto& [text, want] : cases) EXPECT_EQ(crc32c(0, text.data(), text.size()), want);
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
    // FIPS 180-4's examples: "", "abc", 448 bits, a million times a.
    const std::pair<std::string, const char*> cases[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {std::string(1000000, 'a'), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"}};
    for (const auto& [text, want] : cases) {
        std::string hex;
        for (const uint8_t byte : sha256(text)) hex += format("%02x", byte);
        EXPECT_EQ(hex, want);
    }
}

TEST(hash_bytes_sees_every_bit_and_the_length) {
    for (const size_t n : {0, 1, 7, 8, 31, 32, 33, 100}) {
        std::string s = pattern(n);
        const uint64_t h = hash_bytes(s.data(), n, 1);
        EXPECT(h != hash_bytes(s.data(), n, 2), "seed, n=%zu", n);
        for (size_t bit = 0; bit < 8 * n; bit++) {
            const char byte = s[bit / 8];
            s[bit / 8] = char(byte ^ 1 << bit % 8);
            EXPECT(h != hash_bytes(s.data(), n, 1), "bit %zu of n=%zu", bit, n);
            s[bit / 8] = byte;
        }
        EXPECT(h != hash_bytes(s.c_str(), n + 1, 1), "a zero byte more, n=%zu", n);
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
    const Folder dir;
    EXPECT(mkfifo((dir / "fifo").c_str(), 0600) == 0 && symlink("loop", (dir / "loop").c_str()) == 0);
    const Refusals refused = {
        {dir / "absent", "No such file"}, {dir.path, "got a folder"}, {"/dev/zero", "want a regular file"},
        {dir / "fifo", "want a regular file"},      // must not hang either
        {dir / "loop", "symbolic links"}};
    expect_refusals(kExitNoInput, refused, read_file);
    expect_error(kExitNoInput, "", [&] { list_directory(dir / "absent"); });
}

TEST(a_file_is_read_as_large_as_it_was_opened) {
    const Folder dir;
    const InputFile empty(dir.add("empty", ""));
    EXPECT(empty.size == 0 && empty.checksum() == 0 && read_file(dir / "empty").empty(), "empty");
    const std::string s = pattern(300000), path = dir.add("f", s);
    const InputFile file(path);
    FileReader reader(path);
    put(path, s + "appended");
    const uint32_t want = crc32c(0, s.data(), s.size()), behind = crc32c(7, s.data(), s.size());
    EXPECT(file.checksum() == want && file.checksum(7) == behind, "sum");
    EXPECT(reader.look(1 << 20) == s, "what was appended is read");
}

TEST(a_file_that_shrinks_is_an_error) {
    const Folder dir;
    const std::string path = dir.add("f", pattern(300000));
    const InputFile file(path);
    FileReader reader(path);
    EXPECT(reader.look(1).size() >= 1 && truncate(path.c_str(), 100000) == 0, "truncate");
    std::string all(300000, '\0');
    const std::function<void()> reads[] = {
        [&] { file.read(0, all.data(), all.size()); }, [&] { file.checksum(); }, [&] { reader.look(300000); }};
    for (const auto& read : reads) expect_error(kExitBadContent, "f: byte 100000: the file was cut short", read);
}

TEST(lines_of_any_length) {
    const Folder dir;
    const std::vector<std::string> want = {"", "a\r", std::string("b\0c", 3), std::string(500000, 'x'), "", "end"};
    for (const char* last : {"\n", ""}) {
        FileReader reader(dir.add("f", std::string("\na\r\nb\0c\n", 8) + want[3] + "\n\nend" + last));
        std::vector<std::string> got;
        for (std::string_view line; reader.line(&line);) got.emplace_back(line);
        EXPECT(got == want, "%zu lines", got.size());
    }
}

TEST(what_was_written_to_is_noticed) {
    const Folder dir;
    InputFile file(dir.add("f", "abc"));
    EXPECT(!file.touched(), "nothing has happened");
    const timespec times[2] = {{1, 0}, {1, 0}};
    EXPECT(utimensat(AT_FDCWD, file.path.c_str(), times, 0) == 0 && file.touched() && !file.touched(), "once");
    write_file_atomic(dir / "f", "ABC");                            // another file of this name
    char text[3];
    file.read(0, text, 3);
    EXPECT(std::string(text, 3) == "abc", "the open one stays what it was");
}

TEST(a_sparse_file_of_100_gb_opens_at_once) {
    const Folder dir;
    const std::string path = dir.add("huge", "");
    if (truncate(path.c_str(), off_t(100) << 30) != 0) SKIP("this file system has no files of 100 GB");
    EXPECT(InputFile(path).size == size_t(100) << 30, "size");
}

TEST(paths) {
    for (const auto& [path, want] : {std::pair("a/b/", "b"), {"b", "b"}, {"/", "/"}, {"", ""}})
        EXPECT_EQ(base_name(path), want);
    EXPECT(path_join("a", "b") == "a/b" && path_join("a/", "b") == "a/b" && path_join("", "b") == "b" &&
               path_join("a", "/b") == "/b");
    EXPECT(file_exists(program_path()) && program_path()[0] == '/', "%s", program_path().c_str());
}

TEST(real_paths) {
    const Folder dir;
    const std::string here = std::filesystem::current_path().string();
    const std::string real = std::filesystem::canonical(dir.path).string();
    std::filesystem::create_directory_symlink(here, dir / "here");
    std::filesystem::create_symlink("itself", dir / "itself");
    const std::pair<std::string, std::string> cases[] = {
        {"src//base/", "src/base"}, {"./src/../src", "src"}, {here + "/src", "src"}, {dir / "here/src/", "src"},
        {"absent/x/", "absent/x"}, {".", here}, {here, here}, {"./-x", here + "/-x"}, {"./.x", here + "/.x"},
        {dir / "absent/", real + "/absent"}, {dir / "itself", dir / "itself"}, {"", ""}, {"/", "/"}};
    for (const auto& [path, want] : cases) {
        const Row row(path);
        EXPECT_EQ(real_path(path), want);
    }
}

TEST(folders) {
    const Folder dir;
    make_directories(dir / "x/y//z/");
    make_directories(dir / "x/y/z");
    EXPECT(is_directory(dir / "x/y/z"), "x/y/z");
    make_directories(dir / "x/[odd]");
    for (const char* name : {"x/b.txt", "x/a.txt", "x/B.txt", "x/[odd]/.hidden", "x/[odd]/c.txt"}) dir.add(name, "");
    EXPECT_EQ(join(list_directory(dir / "x"), " "), "B.txt [odd] a.txt b.txt y");
    const std::pair<const char*, std::vector<std::string>> globs[] = {
        {"x/?.txt", {"x/B.txt", "x/a.txt", "x/b.txt"}}, {"x/*.bin", {}}, {"*/?odd]/*", {"x/[odd]/c.txt"}},
        {"x/\\[odd]//c.[st]xt", {"x/[odd]//c.txt"}}, {"x/*/", {"x/[odd]/", "x/y/"}}, {"x/a.txt/*", {}},
        {"x/a.txt", {"x/a.txt"}}, {"*/absent", {}}};
    for (auto [pattern, want] : globs) {
        const Row row(pattern);
        for (std::string& path : want) path = dir / path;
        EXPECT_EQ(expand_glob(dir / pattern), want);
    }
    const auto make = [&](const std::string& path) { make_directories(dir / path); };
    expect_refusals(kExitWrite, {{"x/a.txt/q", "cannot make folder"}, {"x/a.txt", "cannot make folder"}}, make);
    EXPECT_EQ(symlink("/etc", (dir / "x/link").c_str()), 0);
    remove_tree(dir / "x");
    remove_tree(dir / "x");
    EXPECT(!file_exists(dir / "x") && file_exists("/etc"), "remove_tree follows no links");
}

TEST(writer_counts_and_sums) {
    const Folder dir;
    const std::string s = pattern(3 * (1 << 20) + 17);
    FileWriter file(dir / "f");
    file.write(s.data(), 5);
    file.write(s.data() + 5, s.size() - 5);
    file.write(s.data(), 0);
    file.finish();
    EXPECT(file.bytes == s.size() && file.crc == crc32c(0, s.data(), s.size()), "%llu", (unsigned long long)file.bytes);
    EXPECT_EQ(read_file(dir / "f"), s);
    EXPECT_EQ(symlink("f2", (dir / "link").c_str()), 0);
    expect_refusals(kExitWrite, {{"f", "File exists"}, {"no/f", "No such file"}, {"link", "link"}},
                    [&](const std::string& name) { FileWriter again(dir / name); });
}

TEST(a_full_disk_is_an_error) {
    const Folder dir;
    const std::string s = pattern(100000);
    {
        const Limit<RLIMIT_FSIZE> limit(65536);
        FileWriter file(dir / "f");
        expect_error(kExitWrite, "File too large after 65,536 bytes", [&] { file.write(s.data(), s.size()); });
        dir.add("small", "old");
        expect_error(kExitWrite, "File too large", [&] { write_file_atomic(dir / "small", s); });
    }
    EXPECT(read_file(dir / "small") == "old", "the old content stays");
    EXPECT(list_directory(dir.path) == (std::vector<std::string>{"f", "small"}), "no temporary file stays");
}

TEST(atomic_write_replaces) {
    const Folder dir;
    dir.add("f.tmp" + std::to_string(getpid()), "a stale temporary file of this process number");
    for (const char* text : {"one", "two"}) {
        write_file_atomic(dir / "f", text);
        EXPECT(read_file(dir / "f") == text && list_directory(dir.path).size() == 1, "content");
    }
    expect_error(kExitWrite, "No such file", [&] { write_file_atomic(dir / "no/f", "x"); });
}

// A signal in the middle of a write into a slow pipe: the loop must go on where it stopped. A FileWriter opens only new
// files, so a big file under a timer that fires all the time stands for it.
TEST(signals_do_not_lose_bytes) {
    const Folder dir;
    struct sigaction action {
    }, old{};
    action.sa_handler = [](int) {};  // without SA_RESTART
    sigaction(SIGALRM, &action, &old);
    const itimerval often{{0, 200}, {0, 200}}, never{};
    setitimer(ITIMER_REAL, &often, nullptr);
    const std::string s = pattern(size_t(4) << 20);
    FileWriter file(dir / "f");
    file.write(s.data(), s.size());
    file.finish();
    setitimer(ITIMER_REAL, &never, nullptr);
    sigaction(SIGALRM, &old, nullptr);
    EXPECT_EQ(read_file(dir / "f"), s);
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
