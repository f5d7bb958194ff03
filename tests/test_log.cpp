// test_log.cpp -- console and metrics.jsonl: exact fields, resumes and torn lines, full disks and closed pipes, terminals, curves.
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <list>
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>
#include "file.h"
#include "log.h"
#include "test.h"

namespace {

struct TempFolder {
    std::string path;
    TempFolder() {
        const char* base = std::getenv("TMPDIR");
        path = std::string(base && *base ? base : "/tmp") + "/test_log.XXXXXX";
        EXPECT(mkdtemp(path.data()), "%s", path.c_str());
    }
    ~TempFolder() { remove_tree(path); }
};

// Points stdout (or stderr) at another descriptor for the time of f.
void redirected(int which, int fd, const std::function<void()>& f) {
    std::fflush(stdout);
    const int saved = dup(which);
    dup2(fd, which);
    std::exception_ptr failure;
    try { f(); } catch (...) { failure = std::current_exception(); }
    std::fflush(stdout);
    dup2(saved, which);
    close(saved);
    if (failure) std::rethrow_exception(failure);
}
std::string captured(int which, const std::function<void()>& f) {
    FILE* file = std::tmpfile();
    redirected(which, fileno(file), f);
    std::rewind(file);
    std::string text;
    for (int c; (c = std::fgetc(file)) != EOF;) text += char(c);
    std::fclose(file);
    return text;
}
std::string console(const std::function<void()>& f) { return captured(1, f); }

TrainLine line_of(int64_t step, int64_t steps, double loss, int ranks = 1) {
    TrainLine l{};
    l.step = step, l.steps = steps, l.loss = loss, l.lr = 9.9e-4, l.grad_norm = 0.71, l.step_ms = 8.1, l.tok_s = 252345;
    l.tokens = 4096 * (step + 1), l.mfu = NAN, l.gflops = 4.1, l.compute_ms = 7.5, l.comm_ms = 0.8, l.exposed_ms = 0.1;
    l.compute_ms_min = 7.25, l.compute_ms_max = 7.75, l.slowest_rank = 2, l.ranks = ranks;
    return l;
}
void append(const std::string& path, const std::string& text) {
    FILE* f = std::fopen(path.c_str(), "ab");
    std::fwrite(text.data(), 1, text.size(), f);
    std::fclose(f);
}
std::vector<Json> events(const std::string& path) {
    static std::list<std::string> files;                // what they lie in
    std::vector<Json> out;
    const std::string& text = files.emplace_back(read_file(path));
    EXPECT(text.empty() || text.back() == '\n', "%s does not end in a line end", path.c_str());
    for (size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
        out.push_back(parse_json(std::string_view(text).substr(at, end - at), "metrics"));
    return out;
}
std::string keys(const Json& object) {
    std::string out;
    for (JsonItems i(object); i.next();) out += (out.empty() ? "" : " ") + i.key.text();
    return out;
}
size_t count_of(const std::string& text, const std::string& part) {
    size_t n = 0;
    for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) n++;
    return n;
}
// Characters of UTF-8 text.
size_t columns(const std::string& text) {
    size_t n = 0;
    for (const char c : text) n += (c & 0xC0) != 0x80;
    return n;
}

}  // namespace

