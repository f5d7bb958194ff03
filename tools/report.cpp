// report.cpp -- build/report runs/A runs/B [-o report.html]: makes one page of the runs' metrics.jsonl, which a browser
// shows without any other file. --serve shows runs while they go on.
//
// tools/report.html is the page. This program fills its {{places}} with tables, with the curves as JSON, which its
// script draws, and with pictures of the curves for browsers that run no script.
#include <utility>
#include "tools/picture.h"
#include "tools/serve.h"
#include "tools/tables.h"
#include "tools/tool.h"

asm(".section .rodata\n"
    ".global report_page, report_page_end\n"
    "report_page: .incbin \"tools/report.html\"\n"
    "report_page_end: .byte 0\n"
    ".text\n");
extern "C" const char report_page[], report_page_end[];

namespace {

constexpr size_t kBins = 999;           // of a curve, which then has about twice as many points

// A chart. y, dots: names of the curves drawn as a line and as dots, or empty. Validations, tasks and stalls are dots.
// A y that ends in '/' is the lines of all curves that begin with it.
struct Chart {
    std::string y, dots, title, unit;
    bool smooth;                        // its line can be smoothed
    bool many() const { return y.ends_with('/'); }
};
std::vector<Chart> known_charts(const Runs& runs) {
    std::vector<Chart> charts = {
        {"loss", "val", "Training and validation loss", "nats per token", true},
        {"", "bpb", "Validation loss", "bits per byte", false},
        {"grad_norm", "", "Gradient norm", "before clipping", true},
        {"lr", "", "Learning rate", "", false},
        {"tok_s", "", "Speed", "tokens per second", true},
        {"mfu", "", "Use of the hardware", "share of its peak", true},
        {"gpu_watts", "", "Power", "watts, the GPU of the slowest rank", true},
        {"gpu_mhz", "", "Clock", "MHz, the GPU of the slowest rank", true},
        {"gpu_c", "", "Temperature", "degrees Celsius, the GPU of the slowest rank", true},
    };
    std::set<std::string> tasks;
    for (const RunLog& run : runs)
        for (const auto& [key, points] : run.curves)
            if (key.starts_with("task ")) tasks.insert(key);
    for (const std::string& key : tasks) charts.push_back({"", key, key, "share of right answers", false});
    if (same_tokenizer(runs)) return charts;
    std::swap(charts[0], charts[1]);    // bits per byte first: other tokenizers, other losses
    return charts;
}
const std::vector<Chart> time_charts = {
    {"step_ms", "", "Step", "ms", true},
    {"compute_ms", "", "Computation", "ms, rank 0", true},
    {"exposed_ms", "", "Exposed communication", "ms, hidden by no computation", true},
    {"rest_ms", "", "The rest of a step", "ms, waiting and host", true},
    {"", "stall_ms", "Stalls for checkpoints", "ms, the copy before a file is written", false},
    {"spread_ms", "", "Spread of the ranks", "ms from the fastest computation to the slowest", true},
};

bool has_values(const Points& points) {
    return std::ranges::any_of(points, [](const Point& p) { return std::isfinite(p.y); });
}

// The known charts, and one for each other curve: numbers of a model, of a fork, of measurements. Curves NAME/PART have
// one chart, NAME.
std::vector<Chart> charts_of(const Runs& runs) {
    std::vector<Chart> charts = known_charts(runs);
    std::set<std::string> known = {"comm_ms", "compute_ms_min", "compute_ms_max", "slowest_rank"};
    for (const std::vector<Chart>& list : {charts, time_charts})
        for (const Chart& chart : list) known.insert({chart.y, chart.dots});
    for (const RunLog& run : runs)
        for (const auto& [key, points] : run.curves) {
            const std::string group = key.substr(0, key.find('/')), y = group == key ? key : group + "/";
            if (!has_values(points) || !known.insert(y).second) continue;
            if (key.starts_with("val ") && y == key) charts.push_back({"", y, key, "", false});
            else charts.push_back({y, "", group, "", group == key});
        }
    return charts;
}
// The curves of a run that a chart's y or dots name.
std::vector<std::string> names_of(const RunLog& run, const std::string& y) {
    std::vector<std::string> names;
    for (const auto& [key, points] : run.curves)
        if ((key == y || (y.ends_with('/') && key.starts_with(y))) && has_values(points)) names.push_back(key);
    return names;
}

// ---------------------------------------------------------------------------------------------------------- charts

// The figure of a chart, with a picture for browsers that run no script. The script replaces it by its own drawing.
std::string chart(const Runs& runs, const Chart& of) {
    Picture picture;
    picture.title = of.title;
    picture.width = 440;
    picture.height = 250;
    for (size_t i = 0; i < runs.size(); i++) {
        const std::vector<std::string> lines = names_of(runs[i], of.y);
        const Points dots = smoothed(runs[i].curve(of.dots), 1);
        if (lines.empty() && dots.empty()) continue;
        for (size_t k = 0; k < lines.size(); k++) {
            const Points& raw = runs[i].curve(lines[k]);
            const char* const color = run_color(of.many() && runs.size() == 1 ? k : i);
            picture.curves.push_back({smoothed(raw, of.smooth ? double(raw.size()) / 100 : 1), color, 1.8, 1, false});
        }
        picture.curves.push_back({dots, run_color(i), lines.empty() ? 1.8 : 0, 1, true});
        if (of.many() && runs.size() == 1) continue;        // its lines have no names here
        picture.legend.push_back({runs.size() > 1 ? format("%c", char('A' + i % 26)) : runs[i].name, run_color(i)});
    }
    std::string still;
    try {
        still = picture.draw(false);
    } catch (const Error&) {}               // it has no value, or too large ones
    return format("<figure data-y=\"%s\" data-dots=\"%s\"%s%s><figcaption><h3>%s</h3><span>%s</span></figcaption>"
                  "<ul class=key></ul><div class=plot>",
                  markup(of.y).c_str(), markup(of.dots).c_str(), of.smooth ? " data-smooth" : "",
                  picture.curves.empty() ? " hidden" : "", markup(of.title).c_str(), of.unit.c_str()) +
           still + "</div></figure>\n";
}
std::string charts(const Runs& runs, const std::vector<Chart>& list) {
    std::string html;
    for (const Chart& of : list) html += chart(runs, of);
    return html;
}

// A JSON array of value(point) for each point.
template <class F> std::string array(const Points& points, int digits, const F& value) {
    std::string out = "[";
    for (const Point& p : points) out += (out.size() > 1 ? "," : "") + json_number(value(p), digits);
    return out + "]";
}
std::string steps_json(const Points& points) {      // the first step, then differences
    double last = 0;
    return array(points, 16, [&](const Point& p) { return p.at[kSteps] - std::exchange(last, p.at[kSteps]); });
}
std::string values_json(const Points& points) {
    return array(points, 7, [](const Point& p) { return p.y; });
}
// The steps s and values v of a curve. A long one also has the mean of each bin, ms and mv, for smoothing.
std::string curve_json(const Points& points, bool smooth) {
    const Points few = thinned(points, kBins);
    JsonLine json;
    json.raw("s", steps_json(few)).raw("v", values_json(few));
    if (!smooth || few.size() == points.size()) return json.text();
    Points means;
    for (size_t bin = 0; bin < kBins; bin++) {
        const size_t begin = bin * points.size() / kBins, end = (bin + 1) * points.size() / kBins;
        const Points part = smoothed(Points(points.begin() + long(begin), points.begin() + long(end)), 1);
        if (!part.empty()) means.push_back({part[part.size() / 2].at, sum(part) / double(part.size())});
    }
    return json.raw("ms", steps_json(means)).raw("mv", values_json(means)).text();
}
// Some of a run's steps with their places on all axes. The script interpolates between them.
std::string places_json(const RunLog& run) {
    Points places, few;
    for (const char* const key : {"loss", "val"})
        for (const Point& p : run.curve(key))
            if (places.empty() || p.at[kSteps] > places.back().at[kSteps]) places.push_back(p);
    for (size_t k = 0; k < places.size(); k++)
        if (k % (places.size() / kBins + 1) == 0 || k + 1 == places.size()) few.push_back(places[k]);
    std::vector<std::string> axes;
    for (const Axis axis : {kSteps, kTokens, kSeconds})
        axes.push_back(array(few, axis == kSeconds ? 8 : 16, [axis](const Point& p) { return p.at[axis]; }));
    return "[" + join(axes, ",") + "]";
}
std::string run_json(const RunLog& run, size_t i, const std::vector<Chart>& list) {
    std::vector<std::string> curves, marks;
    for (const Chart& chart : list)
        for (const std::string& y : {chart.y, chart.dots})
            for (const std::string& key : names_of(run, y))
                curves.push_back(json_quote(key) + ":" + curve_json(run.curve(key), chart.smooth && y == chart.y));
    for (const bool saved : {true, false})
        for (const Event& e : newest(run.events, saved))
            if (e.kind != "run" && e.kind != "done")
                marks.push_back(format("[%.0f,", e.at[kSteps]) + json_quote(e.kind) + "," +
                                json_quote(e.text.substr(0, 200)) + "]");
    return JsonLine().add("name", run.name).add("color", run_color(i)).raw("places", places_json(run))
        .raw("curves", "{" + join(curves, ",") + "}").raw("marks", "[" + join(marks, ",") + "]").text();
}

// ---------------------------------------------------------------------------------------------------------- the page

struct Part {
    const char* name;
    std::string (*html)(const Runs&);
};
const Part parts[] = {{"summary", summary}, {"bars", time_bars}, {"ranks", ranks}, {"events", events},
                      {"samples", samples}, {"options", options}, {"numbers", numbers}};

// The JSON that the script draws from. live: with the parts of the page that change.
std::string data_json(const Runs& runs, bool live) {
    std::vector<Chart> list = charts_of(runs);
    list.insert(list.end(), time_charts.begin(), time_charts.end());
    std::vector<std::string> of_runs;
    for (size_t i = 0; i < runs.size(); i++) of_runs.push_back(run_json(runs[i], i, list));
    JsonLine html;
    for (const Part& part : parts)
        if (live) html.add(part.name, part.html(runs));
    const std::string text = JsonLine().add("live", live).add("charts", list.size())
                                 .raw("runs", "[" + join(of_runs, ",") + "]").raw("parts", html.text()).text();
    std::string out;
    for (const char c : text) out += c == '<' ? "\\u003c" : std::string(1, c);   // no text ends the script element
    return out;
}

std::string page(const Runs& runs, bool live) {
    std::map<std::string, std::string> values;
    for (const Part& part : parts) values[part.name] = part.html(runs);
    std::vector<std::string> names;
    for (const RunLog& run : runs) names.push_back(run.name);
    values["title"] = markup(join(names, ", "));
    values["connect"] = live ? " connect-src 'self';" : "";
    values["charts"] = charts(runs, charts_of(runs));
    values["times"] = charts(runs, time_charts);
    values["data"] = data_json(runs, live);
    std::string_view rest(report_page, size_t(report_page_end - report_page));
    std::string out;
    for (size_t at; (at = rest.find("{{")) != rest.npos;) {
        const size_t end = rest.find("}}", at);
        out += rest.substr(0, at);
        out += values.at(std::string(rest.substr(at + 2, end - at - 2)));
        rest.remove_prefix(end + 2);
    }
    return out += rest;
}

// The server's answer to a request for `path`, with all runs read again; "" if there is no such page.
std::string answer(Runs* runs, const std::string& path, std::string* type) {
    for (RunLog& run : *runs) {
        try {
            run.read();
        } catch (const Error&) {}           // the log is not there yet, or is gone
    }
    *type = path == "/" ? "text/html" : "application/json";
    return path == "/" ? page(*runs, true) : path == "/data.json" ? data_json(*runs, true) : "";
}

int run(const Words& paths, const std::string& out, int port) {
    if (!out.empty() && port >= 0) die(kExitUsage, "got -o and --serve, want one of them");
    Runs runs = runs_of(paths, [port](RunLog* run) {
        if (port >= 0 && is_directory(run->folder)) return;        // its log may come
        run->read();
        if (run->events.empty() && run->curves.empty())
            die(kExitBadContent, "%s: no events in it; want a run's folder or its metrics.jsonl", run->file.c_str());
    });
    if (port >= 0) serve(port, [&](const std::string& path, std::string* type) { return answer(&runs, path, type); });
    else write_output(out.empty() ? path_join(runs[0].folder, "report.html") : out, page(runs, false));
    return kExitDone;
}

}  // namespace

int main(int argc, char** argv) {
    std::string out;
    int port = -1;                          // none: not served
    const Tool tool = {"report",
        "usage: report OUT... [-o report.html]\n"
        "       report OUT... --serve [PORT]\n"
        "Writes one page with the curves, times, events, samples and options of runs (folders, or metrics.jsonl "
        "files).\nIt opens in any browser and loads nothing from elsewhere.\n",
        {{"-o", "FILE", "default: report.html in the folder of the first; -: standard output", &out},
         {"--serve", "[PORT]", "shows the page to browsers on this machine while the runs go on, until Ctrl-C; the "
          "port is 6180", &port, "", {"from 0 to 65535", 0, 65535}, "6180"}}};
    return tool_main(tool, argc, argv, [&](const Words& paths) { return run(paths, out, port); });
}
