// test_log.cpp -- console and metrics.jsonl: exact fields, resumes and torn lines, full disks and closed pipes.
#include <fcntl.h>
#include <unistd.h>
#include <cmath>
#include <csignal>
#include <list>
#include "models/shape.h"
#include "src/base/file.h"
#include "src/base/numbers.h"
#include "src/run/run.h"
#include "tests/test.h"
#include "tests/unit/limit.h"
#include "tools/curves.h"

namespace {

// Points stdout (or stderr) at another descriptor while it lives.
struct Redirected {
    int which, saved;
    Redirected(int from, int to) : which(from), saved(dup(from)) {
        std::fflush(stdout);
        dup2(to, which);
    }
    ~Redirected() {
        std::fflush(stdout);
        dup2(saved, which);
        close(saved);
    }
};
std::string captured(int which, const std::function<void()>& f) {
    const Folder folder;
    const std::string path = folder.add("text", "");
    const int file = open(path.c_str(), O_WRONLY | O_APPEND);
    {
        const Redirected now(which, file);
        f();
    }
    close(file);
    return read_file(path);
}
std::string console(const std::function<void()>& f) { return captured(1, f); }

StepStats step_of(int64_t step, double loss, int ranks = 1) {
    StepStats s = {.step = step, .lr = 9.9e-4, .norm = 0.71, .loss = loss, .seconds = 0.0081};
    s.times = {0.0075, 0.0008, 0.0001};
    for (int r = 0; r < ranks; r++) s.ranks.push_back({0, {r == 2 ? 0.00775 : 0.00725, 0, 0}, false});
    return s;
}
// A run of rank 0 that reports into `folder`; "": to the console only.
struct TestRun {
    Options o;
    Comm comm;
    ModelInfo info = *find_model("gpt2");
    Folder place;
    Data data = {.val = {.paths = {"a.txt", "b"}}};     // that the scores behind the first one are of
    Run run = {place.path, ""};
    Reporter r = {&o, &comm, &run, &data, &info, "cpu", "none", NAN};
    TestRun(const std::string& folder, int64_t steps, int64_t log_every, bool resumed = false) {
        o.steps = steps;
        o.log_every = log_every;
        o.total_batch_size = 4096;
        o.out_dir = folder;
        info.flops_per_token = [](const Shape&, int) { return 16250.0; };
        run.lock = std::make_shared<FolderLock>();
        lock_folder(run.lock.get(), place.path, "the run folder", "");
        r.log = std::make_unique<Log>(folder, resumed);
        r.began = now_seconds();
    }
    // Reports steps with the losses plus, plus + 1, ..., and no warning of that.
    void steps(int begin, int end, int plus = 0) {
        for (int i = begin; i < end; i++) r.loss_limit = INFINITY, report_step(&r, step_of(i, plus + i));
    }
};
std::vector<Json> events(const std::string& folder) {
    static std::list<std::string> files;  // what they lie in
    std::vector<Json> out;
    const std::string& text = files.emplace_back(read_file(folder + "/metrics.jsonl"));
    EXPECT(text.empty() || text.back() == '\n', "%s does not end in a line end", folder.c_str());
    for (std::string_view rest = text; !rest.empty();) out.push_back(parse_json(next_word(&rest, '\n'), "metrics"));
    return out;
}
std::string keys(const Json& object) {
    std::string out;
    for (JsonItems i(object); i.next();) out += (out.empty() ? "" : " ") + i.key.text();
    return out;
}
// What the tools read in metrics.jsonl: a curve over the steps that count.
Points losses(const std::string& path, const char* curve) {
    RunLog log(path);
    log.read();
    return log.curve(curve);
}
}  // namespace

