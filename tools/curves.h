// curves.h -- a run's metrics.jsonl as curves over steps, tokens and time, for plot and report.
//
// A resume at step s goes back to the state after s steps, that of a checkpoint. Curves then lose what they had of
// steps from s on. Scores and samples of that state stay: they need not be made again. Events keep all.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include "src/base/common.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "tools/tool.h"

enum Axis { kSteps, kTokens, kSeconds };        // kSeconds: time in which the run was on
using Place = std::array<double, 3>;            // a position on each Axis
struct Point {
    Place at;
    double y;                                   // NaN: not a finite number
};
using Points = std::vector<Point>;              // in order of step
struct Event {
    Place at;
    std::string kind, text;                     // kind: "event" in metrics.jsonl
};

// A colour for each run. All have a contrast of at least 3:1 against white and against #0d1117.
const char* const run_colors[] = {"#2f81f7", "#d9730d", "#2da44e", "#bf4b8a", "#8957e5", "#a0790a", "#1b8a9c",
                                  "#d1453b"};
inline const char* run_color(size_t run) { return run_colors[run % std::size(run_colors)]; }

// A run's log. The file may hold anything: a field that is missing becomes an empty text, or a point that is NaN.
struct RunLog {
    std::string file, folder, name;             // file: metrics.jsonl; folder: a real path; name: its last part
    // Every number of the train events under its name, and of other events: val, bpb and "val NAME" of validations,
    // stall_ms of checkpoints, "task NAME" with the share of right answers. Two are computed: rest_ms is the step
    // without computation and exposed communication, spread_ms the slowest rank's computation minus the fastest's.
    std::map<std::string, Points, std::less<>> curves;
    std::vector<Event> events, samples;         // events: run, resume, warn, ckpt, done; a sample's kind: its prompt
    std::map<std::string, std::string> facts, options;  // fields of the newest start; config.json
    std::string end;                            // why the run ended; "": it has not, or was killed
    Place last = {};                            // place of the newest line

    // path: a run's folder, or its metrics.jsonl.
    explicit RunLog(const std::string& path) {
        const bool is_log = file_exists(path) && !is_directory(path);
        folder = real_path(is_log ? parent_folder(path) : path);
        file = path_join(folder, is_log ? base_name(path) : "metrics.jsonl");
        name = base_name(folder);
    }
    // Reads what was added since the last call, or all if the file has been replaced. Throws kExitNoInput.
    void read() {
        const std::string text = read_file(file);
        if (!text.starts_with(head)) *this = RunLog(file);
        if (head.empty()) head = text.substr(0, text.find('\n') + 1);   // npos + 1 is 0
        std::string_view rest = text;
        rest = rest.substr(0, rest.rfind('\n') + 1);                    // the rest of a line is still being written
        rest.remove_prefix(std::min(done, rest.size()));
        done += rest.size();
        while (!rest.empty()) {
            const std::string_view line = next_word(&rest, '\n');
            try {
                read_line(parse_json(line, file.c_str()));
            } catch (const Error&) {}           // a torn or foreign line is skipped
        }
        read_options();
    }
    const Points& curve(std::string_view key) const {
        static const Points none;
        const auto found = curves.find(key);
        return found == curves.end() ? none : found->second;
    }
    std::string option(const std::string& key, const char* otherwise = "") const {
        const auto found = options.find(key);
        return found == options.end() ? otherwise : found->second;
    }
    std::string fact(const std::string& key) const {
        const auto found = facts.find(key);
        return found == facts.end() ? "" : found->second;
    }

  private:
    static constexpr size_t kMostCurves = 4000; // a file cannot make more
    std::string head;                           // the first line; another first line is another run's
    size_t done = 0;                            // bytes of the file that have been read
    double clock = NAN;                         // "time" of the newest line

