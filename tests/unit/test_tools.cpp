// test_tools.cpp -- a tool that is asked: answers, progress, errors, and either side's death. The tool is this program.
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <cstring>
#include "src/base/file.h"
#include "src/base/words.h"
#include "tests/test.h"
#include "tools/tool.h"

static std::string ask(const std::string& what, const std::string& request = "",
                       const std::function<void()>& progress = [] {}, const std::string& tool = program_path()) {
    return ask_tool("--test", tool, {"--tool", what}, request, progress);
}

// The tool's work: what its argument says.
static std::string work(const std::string& what, const std::string& request, const std::function<void()>& progress) {
    if (what == "echo") return request;
    if (what == "hash") return format("%zu %08x", request.size(), crc32c(0, request.data(), request.size()));
    if (what == "error") die(kExitBadContent, "%s", request.c_str());
    if (what == "exit") _exit(7);
    if (what == "kill") raise(SIGKILL);
    if (what == "memory") throw std::bad_alloc();
    if (what == "lines") return "two\nlines";
    if (what == "default") std::signal(SIGTERM, SIG_DFL);
    for (int i = 0; what == "forever" || i < 3; i++, usleep(120'000)) progress();
    return "after progress";
}

TEST(answers) {
    EXPECT_EQ(ask("echo", "a \x7f line"), "a \x7f line");
    EXPECT_EQ(ask("echo"), "");
    int count = 0;
    EXPECT_EQ(ask("progress", "", [&] { count++; }), "after progress");  // the last line that is not empty
    EXPECT_EQ(count, 3);
}

// More than a pipe holds in both directions, though each side writes before it reads.
TEST(megabytes) {
    std::string request(5'000'000, 'x');
    for (size_t i = 0; i < request.size(); i += 7) request[i] = char(i >> 3);
    EXPECT_EQ(ask("hash", request), work("hash", request, {}));
    const std::string line(3'000'000, 'y');
    EXPECT(ask("echo", line) == line, "another text came back");
}

TEST(errors) {
    const struct { int code; const char *part, *what, *request = ""; } rows[] = {
        {kExitBadContent, "m.gguf: got 1, want 2", "error", "m.gguf: got 1, want 2"},
        {kExitBadContent, "a\\x0ab", "error", "a\nb"}, {7, "--test: ", "exit"}, {kExitOther, "out of memory", "memory"},
        {kExitOther, "several lines", "lines"}, {kExitOther, "killed by signal 9", "kill"}};
    for (const auto& [code, part, what, request] : rows)
        expect_error(code, part, [what = what, request = request] { ask(what, request); });
    expect_error(kExitOther, "cannot start", [] { ask("echo", "", [] {}, "/proc/none"); });
}

// A tool whose standard error is a pipe, so that its end can be seen.
struct Watched {
    int ends[2], old = dup(STDERR_FILENO);
    Watched() {
        EXPECT_EQ(pipe(ends), 0);
        dup2(ends[1], STDERR_FILENO);
        close(ends[1]);
    }
    // Waits for the end of all who have the pipe. Returns what they wrote.
    std::string end() {
        dup2(old, STDERR_FILENO);
        std::string text;
        char piece[512];
        for (ssize_t n; (n = read(ends[0], piece, sizeof piece)) > 0;) text.append(piece, size_t(n));
        close(ends[0]), close(old);
        return text;
    }
};

TEST(options_of_a_tool) {
    const auto read = [](const Words& words) {
        std::string out = "a";
        int port = -1;
        double part = 0.5;
        bool log = false;
        Words given;
        const Words rest = read_options({{"-o", "FILE", "where", &out},
                                         {"--serve", "[PORT]", "shows it", &port, "", {"from 0 to 9", 0, 9}, "6"},
                                         {"--val-part", "X", "of all", &part, "", kBelowOne},
                                         {"--log", "", "", &log}}, words, &given, "a value, ");
        return format("%s %d %g %d ", out.c_str(), port, part, log) + join(rest, ",");
    };
    const struct { Words words; const char* got; } good[] = {
        {{}, "a -1 0.5 0 "}, {{"x", "-", ""}, "a -1 0.5 0 x,-,"}, {{"-o", "b", "x"}, "b -1 0.5 0 x"},
        {{"-o=b=c", "--val_part=0.1"}, "b=c -1 0.1 0 "}, {{"--serve", "3", "x"}, "a 3 0.5 0 x"},
        {{"--serve", "x"}, "a 6 0.5 0 x"}, {{"--serve", "--log"}, "a 6 0.5 1 "}, {{"x", "--serve"}, "a 6 0.5 0 x"},
        {{"--serve=0", "--log=off"}, "a 0 0.5 0 "}};
    for (const auto& [words, got] : good) EXPECT_EQ(read(words), got);
    const struct { Words words; const char* error; } bad[] = {
        {{"--val-part", "1"}, "--val-part: got 1, want a number >= 0 and < 1"}, {{"-o", ""}, "-o: got nothing, want"},
        {{"--val-part"}, "--val-part: got no value"}, {{"-o", "--log"}, "-o: got no value, want a value, FILE"},
        {{"--serve", "10"}, "--serve: got 10, want a whole number from 0 to 9"}, {{"--log=3"}, "got 3, want on|off"},
        {{"--log", "--log"}, "--log: got two values"}, {{"--sevre"}, "unknown option --sevre; did you mean --serve?"},
        {{"--val"}, "did you mean --val-part?"}, {{"--lgo"}, "unknown option --lgo; --help lists all"}, {{"-5"}, "-5"}};
    for (const auto& [words, error] : bad) expect_error(kExitUsage, error, [&, words = words] { read(words); });
}

TEST(tool_ends_with_its_asker) {
    Watched tool;
    int begun[2];
    EXPECT_EQ(pipe(begun), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        ask("forever", "", [&] {
            if (write(begun[1], "x", 1) < 0) _exit(1);
        });
        _exit(1);
    }
    char x;
    EXPECT_EQ(read(begun[0], &x, 1), 1);
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    EXPECT_EQ(tool.end(), "");
    close(begun[0]), close(begun[1]);
}

TEST(asker_breaks_off) {
    Watched tool;
    expect_error(kExitStopped, "stopped", [] { ask("forever", "", [] { die(kExitStopped, "stopped"); }); });
    EXPECT_EQ(tool.end(), "");
    while (wait(nullptr) > 0) {}
}

// A signal that the whole group gets, such as Ctrl-C, does not end the tool. The group is one of their own.
TEST(tool_blocks_signals) {
    const pid_t pid = fork();
    if (pid == 0) {
        if (setpgid(0, 0) != 0) _exit(3);
        std::signal(SIGTERM, SIG_IGN);
        int count = 0;
        const std::string answer = ask("default", "", [&] {
            count++;
            kill(0, SIGTERM);
        });
        _exit(answer == "after progress" && count == 3 ? 0 : 1);
    }
    int status = -1;
    EXPECT(waitpid(pid, &status, 0) == pid && status == 0, "status %x", status);
}

int main(int argc, char** argv) {
    alarm(300);                             // no test may hang
    if (argc == 3 && std::string(argv[1]) == "--tool")
        return answer_request([&](const std::string& request, const std::function<void()>& progress) {
            return work(argv[2], request, progress);
        });
    return run_tests(argc, argv);
}