TEST(events_have_the_promised_fields) {
    Folder tmp;
    const double loss = 2.0 / 3, norm = 0.1;
    console([&] {
        TestRun run(tmp.path, 3, 1);
        run.r.log->event(JsonLine().add("event", "run").add("seed", 7));
        StepStats one = step_of(0, loss);
        one.norm = norm;
        report_step(&run.r, one);
        EXPECT_EQ(events(tmp.path).size(), 2);  // each line is in the file at once
        run.r.peak_flops = 4096 / 0.0081 * 16250 / 0.461;
        StepStats four = step_of(1, NAN, 4);
        for (unsigned rank = 0; RankReport& r : four.ranks) r.times.sensors = {90500 + rank, 1500, 50 + rank}, rank++;
        report_step(&run.r, four);
        EXPECT_EQ(events(tmp.path).size(), 3);
        report_score(&run.r, 1, {loss}, NAN, true, 1);
        report_score(&run.r, 2, {INFINITY, 2, 0.5}, 2.5, false, 1);
        run.o.prompt = "It \"was\"";
        report_sample(&run.r, 2, [](const Print& print) { return print("x"), "x\n\xff"; });
        report_saved(&run.r, 2, "ckpt/step_00000002", 0.25, 1.5);
        run.r.log->sync();
    });
    const std::vector<Json> e = events(tmp.path);
    EXPECT_EQ(e.size(), 7);
    const std::string train = "event step loss lr grad_norm step_ms tok_s tokens mfu compute_ms comm_ms exposed_ms";
    EXPECT_EQ(keys(e[1]), train + " time");
    EXPECT_EQ(keys(e[2]), train + " compute_ms_min compute_ms_max slowest_rank gpu_watts gpu_mhz gpu_c time");
    EXPECT(e[2].get_double("gpu_watts", "") == 90.502 && e[2].get_u64("gpu_mhz", "") == 1500 &&
           e[2].get_u64("gpu_c", "") == 52, "of the slowest rank");
    EXPECT(e[1].get_double("loss", "") == loss && e[1].get_double("grad_norm", "") == norm, "not the same bits");
    EXPECT(e[1].find("mfu").kind() == Json::null && float(e[2].get_double("mfu", "")) == 0.461f &&
               e[2].find("loss").kind() == Json::null);
    EXPECT(e[1].get_u64("tokens", "") == 4096 && float(e[1].get_double("step_ms", "")) == 8.1f &&
               e[2].get_u64("slowest_rank", "") == 2 &&
               float(e[2].get_double("compute_ms_max", "")) == 7.75f);
    EXPECT(keys(e[3]) == "event step loss bpb time" && e[3].find("bpb").kind() == Json::null &&
               e[4].find("loss").kind() == Json::null);
    EXPECT(keys(e[4]) == "event step loss bpb val_loss/a.txt val_loss/b time" &&
               e[4].get_double("val_loss/b", "") == 0.5, "a mixture");
    EXPECT(keys(e[5]) == "event step prompt text time" && e[5].get_string("prompt", "") == "It \"was\"" &&
               e[5].get_string("text", "") == "x\n\uFFFD", "sample");
    EXPECT(keys(e[6]) == "event step path stall_ms write_ms time" && e[6].get_double("stall_ms", "") == 250, "ckpt");
}

// How often a rise of the loss is told in 400 steps. noise(i) has a deviation of 1.
TEST(a_loss_that_rises) {
    const auto noise = [](int i) { return std::sqrt(2.0) * std::sin(1.7 * i * i); };
    const auto falls = [&](int i) { return 3 + 4 * std::exp(-i / 60.0) + 0.05 * noise(i); };
    const struct { const char* name; int most; std::function<double(int)> loss; } rows[] = {
        {"it falls", 0, falls},
        {"it stays", 0, [&](int i) { return 3 + 0.2 * noise(i); }},
        {"it is noise", 0, [&](int i) { return 2 + 0.9 * noise(i); }},
        {"nearly nothing", 0, [&](int i) { return 1e-3 * (2 + noise(i)); }},
        {"three steps off", 0, [&](int i) { return falls(i) + (i > 300 && i < 304); }},
        {"NaN now and then", 0, [&](int i) { return i % 50 == 3 ? NAN : falls(i); }},
        {"a jump", 1, [&](int i) { return falls(i) + (i > 300 ? 4 : 0); }},
        {"right after the start", 1, [&](int i) { return i < 2 ? 0.6 : 9 + noise(i); }},
        {"half as much again", 1, [&](int i) { return falls(i) * (i > 300 ? 1.5 : 1); }},
        {"a slow rise", 4, [&](int i) { return falls(i) + std::max(0, i - 200) * 0.02; }},
        {"a very slow one", 2, [&](int i) { return falls(i) + std::max(0, i - 200) * 0.005; }},
        {"a step far off", 1, [&](int i) { return falls(i) + (i == 300 ? 40 : 0); }},
        {"infinity in between", 1, [&](int i) { return i == 300 ? INFINITY : falls(i) + (i > 300 ? 4 : 0); }},
        {"after NaN", 1, [&](int i) { return i == 0 ? NAN : falls(i) + (i > 300 ? 4 : 0); }}};
    for (const auto& [name, most, loss] : rows) {
        Folder tmp;
        console([&] {
            TestRun run(tmp.path, 400, 1);
            for (int i = 0; i < 400; i++) report_step(&run.r, step_of(i, loss(i)));
        });
        int told = 0;
        for (const Json& e : events(tmp.path))
            told += e.get_string("event", "") == "warn" && has(e.get_string("msg", ""), "the loss rises: got ");
        EXPECT(told <= most && (told > 0) == (most > 0), "%s: told %d times, want at most %d", name, told, most);
    }
}