    void read_options() {
        const std::string path = path_join(folder, "config.json");
        if (!file_exists(path)) return;
        try {
            const std::string text = read_file(path);
            for (JsonItems i(parse_json(text, path.c_str(), true)); i.next();)
                if (i.value.kind() != Json::object) options[i.key.text()] = i.value.text();
        } catch (const Error&) {}               // it is being written
    }
    static double number(const Json& value) {
        double x = NAN;
        return value.as_double(&x) && std::isfinite(x) ? x : NAN;
    }
    static void take_back(Points* points, double first) {
        while (!points->empty() && points->back().at[kSteps] >= first) points->pop_back();
    }
    // Of the state after `step` steps; else of step number `step`, counted from 0.
    static bool is_of_state(std::string_view key) {
        return key == "val" || key == "bpb" || key == "stall_ms" || key.starts_with("task ") ||
               key.starts_with("val ");
    }
    void add(const std::string& key, double y) {
        if (curves.size() >= kMostCurves && !curves.count(key)) return;
        take_back(&curves[key], last[kSteps]);  // of two lines of a step the later one counts
        curves[key].push_back({last, y});
    }
    // Adds the members that are numbers, or null, which is a number that is not finite.
    void read_numbers(const Json& line, bool val = false) {
        static const std::set<std::string> places = {"event", "step", "tokens", "time"};
        for (JsonItems i(line); i.next();) {
            const std::string key = i.key.text();
            if (places.count(key) || (i.value.kind() != Json::number && i.value.kind() != Json::null)) continue;
            add(!val || key == "bpb" ? key : key == "loss" ? "val" : "val " + key, number(i.value));
        }
    }
    void read_train(const Json& line) {
        read_numbers(line);
        const auto of = [&](const char* key) { return number(line.find(key)); };
        add("rest_ms", of("step_ms") - of("compute_ms") - of("exposed_ms"));
        add("spread_ms", of("compute_ms_max") - of("compute_ms_min"));
    }
    void read_line(const Json& line) {
        const std::string kind = line.get_string("event", file.c_str());
        uint64_t step;
        if (!line.find("step").as_u64(&step) || step > uint64_t(1) << 52) return;
        last[kSteps] = double(step);
        if (const double x = number(line.find("time")); x == x) {
            if (kind != "resume" && x > clock) last[kSeconds] += x - clock;     // the run was off before a resume
            clock = x;
        }
        const auto text = [&](const char* key) { return line.find(key) ? line.find(key).text() : ""; };
        const auto event = [&](const std::string& what) { events.push_back({last, kind, what}); };
        if (kind != "done") end.clear();
        if (kind == "run" || kind == "resume") {
            for (JsonItems i(line); i.next();) facts[i.key.text()] = i.value.text();
            for (auto& [key, points] : curves) take_back(&points, last[kSteps] + is_of_state(key));
            while (!samples.empty() && samples.back().at[kSteps] > last[kSteps]) samples.pop_back();
            const Points& loss = curve("loss");
            last[kTokens] = loss.empty() ? 0 : loss.back().at[kTokens];
            event(text("argv"));
        } else if (kind == "train") {
            if (const double x = number(line.find("tokens")); x == x) last[kTokens] = x;
            read_train(line);
        } else if (kind == "val") {
            read_numbers(line, true);
        } else if (kind == "task") {
            add("task " + text("name"), number(line.find("right")) / number(line.find("items")));
        } else if (kind == "ckpt") {
            add("stall_ms", number(line.find("stall_ms")));
            event(base_name(text("path")));
        } else if (kind == "warn") {
            event(text("msg"));
        } else if (kind == "sample") {
            samples.push_back({last, text("prompt"), text("text")});
        } else if (kind == "done") {
            end = text("why") + (number(line.find("code")) == 0 ? "" : " (exit code " + text("code") + ")");
            event(end);
        }
    }
};

using Runs = std::vector<RunLog>;