TEST(events_have_the_promised_fields) {
    TempFolder tmp;
    const double loss = 2.0 / 3, norm = 0.1;
    console([&] {
        Log log(tmp.path, false, 1);
        log.event(JsonLine().add("event", "run").add("seed", 7));
        TrainLine one = line_of(0, 3, loss);
        one.grad_norm = norm;
        log.train(one);
        TrainLine several = line_of(1, 3, NAN, 4);
        several.mfu = 0.461;
        log.train(several);
        log.val(1, loss, NAN, "");
        log.val(2, INFINITY, 2.5, "5,120 tokens");
        log.sample_begin(2, "It \"was\"");
        log.sample_text("x");
        log.sample_end(2, "It \"was\"", "x\n\xff");
        log.sync();
    });
    const std::vector<Json> e = events(tmp.path + "/metrics.jsonl");
    EXPECT(e.size() == 6, "%zu events", e.size());
    const std::string train = "event step loss lr grad_norm step_ms tok_s tokens mfu compute_ms comm_ms exposed_ms";
    EXPECT(keys(e[1]) == train + " time", "%s", keys(e[1]).c_str());
    EXPECT(keys(e[2]) == train + " compute_ms_min compute_ms_max slowest_rank time", "%s", keys(e[2]).c_str());
    EXPECT(e[1].get_double("loss", "") == loss && e[1].get_double("grad_norm", "") == norm, "not the same bits");
    EXPECT(e[1].find("mfu").kind() == Json::null && float(e[2].get_double("mfu", "")) == 0.461f && e[2].find("loss").kind() == Json::null, "NaN");
    EXPECT(e[1].get_u64("tokens", "") == 4096 && float(e[1].get_double("step_ms", "")) == 8.1f && e[2].get_u64("slowest_rank", "") == 2, "numbers");
    EXPECT(keys(e[3]) == "event step loss bpb time" && e[3].find("bpb").kind() == Json::null && e[4].find("loss").kind() == Json::null, "val");
    EXPECT(keys(e[5]) == "event step prompt text time" && e[5].get_string("prompt", "") == "It \"was\"" &&
           e[5].get_string("text", "") == "x\n\uFFFD", "sample");
}

TEST(each_line_is_in_the_file_at_once) {
    TempFolder tmp;
    console([&] {
        Log log(tmp.path, false, 0);
        for (int i = 0; i < 3; i++) {
            log.train(line_of(i, 10, 1));
            EXPECT(events(tmp.path + "/metrics.jsonl").size() == size_t(i + 1), "after step %d", i);
        }
    });
}

TEST(line_text) {
    TrainLine l = line_of(120, 800, 2.4312);
    EXPECT(train_line_text(l, 7.3) == "step   120/800 | loss 2.4312 | lr 9.9e-04 | norm 0.71 |    8.1 ms |  252k tok/s | 4.10 GFLOP/s | eta 0:07",
           "%s", train_line_text(l, 7.3).c_str());
    l.mfu = 0.461, l.ranks = 2, l.tok_s = 1.62e6;
    EXPECT(train_line_text(l, 5650).find("| 1.62M tok/s | mfu 46.1% | eta 1:34:10 | comm 0.8 ms exposed 0.1 | slowest rank 2") != std::string::npos,
           "%s", train_line_text(l, 5650).c_str());
    const struct { double tok_s; const char* text; } speeds[] = {{812, "  812 tok"}, {999.4, "  999 tok"}, {999.6, "1.00k tok"}, {25231, "25.2k tok"},
                                                                 {999600, "1.00M tok"}, {1e30, " tok"}, {INFINITY, "? tok"}, {0, "0 tok"}};
    for (const auto& s : speeds) {
        l.tok_s = s.tok_s;
        EXPECT(train_line_text(l, 1).find(s.text) != std::string::npos, "%s", train_line_text(l, 1).c_str());
    }
    const struct { double seconds; const char* text; } etas[] = {{NAN, "eta ?"}, {0, "eta 0:00"}, {59.6, "eta 1:00"}, {3599, "eta 59:59"}, {3600, "eta 1:00:00"},
                                                                 {90061, "eta 1d 1:01:01"}, {-1, "eta ?"}, {INFINITY, "eta ?"}};
    for (const int columns : {1, 10, 40, 79, 120, 300}) {           // what does not fit is left out whole; what matters most stays
        const std::string line = train_line_text(l, 5650, columns);
        EXPECT((line.size() <= size_t(columns) || line.find('|') == std::string::npos) && line.starts_with("step "), "%d columns: %s", columns, line.c_str());
        EXPECT(columns < 79 || (line.find("loss") != std::string::npos && line.find("eta 1:34:10") != std::string::npos), "%d columns: %s", columns, line.c_str());
    }
    for (const auto& e : etas) EXPECT(train_line_text(l, e.seconds).find(e.text) != std::string::npos, "%g: %s", e.seconds, train_line_text(l, e.seconds).c_str());
    l.loss = -NAN;                                  // what x86 makes of inf - inf
    EXPECT(train_line_text(l, 1).find("loss nan") != std::string::npos, "%s", train_line_text(l, 1).c_str());
}