// The line of the last step: the ETA is 0.
TEST(line_text) {
    const auto line = [](const StepStats& s, double peak) {
        return console([&] {
            TestRun run("", s.step + 1, 1);
            run.r.peak_flops = peak;
            report_step(&run.r, s);
        });
    };
    EXPECT_EQ(line(step_of(799, 2.4312), NAN), "step   799/800 | loss 2.4312 | lr 9.9e-04 | norm 0.71 | 8.1 ms | "
              "505679 tok/s | 8.2 GFLOP/s | eta 0:00\n");
    const std::string of_two = line(step_of(799, 2.4312, 2), 4096 / 0.0081 * 16250 / 0.461);
    EXPECT(has(of_two, "| 505679 tok/s | mfu 46.1% | comm 0.8 ms exposed 0.1 | eta 0:00"), "%s", of_two.c_str());
}

// Samples, steps, tokens a step, context; how the data line ends, and the warning of more than 40 passes.
TEST(epochs) {
    const struct { uint64_t samples; int64_t steps, total; int T; const char *line, *warning; } cases[] = {
        {45, 480, 4096, 64, " | 683 epochs", "data: 683 epochs; give more text, --steps 3 for 3 or more, or a smaller "
         "--total-batch-size"},
        {30000, 480, 4096, 256, " | 0.26 epochs", ""}, {100, 10, 1000, 10, " | 10 epochs", ""},
        {100, 3, 1000, 10, " | 3.00 epochs", ""}, {1000000, 3, 1000, 10, " | 0.00 epochs", ""},
        {100, 40, 1000, 10, " | 40 epochs", ""}, {100, 41, 1000, 10, " | 41 epochs", "--steps 3 for 3 or more"},
        {1, 1, 64, 1, " | 64 epochs", "--steps 1 for 3 or more"}, {1, 99, 1, 1, " | 99 epochs", "--steps 3 for"},
        {1, 1 << 30, 1 << 30, 1, " | 1152921504606846976 epochs", "--steps 1 for"}, {0, 480, 4096, 64, "0.0000", ""}};
    for (const auto& c : cases) {
        Options o;
        o.model = "gpt2";
        o.batch_size = 1, o.steps = c.steps, o.total_batch_size = c.total;
        o.shape.T = c.T, o.shape.C = o.shape.NH = o.shape.V = 1;
        Data data;
        if (c.samples) data.train = {.paths = {""}, .weights = {1}, .begins = {0, c.samples}};
        const std::string text = describe_run(o, data, 1), said = many_epochs(o, data);
        EXPECT(has(text, c.line + std::string("\nbatch ")), "got %s, want %s", text.c_str(), c.line);
        EXPECT(said.empty() == !*c.warning && has(said, c.warning), "got %s, want %s", said.c_str(),
               c.warning);
    }
    Options o;
    o.model = "gpt2";
    o.batch_size = 1, o.steps = 100, o.total_batch_size = 100;
    o.shape.T = 10, o.shape.C = o.shape.NH = o.shape.V = 1;
    const Data data = {.train = {.paths = {"a.txt", "b"}, .weights = {0.75, 0.25}, .begins = {0, 1000, 1005}}};
    const std::string text = describe_run(o, data, 1), said = many_epochs(o, data);
    EXPECT(has(text, " | 0.75 epochs of a.txt | 50 epochs of b\nbatch"), "%s", text.c_str());
    EXPECT(has(said, "data: 50 epochs; give more text, --steps 6 "), "%s", said.c_str());
}

