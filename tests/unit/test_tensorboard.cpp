// test_tensorboard.cpp -- event files: bytes as TensorFlow writes them, each step once after resumes, full disks.
#include <unistd.h>
#include <cstring>
#include "src/base/file.h"
#include "tests/test.h"
#include "tests/unit/limit.h"
#include "tools/curves.h"
#include "tools/event_file.h"

namespace {

template <class T> T number(std::string_view bytes) {
    T x;
    EXPECT(bytes.size() >= sizeof x, "%zu bytes", bytes.size());
    std::memcpy(&x, bytes.data(), sizeof x);
    return x;
}

// The messages of a file; each checksum must be right, the last record whole.
std::vector<std::string> messages(std::string_view file) {
    std::vector<std::string> out;
    const auto check = [](std::string_view data, std::string_view at) {
        const uint32_t crc = crc32c(0, data.data(), data.size());
        EXPECT_EQ(number<uint32_t>(at), (crc >> 15 | crc << 17) + 0xa282ead8u);
    };
    while (!file.empty()) {
        const uint64_t length = number<uint64_t>(file);
        EXPECT(file.size() >= length + 16, "a record is cut");
        check(file.substr(0, 8), file.substr(8));
        out.emplace_back(file.substr(12, length));
        check(out.back(), file.substr(12 + length));
        file.remove_prefix(length + 16);
    }
    return out;
}

// The steps that have a value of this tag, in the file's order: "0 1 2 ".
std::string steps(const std::string& folder, const std::string& tag) {
    const std::vector<std::string> files = event_files(folder);
    for (size_t k = 0; k + 1 < files.size(); k++)
        EXPECT(k == 0 && read_file(files[k]).empty(), "one empty file may stand before the last: %s", files[k].c_str());
    std::string out;
    for (const std::string& m : messages(read_file(files.back())))
        if (has(m, tag)) out += (m[9] == 0x10 ? std::to_string(int(m[10])) : "0") + " ";
    return out;
}

JsonLine train(int step) { return JsonLine().add("event", "train").add("step", step).add("loss", 1.5); }
JsonLine resume(int step) { return JsonLine().add("event", "resume").add("step", step); }

}  // namespace

TEST(records_have_the_known_bytes) {
    // tensorflow/core/util/event.proto and torch.utils.tensorboard give these.
    const std::string scalar("\x09\0\0\0\0\0\0\0\x40\x10\x07\x2a\x13\x0a\x11\x0a\x0atrain/loss\x15\0\0\xc0\x3f", 32);
    EXPECT_EQ(messages(event_record("{\"event\":\"train\",\"step\":7,\"loss\":1.5,\"time\":2}")), std::vector{scalar});
    const std::string text("\x09\0\0\0\0\0\0\0\x40\x2a\x27\x0a\x25\x0a\x06sample\x4a\x08\x0a\x06\x0a\x04text\x42\x11"
                           "\x08\x07\x12\x04\x12\x02\x08\x01\x42\x07    a\"b", 50);
    EXPECT(messages(event_record("{\"event\":\"sample\",\"step\":0,\"prompt\":\"a\",\"text\":\"\\\"b\",\"time\":2}")) ==
               std::vector{text}, "a text");
    EXPECT_EQ(event_record("{\"event\":\"done\",\"step\":7,\"time\":2}"), "");
    Folder tmp;
    tmp.add("metrics.jsonl", "");
    const std::string file = read_file(write_event_file(tmp.path, event_records("")));
    EXPECT(file.starts_with(std::string("\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22\x09", 13)), "the first record");
    const std::vector<std::string> begin = messages(file);
    EXPECT(begin.size() == 2 && begin[0].ends_with("\x1a\x0d" "brain.Event:2") && begin[1].size() == 13 &&
               begin[1].ends_with("\x3a\x02\x08\x01"), "version, then START at step 0");
}

