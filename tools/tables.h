// tables.h -- the parts of build/report's page that are text and tables: the HTML of each for all runs.
//
// All that comes from a run is escaped, since names, samples, messages and options can hold any bytes.
#pragma once
#include <functional>
#include "tools/picture.h"

namespace {

constexpr size_t kRows = 20;            // about, in a table of numbers
constexpr size_t kSamples = 40, kEvents = 200;  // the newest ones are shown

std::string number(double x, const char* form = "%.4f") { return std::isfinite(x) ? format(form, x) : "–"; }
// A number that a file gives without sense, such as 1e40 tokens, is not shown.
std::string whole(double x) { return x >= 0 && x < 1e18 ? with_commas(uint64_t(x)) : "–"; }
std::string duration(double seconds) {
    if (!(std::fabs(seconds) < 1e12)) return "–";
    if (seconds < 100) return format("%.1f s", seconds);
    const long long s = llround(seconds), h = s / 3600;
    return h ? format("%lld:%02lld:%02lld h", h, s / 60 % 60, s % 60) : format("%lld:%02lld min", s / 60, s % 60);
}
// The letter of run i, "A" for the first; nothing if it is the only run.
std::string badge(const Runs& runs, size_t i) {
    if (runs.size() == 1) return "";
    return format("<b class=badge style=\"--c:%s\">%c</b> ", run_color(i), char('A' + i % 26));
}
// A run's name as a heading. The name of the only run is in the page's heading, so that it gets none here.
std::string name_of(const Runs& runs, size_t i, const std::string& tag) {
    return runs.size() == 1 ? "" : "<" + tag + ">" + badge(runs, i) + markup(runs[i].name) + "</" + tag + ">";
}

struct Table {
    std::string html;
    Table(const std::string& caption, const std::vector<std::string>& heads) {
        html = "<div class=scroll tabindex=0><table><caption>" + caption + "</caption><thead><tr>";
        for (const std::string& head : heads) html += "<th scope=col>" + head + "</th>";
        html += "</tr></thead><tbody>";
    }
    void row(const std::vector<std::string>& cells) {   // cells: already HTML
        html += "<tr>";
        for (const std::string& cell : cells) html += (&cell == &cells[0] ? "<th scope=row>" : "<td>") + cell;
        html += "</tr>\n";
    }
    std::string end() const { return html + "</tbody></table></div>\n"; }
};

std::string folded(const std::string& what, const std::string& html) {
    return "<details><summary>" + what + "</summary>" + html + "</details>\n";
}

double median(const Points& points) {
    std::vector<double> values;
    for (const Point& p : points)
        if (std::isfinite(p.y)) values.push_back(p.y);
    if (values.empty()) return NAN;
    std::ranges::nth_element(values, values.begin() + long(values.size() / 2));
    return values[values.size() / 2];
}
double sum(const Points& points) {
    double total = 0;
    for (const Point& p : points) total += std::isfinite(p.y) ? p.y : 0;
    return total;
}

// A line that describes a run: size, model, optimizer, device, version.
std::string description(const RunLog& run) {
    std::vector<std::string> words;
    uint64_t parameters;
    if (parse_whole(run.fact("params"), &parameters)) words.push_back(with_commas(parameters) + " parameters");
    for (const char* const option : {"model", "preset", "optimizer"}) words.push_back(markup(run.option(option)));
    for (const char* const fact : {"device_name", "version"}) words.push_back(markup(run.fact(fact)));
    std::erase(words, "");
    return "<p>" + join(words, " · ") + "</p>";
}
// A number, its name above it, and a remark below it.
std::string tile(const std::string& name, const std::string& value, const std::string& more = "") {
    return "<div><dt>" + name + "</dt><dd>" + value + " <small>" + more + "</small></dd></div>";
}
// A tile with the last and the lowest value of a curve, if it has any.
std::string score(const std::string& name, const Points& all) {
    const Points points = smoothed(all, 1);     // without what is not finite
    if (points.empty()) return "";
    const Point& best = *std::ranges::min_element(points, {}, &Point::y);
    return tile(name, number(points.back().y), "best " + number(best.y) + " at step " + whole(best.at[kSteps]));
}
// The tiles of each run.
std::string summary(const Runs& runs) {
    std::string html;
    for (size_t i = 0; i < runs.size(); i++) {
        const RunLog& run = runs[i];
        const Points &loss = run.curve("loss"), train = smoothed(loss, double(loss.size()) / 100);
        const std::string steps = run.option("steps");
        html += "<article>" + name_of(runs, i, "h2") + description(run) + "<dl>" +
                score("Validation loss", run.curve("val")) + score("Bits per byte", run.curve("bpb")) +
                tile("Training loss", train.empty() ? "–" : number(train.back().y), "smoothed") +
                tile("Steps", whole(loss.empty() ? 0 : loss.back().at[kSteps] + 1),
                     steps.empty() ? "" : "of " + markup(steps)) +
                tile("Tokens", short_number(run.last[kTokens])) + tile("Time", duration(run.last[kSeconds])) +
                tile("Tokens/s", whole(median(run.curve("tok_s"))), "median") +
                "<div><dt>End</dt><dd class=words>" +
                (run.end.empty() ? "none yet <small>it runs, or was killed</small>" : markup(run.end)) +
                "</dd></div></dl></article>\n";
    }
    if (!same_tokenizer(runs))
        html += "<p class=note>These runs have different tokenizers. Their losses per token cannot be compared; "
                "compare bits per byte.</p>";
    return html;
}

// For each run a bar whose parts show where its time went, and the parts as a list.
std::string time_bars(const Runs& runs) {
    std::string html = "<div class=bars>";
    for (size_t i = 0; i < runs.size(); i++) {
        const RunLog& run = runs[i];
        const double all = run.last[kSeconds] * 1e3, step = sum(run.curve("step_ms"));
        const double compute = sum(run.curve("compute_ms")), exposed = sum(run.curve("exposed_ms"));
        const double stalls = sum(run.curve("stall_ms"));
        if (!(all > 0)) continue;
        const std::pair<const char*, double> parts[] = {
            {"computation", compute}, {"exposed communication", exposed},
            {"rest of the steps", step - compute - exposed}, {"stalls for checkpoints", stalls},
            {"evaluations and other", all - step - stalls}};
        std::string bar, list;
        for (const auto& [name, ms] : parts) {
            const double share = std::clamp(ms / all, 0.0, 1.0);
            bar += format("<i style=\"flex:%.3f\"></i>", share);
            list += format("<li><i></i>%s %.1f %%</li>", name, 100 * share);
        }
        html += "<div>" + name_of(runs, i, "h3") + "<div class=bar aria-hidden=true>" + bar + "</div><ul>" + list +
                "</ul></div>";
    }
    return html + "</div>";
}

std::string ranks(const Runs& runs) {
    Table table("Ranks: the computation of a step, in ms, is the median of all steps",
                {"run", "ranks", "hosts", "started by", "fastest", "slowest", "which is the slowest"});
    for (size_t i = 0; i < runs.size(); i++) {
        const RunLog& run = runs[i];
        std::map<std::string, int> hosts;
        std::map<double, size_t> slowest;
        std::vector<std::string> host_words, rank_words;
        try {
            const std::string list = run.fact("ranks");
            for (JsonItems r(parse_json(list, "ranks")); r.next();) hosts[r.value.get_string("host", "ranks")]++;
        } catch (const Error&) {}
        for (const auto& [host, n] : hosts) host_words.push_back(markup(host) + format(" (%d)", n));
        const Points& which = run.curve("slowest_rank");
        for (const Point& p : which) slowest[p.y]++;
        for (const auto& [rank, n] : slowest)
            rank_words.push_back(format("rank %.0f in %.0f %%", rank, 100 * double(n) / double(which.size())));
        if (rank_words.size() > 8) rank_words.resize(8);
        table.row({badge(runs, i) + markup(run.name), markup(run.fact("world_size")), join(host_words, ", "),
                   markup(run.fact("launcher")), number(median(run.curve("compute_ms_min")), "%.1f"),
                   number(median(run.curve("compute_ms_max")), "%.1f"), join(rank_words, ", ")});
    }
    return table.end();
}

// The newest checkpoints if `saved`, else the newest other events.
std::vector<Event> newest(std::vector<Event> events, bool saved) {
    std::erase_if(events, [&](const Event& e) { return (e.kind == "ckpt") != saved; });
    events.erase(events.begin(), events.end() - long(std::min(events.size(), kEvents)));
    return events;
}
std::string events(const Runs& runs) {
    static const std::map<std::string, const char*> words = {
        {"run", "start"}, {"resume", "resume"}, {"warn", "warning"}, {"ckpt", "saved"}, {"done", "end"}};
    std::string html;
    for (size_t i = 0; i < runs.size(); i++) {
        const auto table = [&](bool saved) {
            Table table(badge(runs, i) + markup(runs[i].name), {"step", "time", "event", "what"});
            for (const Event& e : newest(runs[i].events, saved))
                table.row({whole(e.at[kSteps]), duration(e.at[kSeconds]),
                           "<span class=" + e.kind + ">" + words.at(e.kind) + "</span>", markup(e.text)});
            return table.end();
        };
        const size_t saved = newest(runs[i].events, true).size();
        html += table(false) + (saved ? folded(format("%zu checkpoints", saved), table(true)) : "");
    }
    return html;
}

std::string samples(const Runs& runs) {
    std::map<double, std::string> of_step;
    for (size_t i = 0; i < runs.size(); i++)
        for (const Event& s : runs[i].samples)
            of_step[s.at[kSteps]] += "<blockquote>" + badge(runs, i) + "<b>" + markup(s.kind) + "</b>" +
                                     markup(s.text.substr(0, 4000)) + "</blockquote>";
    if (of_step.empty()) return "<p>None.</p>";
    while (of_step.size() > kSamples) of_step.erase(of_step.begin());
    std::string earlier, newest;
    for (const auto& [step, texts] : of_step) {
        earlier = newest + earlier;
        newest = "<h3>step " + whole(step) + "</h3><div class=texts>" + texts + "</div>\n";
    }
    return newest + (earlier.empty() ? "" : folded(format("%zu earlier", of_step.size() - 1), earlier));
}

std::string options(const Runs& runs) {
    std::vector<std::string> heads = {"option"};
    for (size_t i = 0; i < runs.size(); i++) heads.push_back(badge(runs, i) + markup(runs[i].name));
    std::set<std::string> names;
    for (const RunLog& run : runs)
        for (const auto& [name, value] : run.options) names.insert(name);
    Table different("Options that differ", heads), all("All options", heads);
    for (const std::string& name : names) {
        std::vector<std::string> row = {markup(name)};
        for (const RunLog& run : runs) row.push_back(markup(run.option(name, "–")));
        all.row(row);
        if (std::set<std::string>(row.begin() + 1, row.end()).size() > 1) different.row(row);
    }
    return (runs.size() > 1 ? different.end() : "") + folded("All options", all.end());
}

// A table of the curves at about kRows steps and kRows validations.
std::string numbers(const Runs& runs) {
    struct Column {
        const char *key, *head, *form;
    };
    static const Column columns[] = {
        {"loss", "training loss", "%.4f"}, {"val", "validation loss", "%.4f"}, {"bpb", "bits per byte", "%.4f"},
        {"lr", "learning rate", "%.3g"}, {"grad_norm", "gradient norm", "%.4f"}, {"tok_s", "tokens/s", "%.0f"},
        {"step_ms", "ms per step", "%.1f"}};
    std::vector<std::string> heads = {"step", "tokens", "time"};
    for (const Column& column : columns) heads.push_back(column.head);
    std::string html;
    for (size_t i = 0; i < runs.size(); i++) {
        std::map<double, std::vector<std::string>> rows;
        for (const char* const key : {"val", "loss"}) {
            const Points& points = runs[i].curve(key);
            for (size_t k = 0; k < points.size(); k++) {
                const Place& at = points[k].at;
                if (k % (points.size() / kRows + 1) == 0 || k + 1 == points.size())
                    rows[at[kSteps]] = {whole(at[kSteps]), whole(at[kTokens]), duration(at[kSeconds])};
            }
        }
        for (auto& [step, row] : rows) row.resize(heads.size());
        for (size_t c = 0; c < std::size(columns); c++)
            for (const Point& p : runs[i].curve(columns[c].key))
                if (const auto row = rows.find(p.at[kSteps]); row != rows.end())
                    row->second[3 + c] = number(p.y, columns[c].form);
        Table table(badge(runs, i) + markup(runs[i].name), heads);
        for (const auto& [step, row] : rows) table.row(row);
        html += table.end();
    }
    return html;
}

}  // namespace