TEST(plain_output) {
    TempFolder tmp;
    const std::string text = console([&] {
        Log log(tmp.path, false, 1);
        log.text("model   %d layers\x1b[2J", 4);
        for (int i = 0; i < 100; i++) log.train(line_of(i, 100, 3));
        log.val(100, 2.0121, 2.903, "");
        log.val(200, 2.5, NAN, "a note");
        log.curve(log.metrics(0));
    });
    for (const char c : text) EXPECT(c == '\n' || (unsigned char)c >= 0x20, "control byte 0x%02x in plain output", c);
    EXPECT(text.find("model   4 layers\\x1b[2J\n") == 0, "%s", text.c_str());
    // 100 steps in no time: the first, the last, and one line that says why there are no others.
    EXPECT(count_of(text, "step ") >= 2 && count_of(text, "/100 | loss") == 2 && text.find("step     0/100 |") != std::string::npos &&
           text.find("step    99/100 |") != std::string::npos && count_of(text, "one line a second at most") == 1, "%s", text.c_str());
    EXPECT(text.find("val  step 100 | loss 2.0121 | 2.9030 bpb | best\n") != std::string::npos, "%s", text.c_str());
    EXPECT(text.find("val  step 200 | loss 2.5000 | a note\n") != std::string::npos, "%s", text.c_str());
    const std::string quiet = console([&] {
        Log log("", false, 0);
        for (int i = 5; i < 20; i++) log.train(line_of(i, 20, 3));
    });
    EXPECT(count_of(quiet, "\n") == 2 && quiet.find("    5/20") != std::string::npos && quiet.find("   19/20") != std::string::npos, "%s", quiet.c_str());
}

TEST(best_val) {
    const std::string text = console([&] {
        Log log("", false, 0);
        log.val(1, NAN, NAN, "");
        log.val(2, 3, NAN, "");
        log.val(3, 3, NAN, "");
        log.val(4, 2, NAN, "");
        EXPECT(log.best_val == 2, "%g", log.best_val);
    });
    EXPECT(count_of(text, "best") == 2 && count_of(text, "loss 3.0000 | best") == 1, "%s", text.c_str());
}

TEST(eta_leaves_the_first_steps_out) {
    // The first step takes 20 ms, the others none: the ETA of 1000 steps must forget it.
    const std::string text = console([&] {
        Log log("", false, 1);
        TrainLine l = line_of(0, 1000, 1);
        usleep(20000);
        log.train(l);
        usleep(20000);
        for (int i = 1; i < 30; i++) l.step = i, l.step_ms = 0, log.train(l);
        usleep(1000000);                                // so that one more line is due
        for (int i = 30; i < 42; i++) usleep(100), l.step = 100 + i, log.train(l);
    });
    // 1.0 s for about 126 steps, so about 7 s for the 869 left.
    const size_t at = text.rfind("eta ");
    EXPECT(text.find("eta ?") != std::string::npos, "the first line knows no ETA: %s", text.c_str());
    int minutes = -1, seconds = -1;
    EXPECT(std::sscanf(text.c_str() + at, "eta %d:%d", &minutes, &seconds) == 2 && minutes == 0 && seconds >= 6 && seconds <= 12, "%s", text.c_str() + at);
}

TEST(samples_are_safe_to_print) {
    const std::string text = console([&] {
        Log log("", false, 0);
        log.sample_begin(250, "Mr. ");
        for (const char* piece : {"caf\xc3", "\xa9 \x1b[31m", "\a\t\xe2\x82", "\xac", "\xc2\x9b", "x\x7f\n\xff\x9b[\xe2(", "\xf0\x9f\x98", "\x80next\xe2\x82"}) log.sample_text(piece);
        log.sample_end(250, "", "");
    });
    EXPECT(text == "sample  step 250\nMr. café \\x1b[31m\\x07\t€\\x9bx\\x7f\n\uFFFD\uFFFD[\uFFFD(\U0001F600next\uFFFD\n", "%s", escape_control(text).c_str());
}

