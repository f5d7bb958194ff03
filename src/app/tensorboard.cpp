// tensorboard.cpp -- see tensorboard.h. Field numbers are those of TensorFlow's event.proto, summary.proto and others.
#include "src/app/tensorboard.h"
#include <map>
#include <unistd.h>
#include "src/app/log.h"
#include "src/base/common.h"
#include "src/base/file.h"

namespace {

std::string varint(uint64_t x) {
    return x < 128 ? std::string(1, char(x)) : char(x | 128) + varint(x >> 7);
}

// A protobuf field that holds a text or a message.
std::string field(int number, const std::string& content) {
    return char(number << 3 | 2) + varint(content.size()) + content;
}

std::string with_checksum(const std::string& data) {
    const uint32_t crc = crc32c(0, data.data(), data.size());
    return data + bytes_of((crc >> 15 | crc << 17) + 0xa282ead8u);
}

std::string record(double time, uint64_t step, const std::string& what) {
    const std::string event = '\x09' + bytes_of(time) + (step ? '\x10' + varint(step) : "") + what;
    return with_checksum(bytes_of(uint64_t(event.size()))) + with_checksum(event);
}

// A text summary. It is shown as Markdown, where four spaces before a line keep it as it is.
std::string text(const std::string& tag, const std::string& content) {
    std::string block = "    ";
    for (const char c : content) block += c == '\n' ? "\n    " : std::string(1, c);
    const std::string tensor = std::string{8, 7, 18, 4, 18, 2, 8, 1} + field(8, block);     // a string, shape [1]
    return field(1, field(1, tag) + field(9, field(1, field(1, "text"))) + field(8, tensor));
}

}  // namespace

std::string event_record(const std::string& line) {
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
        shown += field(1, field(1, (speed ? "speed" : group) + "/" + key) + '\x15' + bytes_of(float(x)));
    }
    if (shown.empty()) return "";
    return record(event.get_double("time", "event"), event.get_u64("step", "event"), field(5, shown));
}

std::vector<std::string> event_files(const std::string& folder) {
    std::vector<std::string> paths;
    for (const std::string& name : list_directory(folder))
        if (name.starts_with("events.out.tfevents.") && name.find(".lockstep") != name.npos)
            paths.push_back(path_join(folder, name));
    return paths;
}

std::string event_records(const std::string& path, int64_t eval_every) {
    FileReader metrics(path);
    std::string_view next;
    std::map<std::pair<uint64_t, std::string>, std::string> records;        // by step and event
    uint64_t newest_resume = 0;
    while (metrics.line(&next)) try {
        const std::string line(next);
        const Json json = parse_json(line, "event");
        const std::string event = json.get_string("event", "event");
        const uint64_t step = json.get_u64("step", "event");
        if (event == "resume")              // the run has gone back to the state after `step` steps
            std::erase_if(records, [&](const auto& r) {
                const auto& [at, what] = r.first;
                return at > step || (at == step && (what == "train" || what == "warn"));
            });
        newest_resume = event == "resume" ? step : newest_resume;
        std::string& one = records[{step, event}];
        one = (event == "warn" ? one : "") + event_record(line);        // a step may have several warnings
    } catch (const Error&) {}                                   // a torn or foreign line is left out
    if (eval_every > 0 && newest_resume % uint64_t(eval_every) == 0)        // this start scores that state again
        for (const char* score : {"val", "task"}) records.erase({newest_resume, score});
    const double now = unix_seconds();
    std::string content = record(now, 0, field(3, "brain.Event:2")) + record(now, 0, field(7, "\x08\x01"));
    for (const auto& [at, one] : records) content += one;
    return content;
}

std::string write_event_file(const std::string& folder, int64_t eval_every) {
    const std::string content = event_records(path_join(folder, "metrics.jsonl"), eval_every);
    const double now = unix_seconds();
    const std::vector<std::string> old = event_files(folder);       // a reader takes files in the order of their names
    std::string path = path_join(folder, format("events.out.tfevents.%010.0f.lockstep", now));
    if (!old.empty() && path <= old.back()) path = old.back() + ".0";
    write_file_atomic(path, content);
    for (const std::string& name : old)                     // a TensorBoard that reads the last one must find it
        if (name != old.back() || truncate(name.c_str(), 0) != 0) remove_tree(name);
    return path;
}
