// metrics.h -- reads the losses of a run from its metrics.jsonl (src/run/log.h says what is in it).
#pragma once
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>
#include "src/base/common.h"
#include "src/base/file.h"
#include "src/base/json.h"

using LossPoints = std::vector<std::pair<int64_t, double>>;         // (step, loss) in order of step
struct Metrics {
    LossPoints train, val;
};

// Adds an event to *metrics.
inline void read_event(const Json& line, const char* what, Metrics* metrics) {
    const std::string event = line.get_string("event", what);
    const uint64_t number = line.get_u64("step", what);
    if (number >= INT64_MAX) return;
    double loss = NAN;                                      // null: the run had a NaN here
    line.find("loss").as_double(&loss);
    const int64_t step = int64_t(number);
    // A "resume" event drops the points from `resumed` on, because the run went back to the state after `step` steps.
    const auto add = [&](const char* kind, LossPoints* points, int64_t resumed) {
        const int64_t first = event == kind ? step : event == "resume" ? resumed : INT64_MAX;
        while (!points->empty() && points->back().first >= first) points->pop_back();
        if (event == kind) points->push_back({step, loss});
    };
    add("train", &metrics->train, step);
    add("val", &metrics->val, step + 1);
}

// Returns the losses without the lines that a resume made invalid. Skips lines that are no events. kExitNoInput: there
// is no such file.
inline Metrics read_metrics(const std::string& path) {
    Metrics metrics;
    const std::string text = read_file(path);
    std::string_view rest = text;
    rest = rest.substr(0, rest.rfind('\n') + 1);            // npos + 1 is 0; an incomplete line is being written
    while (!rest.empty()) try {
        read_event(parse_json(next_word(&rest, '\n'), path.c_str()), path.c_str(), &metrics);
    } catch (const Error&) {}                               // skips a torn or foreign line
    return metrics;
}