TEST(resume_appends_and_cuts_torn_lines) {
    for (const std::string& torn : {std::string(), std::string("{\"event\":\"train\",\"st"), std::string(9000, 'x'), std::string(20, '\0')}) {
        TempFolder tmp;
        const std::string path = tmp.path + "/metrics.jsonl";
        console([&] {
            Log log(tmp.path, false, 0);
            for (int i = 0; i < 10; i++) log.train(line_of(i, 20, 10 - i));
            log.val(5, 5, NAN, "");
        });
        const std::string before = read_file(path);
        append(path, torn);
        std::string text = console([&] {
            Log log(tmp.path, true, 0);
            EXPECT(read_file(path) == before, "torn line of %zu bytes not cut", torn.size());
            log.event(JsonLine().add("event", "resume").add("step", 4));
            for (int i = 4; i < 8; i++) log.train(line_of(i, 20, 100 + i));
            log.curve(log.metrics(0));
        });
        const Metrics m = read_metrics(path);
        EXPECT(m.train.size() == 8 && m.val.empty(), "%zu train, %zu val", m.train.size(), m.val.size());
        for (int i = 0; i < 8; i++) EXPECT(m.train[i].first == i && m.train[i].second == (i < 4 ? 10 - i : 100 + i), "step %d", i);
        EXPECT(text.find("107.00 \u2502") != std::string::npos && text.find("  7.00 \u2502") != std::string::npos, "the curve knows the old losses: %s", text.c_str());
    }
    // Only a torn line, and no file at all.
    TempFolder tmp;
    append(tmp.path + "/metrics.jsonl", "{\"event\"");
    console([&] { Log log(tmp.path, true, 0); });
    EXPECT(read_file(tmp.path + "/metrics.jsonl").empty(), "not cut");
    TempFolder empty;
    console([&] { Log log(empty.path, true, 0); log.train(line_of(3, 9, 1)); });
    EXPECT(events(empty.path + "/metrics.jsonl").size() == 1, "no file before");
    // A fresh run replaces what is there.
    console([&] { Log log(empty.path, false, 0); });
    EXPECT(read_file(empty.path + "/metrics.jsonl").empty(), "not fresh");
    expect_error(kExitWrite, "metrics.jsonl", [&] { Log log(empty.path + "/absent", false, 0); });
}

TEST(reader_skips_what_is_not_an_event) {
    TempFolder tmp;
    const std::string path = tmp.path + "/metrics.jsonl";
    append(path, "\n[]\nnot json\n{\"event\":\"train\"}\n{\"event\":\"train\",\"step\":-1,\"loss\":1}\n{\"event\":3,\"step\":1}\n{\"step\":1}\n"
                 "{\"event\":\"train\",\"step\":0,\"loss\":3}\n{\"event\":\"train\",\"step\":1,\"loss\":null}\n{\"event\":\"train\",\"step\":2,\"loss\":2}\n"
                 "{\"event\":\"val\",\"step\":2,\"loss\":2.5}\n{\"event\":\"train\",\"step\":2,\"loss\":1.5}\n{\"event\":\"train\",\"step\":18446744073709551615,\"loss\":1}\n"
                 "{\"event\":\"train\",\"step\":3,\"loss\":9}");
    const Metrics m = read_metrics(path);
    EXPECT(m.train.size() == 3 && m.val.size() == 1, "%zu train, %zu val", m.train.size(), m.val.size());
    EXPECT(m.train[0].second == 3 && std::isnan(m.train[1].second) && m.train[2].second == 1.5, "the later line of a step counts");
    expect_error(kExitNoInput, "absent", [&] { read_metrics(tmp.path + "/absent"); });
}

// /dev/full refuses every write with ENOSPC.
TEST(full_disk_warns_once_and_the_run_goes_on) {
    TempFolder tmp;
    EXPECT(symlink("/dev/full", (tmp.path + "/metrics.jsonl").c_str()) == 0, "symlink");
    const std::string errors = captured(2, [&] {
        console([&] {
            Log log(tmp.path, false, 0);
            for (int i = 0; i < 100; i++) log.train(line_of(i, 100, 1));
            log.sync();
        });
    });
    EXPECT(count_of(errors, "\n") == 1 && errors.find("metrics.jsonl: No space left on device") != std::string::npos, "%s", errors.c_str());
}

