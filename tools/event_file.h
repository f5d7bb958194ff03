// event_file.h -- event files for TensorBoard, made of the lines of metrics.jsonl. Field numbers are those of
// TensorFlow's event.proto, summary.proto and others.
//
// Each start writes a new file from metrics.jsonl, empties the last old one and removes the others. So no step appears
// twice after a resume, not even in tbparse, which reads all files. The new file begins with a START event at step 0,
// at which TensorBoard drops what it has read before.
#pragma once
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <string>
#include <unistd.h>
#include <vector>
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/run/run.h"

namespace event_file {

inline std::string varint(uint64_t x) {
    return x < 128 ? std::string(1, char(x)) : char(x | 128) + varint(x >> 7);
}

// A protobuf field that holds a text or a message.
inline std::string field(int number, const std::string& content) {
    return char(number << 3 | 2) + varint(content.size()) + content;
}

inline std::string with_checksum(const std::string& data) {
    const uint32_t crc = crc32c(0, data.data(), data.size());
    return data + bytes_of((crc >> 15 | crc << 17) + 0xa282ead8u);
}

inline std::string record(double time, uint64_t step, const std::string& what) {
    const std::string event = '\x09' + bytes_of(time) + (step ? '\x10' + varint(step) : "") + what;
    return with_checksum(bytes_of(uint64_t(event.size()))) + with_checksum(event);
}

// A text summary. It is shown as Markdown, where four spaces before a line keep it as it is.
inline std::string text(const std::string& tag, const std::string& content) {
    std::string block = "    ";
    for (const char c : content) block += c == '\n' ? "\n    " : std::string(1, c);
    const std::string tensor = std::string{8, 7, 18, 4, 18, 2, 8, 1} + field(8, block);     // a string, shape [1]
    return field(1, field(1, tag) + field(9, field(1, field(1, "text"))) + field(8, tensor));
}

}  // namespace event_file

// The record of a line of metrics.jsonl: its numbers, or its text; "" if it has nothing to show.
// Throws kExitBadContent.
inline std::string event_record(const std::string& line) {
    using namespace event_file;
    const Json event = parse_json(line, "event");
    const auto get = [&](const char* key) { return event.get_string(key, "event"); };
    std::string group = get("event"), shown;
    if (group == "sample") shown = text(group, get("prompt") + get("text"));
    if (group == "warn") shown = text(group, get("msg"));
    for (JsonItems i(event); (group == "train" || group == "val" || group.starts_with("task")) && i.next();) {
        const std::string key = i.key.text();
        const bool speed = group == "train" && std::string_view("loss lr grad_norm tokens").find(key) == key.npos;
        double x;
        if (key == "name") group += "/" + i.value.text();
        if (key == "step" || key == "time" || !i.value.as_double(&x)) continue;
        const bool measured = key.find('/') != key.npos;            // MEASUREMENT/PART
        const std::string tag = measured ? key : (speed ? "speed" : group) + "/" + key;
        shown += field(1, field(1, tag) + '\x15' + bytes_of(float(x)));
    }
    if (shown.empty()) return "";
    return record(event.get_double("time", "event"), event.get_u64("step", "event"), field(5, shown));
}

// The records of what metrics.jsonl says, without what resumes took back. Of two scores of a step the later one counts.
inline std::string event_records(std::string_view metrics) {
    std::map<std::pair<uint64_t, std::string>, std::string> records;        // by step and event
    while (!metrics.empty()) try {
        const std::string line(next_word(&metrics, '\n'));
        const Json json = parse_json(line, "event");
        const std::string event = json.get_string("event", "event");
        const uint64_t step = json.get_u64("step", "event");
        if (event == "resume") {            // the run has gone back to the state after `step` steps
            std::erase_if(records, [&](const auto& r) {
                const auto& [at, what] = r.first;
                return at > step || (at == step && (what == "train" || what == "warn"));
            });
        }
        std::string& one = records[{step, event}];
        one = (event == "warn" ? one : "") + event_record(line);        // a step may have several warnings
    } catch (const Error&) {}                                   // a torn or foreign line is left out

    const double now = unix_seconds();
    std::string content = event_file::record(now, 0, event_file::field(3, "brain.Event:2")) +
                          event_file::record(now, 0, event_file::field(7, "\x08\x01"));
    for (const auto& [at, one] : records) content += one;
    return content;
}