TEST(what_each_event_shows) {
    const auto shows = [](const std::string& members, const std::vector<std::string>& tags) {
        const std::string record = event_record("{\"time\":1,\"step\":3," + members + "}");
        for (const std::string& tag : tags) EXPECT(has(record, tag), "no %s", tag.c_str());
        for (const char* none : {"/step\x15", "/time\x15", "mfu"}) EXPECT(!has(record, none), "%s", none);
    };
    shows("\"event\":\"train\",\"lr\":1,\"grad_norm\":1,\"tok_s\":9,\"step_ms\":1,\"mfu\":null",
          {"train/lr", "train/grad_norm", "speed/tok_s", "speed/step_ms"});
    shows("\"event\":\"val\",\"loss\":1,\"bpb\":2", {"val/loss", "val/bpb"});
    shows("\"event\":\"train\",\"grad_norm/w\":1,\"grad_norm/mfu\":null", {"\x0a\x0bgrad_norm/w\x15"});
    shows("\"event\":\"task\",\"name\":\"arc\",\"items\":4,\"acc\":0.25,\"acc_norm\":0.5",
          {std::string("task/arc/acc\x15\0\0\x80\x3e", 17), std::string("task/arc/acc_norm\x15\0\0\0\x3f", 22)});
    shows("\"event\":\"warn\",\"msg\":\"look\\nhere\"", {"    look\n    here"});
}

TEST(no_step_twice_after_resumes) {
    Folder tmp;
    tmp.add("events.out.tfevents.5555555555.host", "of another program");
    tmp.add("events.out.tfevents.9999999999.lockstep", "of a clock that was wrong");
    {
        Log log(tmp.path, false);
        log.event(train(0));
        EventFile events(tmp.path);
        EXPECT(event_files(tmp.path)[1] > tmp.path + "/events.out.tfevents.9999999999.lockstep", "sorts behind it");
        for (int i = 1; i < 6; i++) {
            log.event(train(i));
            events.follow();
            EXPECT(steps(tmp.path, "train/loss").size() == size_t(2 * i + 2), "in the file at once");
        }
        log.event(JsonLine().add("event", "val").add("step", 4).add("loss", 2));
        for (const char* text : {"look", "and look"})
            log.event(JsonLine().add("event", "warn").add("step", 3).add("msg", text));
        for (const int at : {2, 4, 6})
            log.event(JsonLine().add("event", "sample").add("step", at).add("prompt", "").add("text", "x"));
        events.follow(true);
    }
    for (const int at : {4, 4, 3, 3}) {
        const std::string before = event_files(tmp.path)[1];
        Log log(tmp.path, true);
        log.event(resume(at));
        EventFile events(tmp.path);
        EXPECT(event_files(tmp.path)[1] > before, "names go on");
        EXPECT_EQ(steps(tmp.path, "sample"), (at == 4 ? "2 4 " : "2 "));
        EXPECT_EQ(steps(tmp.path, "val/loss"), (at == 4 ? "4 " : ""));
        EXPECT_EQ(steps(tmp.path, "look"), (at == 4 ? "3 3 " : ""));
        for (int i = at; i < 7; i++) log.event(train(i));
        events.follow(true);
        EXPECT_EQ(steps(tmp.path, "train/loss"), "0 1 2 3 4 5 6 ");
    }
    EXPECT_EQ(read_file(tmp.path + "/events.out.tfevents.5555555555.host"), "of another program");
}

// Runs f with files of at most this many bytes.
static void limited(rlim_t bytes, const std::function<void()>& f) {
    const Limit<RLIMIT_FSIZE> small(bytes);
    f();
}

TEST(a_full_disk_loses_no_record) {
    Folder tmp;
    Log log(tmp.path, false);
    log.event(train(0));
    EventFile events(tmp.path);
    for (int i = 1; i < 30; i++) log.event(train(i));
    limited(900, [&] { EXPECT(events.follow() == EFBIG, "a write that failed"); });
    EXPECT_EQ(read_file(event_files(tmp.path)[0]).size(), 900);  // as far as the disk took it
    log.event(train(30));
    EXPECT_EQ(events.follow(), 0);
    EXPECT(steps(tmp.path, "train/loss").ends_with(" 28 29 30 "), "%s", steps(tmp.path, "train/loss").c_str());
}

TEST(a_file_that_cannot_be_made_stops_nothing) {
    Folder tmp;
    Log log(tmp.path, false);
    for (int i = 0; i < 20; i++) log.event(train(i));
    limited(300, [&] { expect_error(kExitWrite, "", [&] { EventFile events(tmp.path); }); });
    EXPECT(event_files(tmp.path).empty(), "nor does a part of it stay");
    log.event(train(20));
    RunLog read(tmp.path);
    read.read();
    EXPECT(event_files(tmp.path).empty() && read.curve("loss").size() == 21, "it goes on");
}

int main(int argc, char** argv) { return run_tests(argc, argv); }