// The ETA is that of the mean step so far, with the evaluations between the steps, but without the first step and an
// evaluation before it.
TEST(eta) {
    const auto text_of = [](int64_t steps, const std::vector<double>& seconds, double scored) {
        return console([&] {
            TestRun run("", steps, 1);
            if (scored < 0) report_score(&run.r, 0, {1}, NAN, false, -scored);        // before the first step
            for (size_t i = 0; i < seconds.size(); i++) {
                StepStats s = step_of(int64_t(i), 1);
                s.seconds = seconds[i];
                run.r.printed = 0;
                if (scored > 0 && i + 1 == seconds.size()) report_score(&run.r, int64_t(i), {1}, NAN, false, scored);
                report_step(&run.r, s);
            }
        });
    };
    const struct { int64_t steps; std::vector<double> seconds; double scored; const char* text; } cases[] = {
        {11, {1}, 0, "eta 0:10\n"}, {11, {59.96}, 0, "eta 10:00\n"}, {11, {9006.1}, 0, "eta 25:01:01\n"},
        {12, {99, 1}, 0, "eta 0:10\n"},                                // the first step is slow
        {104, {1, 1, 1, 25}, 0, "eta 15:00\n"}, {11, {1}, -500, "eta 0:10\n"},
        {13, {1, 1, 1}, 28, "eta 2:30\n"}, {3, {1, 1, 1}, 28, "eta 0:00\n"}};
    for (const auto& c : cases) {
        const std::string text = text_of(c.steps, c.seconds, c.scored);
        EXPECT(text.ends_with(c.text), "want %s: %s", c.text, text.c_str());
    }
}

TEST(plain_output) {
    Folder tmp;
    const std::string text = console([&] {
        TestRun run(tmp.path, 100, 1);
        run.r.log->text("model   %d layers\x1b[2J", 4);
        run.steps(0, 100);
        report_score(&run.r, 100, {2.0121}, 2.903, true, 1);
        report_score(&run.r, 200, {2.5}, NAN, false, 1);
    });
    for (const char c : text) EXPECT(c == '\n' || (unsigned char)c >= 0x20, "control byte 0x%02x in plain output", c);
    EXPECT(text.find("model   4 layers\\x1b[2J\n") == 0, "%s", text.c_str());
    // 100 steps in no time: the first and the last.
    EXPECT_EQ(count_of(text, "/100 | loss"), 2);
    for (const char* part : {"step     0/100 |", "step    99/100 |", "val  step 200 | loss 2.5000\n",
                             "val  step 100 | loss 2.0121 | 2.9030 bpb | best\n"})
        EXPECT(has(text, part), "no %s: %s", part, text.c_str());
    const std::string quiet = console([&] { TestRun("", 20, 0).steps(5, 20); });
    EXPECT(count_of(quiet, "\n") == 2 && has(quiet, "    5/20") && has(quiet, "   19/20"), "%s", quiet.c_str());
}

TEST(samples_are_safe_to_print) {
    const std::string text = console([&] {
        TestRun run("", 1, 0);
        run.o.prompt = "Mr. ";
        report_sample(&run.r, 250, [](const Print& print) {
            for (const char* piece :
                 {"café \x1b[31m", "\a\t€", "\xc2\x9b", "x\x7f\n\xff\x9b[\xe2(", "\U0001F600next"})
                print(piece);
            return "";
        });
    });
    EXPECT_EQ(text,
              "sample  step 250\nMr. café \\x1b[31m\\x07\t€\\x9bx\\x7f\n\uFFFD\uFFFD[\uFFFD(\U0001F600next\n");
}

TEST(resume_appends_and_cuts_torn_lines) {
    for (const std::string& torn :
         {std::string(), std::string("{\"event\":\"train\",\"st"), std::string(9000, 'x'), std::string(20, '\0')}) {
        Folder tmp;
        const std::string path = tmp / "metrics.jsonl";
        console([&] {
            TestRun run(tmp.path, 20, 0);
            run.steps(0, 10);
            for (const int step : {3, 4, 5}) report_score(&run.r, step, {double(step)}, NAN, false, 1);
        });
        const std::string before = read_file(path);
        put(path, before + torn);
        console([&] {
            TestRun run(tmp.path, 20, 0, true);
            EXPECT(read_file(path) == before, "torn line of %zu bytes not cut", torn.size());
            run.r.log->event(JsonLine().add("event", "resume").add("step", 4));
            run.steps(4, 8, 100);
        });
        const Points train = losses(path, "loss"), val = losses(path, "val");
        EXPECT(train.size() == 8 && val.size() == 2, "%zu train, %zu val", train.size(), val.size());
        EXPECT(val.back().at[kSteps] == 4 && val.back().y == 4, "the score after 4 steps stays");
        for (int i = 0; i < 8; i++)
            EXPECT(train[i].at[kSteps] == i && train[i].y == (i < 4 ? i : 100 + i), "step %d", i);
    }
    // Only a torn line, and no file at all.
    Folder tmp, empty;
    tmp.add("metrics.jsonl", "{\"event\"");
    console([&] { Log log(tmp.path, true); });
    EXPECT(events(tmp.path).empty(), "not cut");
    console([&] { TestRun(empty.path, 9, 0, true).steps(3, 4); });
    EXPECT_EQ(events(empty.path).size(), 1);
    // A fresh run replaces what is there.
    console([&] { Log log(empty.path, false); });
    EXPECT(events(empty.path).empty(), "not fresh");
    expect_error(kExitWrite, "metrics.jsonl", [&] { Log log(empty / "absent", false); });
}