// Returns the paths of this program's event files in a folder, sorted.
inline std::vector<std::string> event_files(const std::string& folder) {
    std::vector<std::string> paths;
    for (const std::string& name : list_directory(folder))
        if (name.starts_with("events.out.tfevents.") && name.find(".lockstep") != name.npos)
            paths.push_back(path_join(folder, name));
    return paths;
}

// Writes a file of them into the folder; returns its path. Throws kExitWrite.
inline std::string write_event_file(const std::string& folder, const std::string& content) {
    const std::vector<std::string> old = event_files(folder);       // a reader takes files in the order of their names
    std::string path = path_join(folder, format("events.out.tfevents.%010.0f.lockstep", unix_seconds()));
    if (!old.empty() && path <= old.back()) path = old.back() + ".0";
    write_file_atomic(path, content);
    for (const std::string& name : old)                     // a TensorBoard that reads the last one must find it
        if (name != old.back() || truncate(name.c_str(), 0) != 0) remove_tree(name);
    return path;
}

inline bool is_open_as(int fd, const std::string& path) {
    struct stat mine, named;
    return fstat(fd, &mine) == 0 && stat(path.c_str(), &named) == 0 && mine.st_ino == named.st_ino &&
           mine.st_dev == named.st_dev;
}

// The event file of a run that goes on. What a full disk does not take waits in metrics.jsonl.
struct EventFile {
    // Writes it from what metrics.jsonl has. Throws kExitNoInput, kExitWrite.
    explicit EventFile(const std::string& folder) : folder(folder) { begin(); }

    // Adds what metrics.jsonl has got since. Returns errno of a failed write. Begins anew after a resume, which takes
    // steps back, and where the event file is gone, unless the run has ended: the next one may have removed it.
    int follow(bool ended = false) {
        if (!ended && !is_open_as(events.fd, path)) begin();
        const bool replaced = !is_open_as(metrics.fd, metrics_path()) && file_exists(metrics_path());
        if (struct stat s; fstat(metrics.fd, &s) == 0 && s.st_size < at) at = 0;
        char block[1 << 16];
        int error = write();
        for (ssize_t n; !error && (n = pread(metrics.fd, block, sizeof block, at)) > 0; error = write()) {
            at += n;
            read(std::string_view(block, size_t(n)));
        }
        if (resumed) begin();
        if (error || !replaced) return error;
        open_metrics();
        return metrics.fd < 0 ? 0 : follow(ended);
    }

  private:
    const std::string folder;
    std::string path, line, pending;        // line: what has been read of one; pending: records that are not written
    Descriptor metrics, events;
    off_t at = 0;                           // what of metrics.jsonl has been read
    bool resumed = false;                   // what has been read since begin() has a "resume" event

    std::string metrics_path() const { return path_join(folder, "metrics.jsonl"); }
    void open_metrics() {
        metrics = Descriptor(open(metrics_path().c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
        line.clear();
        at = 0;
    }
    void begin() {
        const std::string text = read_file(metrics_path());
        resumed = false;
        open_metrics();
        at = off_t(text.rfind('\n') + 1);                   // npos + 1 is 0; what follows is being written
        pending.clear();
        path = write_event_file(folder, event_records(std::string_view(text).substr(0, size_t(at))));
        events = Descriptor(open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
    }
    void read(std::string_view text) {
        while (!text.empty()) {
            const bool whole = text.find('\n') != text.npos;
            line += next_word(&text, '\n');
            if (!whole) return;
            resumed = resumed || line.starts_with("{\"event\":\"resume\"");
            try {
                pending += event_record(line);
            } catch (const Error&) {}                       // a torn or foreign line says nothing
            line.clear();
        }
    }
    int write() {
        while (!pending.empty()) {
            const ssize_t n = ::write(events.fd, pending.data(), pending.size());
            if (n < 0 && errno != EINTR) return errno;
            pending.erase(0, size_t(std::max<ssize_t>(n, 0)));
        }
        return 0;
    }
};