// Returns the runs that the paths name, each once, as runs/* has runs/last, too, after use(&run). One of several for
// which use() throws is left out with a warning.
template <class F> Runs runs_of(const Words& paths, const F& use) {
    Runs runs;
    for (const std::string& path : paths) try {
        RunLog run(path);
        if (std::ranges::count(runs, run.file, &RunLog::file)) continue;
        use(&run);
        runs.push_back(std::move(run));
    } catch (const Error& error) {
        if (paths.size() == 1) throw;
        warn("left out: %s", error.message.c_str());
    }
    if (runs.empty()) die(paths.empty() ? kExitUsage : kExitNoInput, "got no run, want one or more; see --help");
    return runs;
}

// Writes a tool's file and prints its name. "-" is standard output.
inline void write_output(const std::string& path, const std::string& text) {
    if (path == "-") {
        std::fwrite(text.data(), 1, text.size(), stdout);       // tool_main checks it
        return;
    }
    write_file_atomic(path, text);
    remove_temporaries(path);
    std::printf("%s\n", path.c_str());
}

// Returns whether the runs' losses per token can be compared.
inline bool same_tokenizer(const Runs& runs) {
    return std::ranges::all_of(runs, [&](const RunLog& run) {
        return run.option("tokenizer") == runs[0].option("tokenizer") &&
               run.option("vocab_size") == runs[0].option("vocab_size");
    });
}

// The exponential moving average over about `window` points. It is debiased: it begins with the first point's value.
// Values that are not finite are left out.
inline Points smoothed(const Points& points, double window) {
    Points out;
    const double beta = window > 1 ? 1 - 1 / window : 0;
    double mean = 0, weight = 0;                // weight: sum of the weights so far, which nears 1
    for (const auto& [at, y] : points) {
        if (!std::isfinite(y)) continue;
        mean = beta * mean + (1 - beta) * y;
        weight = beta * weight + (1 - beta);
        out.push_back({at, mean / weight});
    }
    return out;
}

// Fewer points of a long curve. It is cut into `bins` parts; each keeps its lowest and highest point, so that spikes
// stay, and one NaN. The first and the last point stay, too.
inline Points thinned(const Points& points, size_t bins) {
    if (points.size() <= 2 * bins) return points;
    Points out;
    for (size_t bin = 0; bin < bins; bin++) {
        const size_t begin = bin * points.size() / bins, end = (bin + 1) * points.size() / bins;
        size_t lowest = begin, highest = begin, odd = end;
        for (size_t i = begin; i < end; i++) {
            if (std::isnan(points[i].y)) odd = i;
            if (points[i].y < points[lowest].y || std::isnan(points[lowest].y)) lowest = i;
            if (points[i].y > points[highest].y || std::isnan(points[highest].y)) highest = i;
        }
        std::set<size_t> chosen = {lowest, highest};
        if (odd < end) chosen.insert(odd);
        if (begin == 0) chosen.insert(0);
        if (end == points.size()) chosen.insert(end - 1);
        for (const size_t i : chosen) out.push_back(points[i]);
    }
    return out;
}

struct Range {
    double lo = INFINITY, hi = -INFINITY;
    void add(double x) {
        lo = std::min(lo, x);
        hi = std::max(hi, x);
    }
    void add(const Range& other) {
        lo = std::min(lo, other.lo);
        hi = std::max(hi, other.hi);
    }
};
// The range of all values but spikes. A spike is further below the 5th percentile or above the 95th than 1.5 times the
// distance between the two.
inline Range range_without_spikes(std::vector<double> values) {
    Range range;
    std::erase_if(values, [](double x) { return !std::isfinite(x); });
    if (values.empty()) return range;
    std::ranges::sort(values);
    const size_t tail = values.size() / 20;
    const double low = values[tail], high = values[values.size() - 1 - tail], room = 1.5 * (high - low);
    range.lo = std::max(values.front(), low - room);
    range.hi = std::min(values.back(), high + room);
    return range;
}
