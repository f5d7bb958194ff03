// tensorboard.cpp -- see tensorboard.h. The numbers of fields are those of tensorflow/core/util/event.proto,
// framework/summary.proto and framework/tensor.proto.
#include "src/app/tensorboard.h"
#include <algorithm>
#include <unistd.h>
#include "src/app/log.h"
#include "src/base/common.h"
#include "src/base/file.h"

namespace {

template <class T> std::string bytes_of(T x) { return {reinterpret_cast<const char*>(&x), sizeof x}; }

std::string varint(uint64_t x) {
    std::string out;
    for (; x >= 128; x >>= 7) out += char(x | 128);
    return out + char(x);
}

// A field whose content is a text or a message.
std::string field(int number, const std::string& content) {
    return char(number << 3 | 2) + varint(content.size()) + content;
}

std::string checksum(const std::string& data) {
    const uint32_t crc = crc32c(0, data.data(), data.size());
    return bytes_of((crc >> 15 | crc << 17) + 0xa282ead8u);
}

std::string record(double time, uint64_t step, const std::string& what) {
    const std::string event = '\x09' + bytes_of(time) + (step ? '\x10' + varint(step) : "") + what;
    const std::string length = bytes_of(uint64_t(event.size()));
    return length + checksum(length) + event + checksum(event);
}

std::string scalar(const std::string& tag, double x) {
    return field(1, field(1, tag) + '\x15' + bytes_of(float(x)));
}

// A text is read as Markdown: four blanks in front of a line keep it as it is.
std::string text(const std::string& tag, const std::string& content) {
    std::string block = "    ";
    for (const char c : content) block += c == '\n' ? "\n    " : std::string(1, c);
    const std::string one_string = {8, 7, 18, 4, 18, 2, 8, 1};          // dtype DT_STRING, shape [1]
    return field(1, field(1, tag) + field(9, field(1, field(1, "text"))) + field(8, one_string + field(8, block)));
}

std::string values(const Json& line, const std::string& event) {
    const auto string_of = [&](const char* key) { return line.get_string(key, "event"); };
    if (event == "sample") return text("sample", string_of("prompt") + string_of("text"));
    if (event == "warn") return text("warning", string_of("msg"));
    if (event == "task") {
        const double items = line.get_double("items", "event");
        return scalar("task/" + string_of("name") + "_acc", line.get_double("right", "event") / items) +
            scalar("task/" + string_of("name") + "_acc_norm", line.get_double("right_norm", "event") / items);
    }
    std::string out;
    for (JsonItems i(line); (event == "train" || event == "val") && i.next();) {
        const std::string key = i.key.text();
        const bool slow = event == "train" && key != "loss" && key != "lr" && key != "grad_norm" && key != "tokens";
        double x;
        if (key == "step" || key == "time" || !i.value.as_double(&x)) continue;
        out += scalar((slow ? "speed/" : event + "/") + key, x);
    }
    return out;
}

}  // namespace

std::string event_record(const std::string& line) {
    const Json event = parse_json(line, "event");
    const std::string shown = values(event, event.get_string("event", "event"));
    if (shown.empty()) return "";
    return record(event.get_double("time", "event"), event.get_u64("step", "event"), field(5, shown));
}

std::vector<std::string> event_files(const std::string& folder) {
    std::vector<std::string> paths;
    for (const std::string& name : list_directory(folder))
        if (name.starts_with("events.out.tfevents.")) paths.push_back(path_join(folder, name));
    return paths;
}

std::string write_event_file(const std::string& folder) {
    const MappedFile metrics = map_file(path_join(folder, "metrics.jsonl"));
    std::string_view rest = metrics.text();
    std::vector<std::pair<uint64_t, std::string>> records;      // a resume at this step or before drops the record
    while (!rest.empty()) try {
        const std::string line(next_word(&rest, '\n'));
        const Json json = parse_json(line, "event");
        const std::string event = json.get_string("event", "event");
        const uint64_t step = json.get_u64("step", "event");
        if (event == "resume") std::erase_if(records, [&](const auto& r) { return r.first >= step; });
        // A resume evaluates where the run was stopped, but writes no sample there.
        records.push_back({event == "sample" && step > 0 ? step - 1 : step, event_record(line)});
    } catch (const Error&) {}                                   // a torn or foreign line shows nothing

    const double now = unix_seconds();
    std::string content = record(now, 0, field(3, "brain.Event:2")) + record(now, 0, field(7, "\x08\x01"));
    for (const auto& [step, one] : records) content += one;

    char host[65] = "";
    gethostname(host, sizeof host - 1);
    const std::vector<std::string> old = event_files(folder);
    std::string path = path_join(folder, format("events.out.tfevents.%010.0f.%s.%d.0", now, host, getpid()));
    // TensorBoard reads the files of a folder in the order of their names.
    if (!old.empty() && path <= old.back()) path = old.back() + ".0";
    write_file_atomic(path, content);
    for (const std::string& name : old) unlink(name.c_str());
    return path;
}