// A disk that is full for a while loses nothing, not even half a line.
TEST(lines_wait_for_a_disk) {
    TempFolder tmp;
    const std::string path = tmp.path + "/metrics.jsonl";
    rlimit old{};
    getrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, SIG_IGN);
    const std::string errors = captured(2, [&] {
        const int null = open("/dev/null", O_WRONLY);
        redirected(1, null, [&] {
            Log log(tmp.path, false, 0);
            log.train(line_of(0, 30, 1));
            rlimit full = old;
            full.rlim_cur = 1000;
            setrlimit(RLIMIT_FSIZE, &full);
            for (int i = 1; i < 20; i++) log.train(line_of(i, 30, 1));
            setrlimit(RLIMIT_FSIZE, &old);
            for (int i = 20; i < 30; i++) log.train(line_of(i, 30, 1));
        });
        close(null);
    });
    const std::vector<Json> e = events(path);
    EXPECT(e.size() == 30 && count_of(errors, "warning") == 1, "%zu lines; %s", e.size(), errors.c_str());
    for (size_t i = 0; i < e.size(); i++) EXPECT(e[i].get_u64("step", "") == i, "line %zu", i);
}

// A pipe of the shell, which blocks.
TEST(console_that_nobody_reads_holds_nothing_up) {
    TempFolder tmp;
    int fds[2];
    EXPECT(pipe(fds) == 0, "pipe");
    const int size = fcntl(fds[1], F_SETPIPE_SZ, 4096);
    EXPECT(write(fds[1], std::string(size_t(size), '.').data(), size_t(size)) == size, "fill");
    char text[4096];
    ssize_t n = 0;
    redirected(1, fds[1], [&] {
        Log log(tmp.path, false, 1);
        for (int i = 0; i < 1000; i++) log.text("lost %d", i), log.event(JsonLine().add("event", "lost"));
        for (int left = size; left > 0; left -= int(n)) n = read(fds[0], text, sizeof text);
        log.text("read again");
    });
    n = read(fds[0], text, sizeof text);
    EXPECT(std::string(text, size_t(n)) == "read again\n", "%.*s", int(n), text);
    for (const int fd : fds) close(fd);
    EXPECT(events(tmp.path + "/metrics.jsonl").size() == 1000, "metrics go on");
}

TEST(closed_stdout_warns_once) {
    signal(SIGPIPE, SIG_IGN);
    TempFolder tmp;
    int pipe_fds[2];
    EXPECT(pipe(pipe_fds) == 0, "pipe");
    close(pipe_fds[0]);
    const std::string errors = captured(2, [&] {
        redirected(1, pipe_fds[1], [&] {
            Log log(tmp.path, false, 1);
            for (int i = 0; i < 3; i++) log.text("line %d", i), log.train(line_of(i, 3, 1));
        });
    });
    close(pipe_fds[1]);
    EXPECT(count_of(errors, "\n") == 1 && errors.find("stdout: Broken pipe") != std::string::npos, "%s", errors.c_str());
    EXPECT(events(tmp.path + "/metrics.jsonl").size() == 3, "metrics go on");
}

TEST(terminal_rewrites_one_line) {
    const int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) SKIP("no pseudo terminals here");
    const int terminal = open(ptsname(master), O_RDWR | O_NOCTTY);
    if (terminal < 0) SKIP("no pseudo terminals here");
    const winsize size{24, 60, 0, 0};
    ioctl(terminal, TIOCSWINSZ, &size);
    const auto run = [&](const char* term) {
        setenv("TERM", term, 1);
        redirected(1, terminal, [&] {
            Log log("", false, 1);
            for (int i = 0; i < 50; i++) {
                log.train(line_of(i, 50, 1));
                if (i == 20) usleep(110000);            // the next line is due
                if (i == 30) log.text("between");
            }
        });
        std::string all;                                // it arrives in pieces
        for (pollfd wait{master, POLLIN, 0}; poll(&wait, 1, 200) > 0;) {
            char buffer[4096];
            const ssize_t n = read(master, buffer, sizeof buffer);
            if (n <= 0) break;
            all.append(buffer, size_t(n));
        }
        return all;
    };
    const std::string text = run("xterm");
    const size_t live = text.find("\rstep    21/50");
    EXPECT(live != std::string::npos && text.find("\r\x1b[Kbetween\r\n") != std::string::npos, "%s", escape_control(text).c_str());
    const size_t live_end = text.find("\x1b[K", live);
    EXPECT(live_end - live - 1 <= 59, "fits the width less one: %zu", live_end - live - 1);
    EXPECT(text.find("step    49/50") != std::string::npos && text.substr(text.size() - 2) == "\r\n", "%s", escape_control(text).c_str());
    const std::string dumb = run("dumb");
    EXPECT(dumb.find('\x1b') == std::string::npos && dumb.find("step    49/50") != std::string::npos, "%s", escape_control(dumb).c_str());
    close(terminal);
    close(master);
}