TEST(reader_skips_what_is_not_an_event) {
    Folder tmp;
    const std::string path = tmp.add("metrics.jsonl", R"(
[]
not json
{"event":"train"}
{"event":"train","step":-1,"loss":1}
{"event":3,"step":1}
{"step":1}
{"event":"train","step":0,"loss":3}
{"event":"train","step":1,"loss":null}
{"event":"train","step":2,"loss":2}
{"event":"val","step":2,"loss":2.5}
{"event":"train","step":2,"loss":1.5}
{"event":"train","step":18446744073709551615,"loss":1}
{"event":"resume","step":9223372036854775807}
{"event":"train","step":3,"loss":9})");
    const Points train = losses(path, "loss"), val = losses(path, "val");
    EXPECT(train.size() == 3 && val.size() == 1, "%zu train, %zu val", train.size(), val.size());
    EXPECT(train[0].y == 3 && std::isnan(train[1].y) && train[2].y == 1.5, "the later line of a step counts");
    expect_error(kExitNoInput, "absent", [&] { losses(tmp.path + "/absent", "loss"); });
}

// /dev/full refuses every write with ENOSPC.
TEST(full_disk_warns_once_and_the_run_goes_on) {
    Folder tmp;
    EXPECT_EQ(symlink("/dev/full", (tmp / "metrics.jsonl").c_str()), 0);
    const std::string errors = captured(2, [&] {
        console([&] {
            TestRun run(tmp.path, 100, 0);
            run.steps(0, 100);
            run.r.log->sync();
        });
    });
    EXPECT(count_of(errors, "\n") == 1 && has(errors, "metrics.jsonl: No space left on device"), "%s", errors.c_str());
}

// A disk that is full for a while loses nothing, not even half a line.
TEST(lines_wait_for_a_disk) {
    Folder tmp;
    const std::string errors = captured(2, [&] {
        const int null = open("/dev/null", O_WRONLY);
        const Redirected now(1, null);
        TestRun run(tmp.path, 30, 0);
        run.steps(0, 1);
        {
            const Limit<RLIMIT_FSIZE> full(1000);
            run.steps(1, 20);
        }
        run.steps(20, 30);
        close(null);
    });
    const std::vector<Json> e = events(tmp.path);
    EXPECT(e.size() == 30 && count_of(errors, "warning") == 1, "%zu lines; %s", e.size(), errors.c_str());
    for (size_t i = 0; i < e.size(); i++) EXPECT_EQ(e[i].get_u64("step", ""), i);
}

// A pipe of the shell, which blocks.
TEST(console_that_nobody_reads_holds_nothing_up) {
    Folder tmp;
    int fds[2];
    EXPECT_EQ(pipe(fds), 0);
    const int size = fcntl(fds[1], F_SETPIPE_SZ, 4096);
    EXPECT_EQ(write(fds[1], std::string(size_t(size), '.').data(), size_t(size)), size);
    char text[4096];
    ssize_t n = 0;
    {
        const Redirected now(1, fds[1]);
        Log log(tmp.path, false);
        for (int i = 0; i < 1000; i++) log.text("lost %d", i), log.event(JsonLine().add("event", "lost"));
        for (int left = size; left > 0; left -= int(n)) n = read(fds[0], text, sizeof text);
        log.text("read again");
    }
    n = read(fds[0], text, sizeof text);
    EXPECT_EQ(std::string(text, size_t(n)), "read again\n");
    for (const int fd : fds) close(fd);
    EXPECT_EQ(events(tmp.path).size(), 1000);
}

TEST(closed_stdout_warns_once) {
    signal(SIGPIPE, SIG_IGN);
    Folder tmp;
    int fds[2];
    EXPECT_EQ(pipe(fds), 0);
    close(fds[0]);
    const std::string errors = captured(2, [&] {
        const Redirected now(1, fds[1]);
        TestRun run(tmp.path, 3, 1);
        for (int i = 0; i < 3; i++) run.r.log->text("line %d", i), run.steps(i, i + 1);
    });
    close(fds[1]);
    EXPECT(count_of(errors, "\n") == 1 && has(errors, "stdout: Broken pipe"), "%s", errors.c_str());
    EXPECT_EQ(events(tmp.path).size(), 3);
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