TEST(smoothing) {
    const LossPoints noisy = {{0, 5}, {1, 3}, {2, NAN}, {3, INFINITY}, {4, 4}};
    const LossPoints s = smooth_losses(noisy, 10);
    EXPECT(s.size() == 3 && s[0].second == 5 && s[0].first == 0 && s[2].first == 4, "%zu points", s.size());
    // After two values with beta 0.9: (0.9 * 0.1 * 5 + 0.1 * 3) / (1 - 0.81).
    EXPECT(std::fabs(s[1].second - (0.45 + 0.3) / 0.19) < 1e-12, "%g", s[1].second);
    LossPoints constant;
    for (int i = 0; i < 1000; i++) constant.push_back({i, 2.5});
    for (const auto& [step, loss] : smooth_losses(constant, 50)) EXPECT(std::fabs(loss - 2.5) < 1e-9, "step %d: %g", int(step), loss);
    EXPECT(smooth_losses(noisy, 0)[1].second == 3 && smooth_losses({}, 3).empty(), "no window, no points");
}

TEST(curves_of_all_kinds) {
    LossPoints fall, val;
    for (int i = 0; i < 800; i++) fall.push_back({i, 1.5 + 4 * std::exp(-i / 100.0)});
    for (int i = 100; i <= 800; i += 100) val.push_back({i, 1.6 + 4 * std::exp(-i / 100.0)});
    const std::string text = draw_curve(fall, val, 60, 10);
    std::vector<std::string> rows;
    for (size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) rows.push_back(text.substr(at, end - at));
    EXPECT(rows.size() == 13, "%zu rows\n%s", rows.size(), text.c_str());          // legend, 10, axis, steps
    EXPECT(rows[1].find("5.") == 0 && rows[10].find("1.5") == 0 && rows[12].find("step 800") != std::string::npos, "\n%s", text.c_str());
    size_t val_points = 0;
    for (size_t i = 1; i <= 10; i++) val_points += count_of(rows[i], "o");
    EXPECT(val_points == val.size(), "%zu val points\n%s", val_points, text.c_str());
    for (const std::string& row : rows) EXPECT(columns(row) <= 66, "%zu columns: %s", columns(row), row.c_str());
    // A falling curve: the first dot column is at the top, the last at the bottom.
    EXPECT(rows[1].find("\u2502 ") == std::string::npos && columns(rows[10]) > columns(rows[1]), "\n%s", text.c_str());

    const double big = 1.7e308;
    const std::vector<LossPoints> odd = {{}, {{5, 2.0}}, {{0, NAN}, {1, INFINITY}}, {{0, 3}, {1, 3}, {2, 3}}, {{0, 1}, {1, NAN}, {2, -INFINITY}, {3, 2}},
                                         {{0, -big}, {1, big}}, {{0, 1e-300}, {1, 2e-300}}, {{0, 0}, {INT64_MAX, 1}}, {{7, 1e9}, {8, -1e9}}, fall};
    for (size_t i = 0; i < odd.size(); i++)
        for (size_t j = 0; j < odd.size(); j++)
            for (const int width : {-1, 0, 1, 2, 7, 8, 80, 100000})
                for (const int height : {0, 1, 2, 10}) {
                    const std::string any = draw_curve(odd[i], odd[j], width, height);
                    EXPECT(!any.empty() && any.back() == '\n' && any.find("nan") == std::string::npos && any.find("inf") == std::string::npos,
                           "curves %zu and %zu, %d x %d:\n%s", i, j, width, height, any.c_str());
                }
    EXPECT(draw_curve({}, {}, 60, 10) == "no losses to draw\n" && draw_curve(odd[2], {}, 60, 10) == "no losses to draw\n", "nothing to draw");
    EXPECT(count_of(draw_curve({{5, 2.0}}, {}, 60, 10), "\xe2\xa0") + count_of(draw_curve({{5, 2.0}}, {}, 60, 10), "\xe2\xa1") +
           count_of(draw_curve({{5, 2.0}}, {}, 60, 10), "\xe2\xa2") == 3, "one point is one dot, and two in the legend");
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
