// plot.cpp -- build/plot OUT... [-o loss.svg]: the losses of one or more runs as a small SVG, drawn from their
// metrics.jsonl.
//
// The training loss is smoothed (with one run its raw values stand faintly behind it), validation losses are dots.
// Background and text suit light and dark pages: the picture is transparent and its greys and colours are readable on
// both.
#include <algorithm>
#include <cmath>
#include "src/app/log.h"
#include "src/base/common.h"
#include "src/base/file.h"
#include "tools/tool.h"

namespace {

struct Run {
    std::string name;
    LossPoints raw, train, val;
};
struct Range {
    double lo = INFINITY, hi = -INFINITY;
    void add(double x) { lo = std::min(lo, x), hi = std::max(hi, x); }
};

constexpr double kWidth = 720, kHeight = 400, kLeft = 56, kRight = 26, kTop = 34, kBottom = 44;  // pixels
constexpr size_t kMaxPoints = 800;  // of a line: more than its pixels only make the file larger
// Contrast of at least 3:1 against white and against #0d1117.
const char* const colors[] = {"#2f81f7", "#d9730d", "#2da44e", "#bf4b8a", "#8957e5", "#a0790a", "#1b8a9c", "#d1453b"};
const char* const grey = "#7d8590";
const char* const usage =
    "usage: plot OUT... [-o loss.svg] [--smooth STEPS]\n"
    "Draws the training and validation losses of runs (folders, or metrics.jsonl files) as an SVG; without -o as\n"
    "loss.svg in the folder of the first.\n";

std::string xml(const std::string& text) {
    std::string out;
    for (const char c : text) {
        if (c == '<')
            out += "&lt;";
        else if (c == '&')
            out += "&amp;";
        else if (c == '"')
            out += "&quot;";
        else
            out += (unsigned char)c < 0x20 ? '?' : c;  // XML 1.0 has no other control characters
    }
    return out;
}

// Exponential moving average over about `window` points, debiased, so that the first value is the first loss. Values
// that are not finite are left out.
LossPoints smooth_losses(const LossPoints& points, double window) {
    LossPoints out;
    const double beta = window > 1 ? 1 - 1 / window : 0;
    double mean = 0, weight = 0;  // weight: of the losses seen so far, near 1 in the end
    for (const auto& [step, loss] : points) {
        if (!std::isfinite(loss)) continue;
        mean = beta * mean + (1 - beta) * loss;
        weight = beta * weight + (1 - beta);
        out.push_back({step, mean / weight});
    }
    return out;
}

// The step of an axis with about `count` marks: 1, 2 or 5 times a power of ten.
double mark_distance(double range, int count) {
    const double rough = range / count, power = std::pow(10, std::floor(std::log10(rough)));
    for (const double m : {1.0, 2.0, 5.0})
        if (rough <= m * power) return m * power;
    return 10 * power;
}

// Every n-th point and the last, so that at most kMaxPoints are left.
LossPoints thinned(const LossPoints& points) {
    const size_t n = points.size() / kMaxPoints + 1;
    LossPoints out;
    for (size_t i = 0; i < points.size(); i++)
        if (i % n == 0 || i + 1 == points.size()) out.push_back(points[i]);
    return out;
}

struct Plot {
    Range steps, losses;
    std::string svg;
    double x(double step) const {
        return kLeft + (step - steps.lo) / (steps.hi - steps.lo) * (kWidth - kLeft - kRight);
    }
    double y(double loss) const {
        return kTop + (losses.hi - loss) / (losses.hi - losses.lo) * (kHeight - kTop - kBottom);
    }
    void label(double at_x, double at_y, const char* anchor, const std::string& text) {
        svg += format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"%s\">%s</text>\n", at_x, at_y, anchor,
                      grey, xml(text).c_str());
    }
    void line(const LossPoints& points, const char* color, double width, double opacity) {
        svg += format(
            "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"%g\" stroke-opacity=\"%g\" stroke-linejoin=\"round\" "
            "points=\"",
            color, width, opacity);
        for (const auto& [step, loss] : thinned(points))
            svg += format("%.1f,%.1f ", x(double(step)), std::clamp(y(loss), kTop, kHeight - kBottom));
        svg += "\"/>\n";
    }
};

void axes(Plot* plot) {
    const double dy = mark_distance(plot->losses.hi - plot->losses.lo, 6),
                 dx = mark_distance(plot->steps.hi - plot->steps.lo, 8);
    const int decimals = std::clamp(int(std::ceil(-std::log10(dy) - 1e-9)), 0, 6);
    for (double k = std::ceil(plot->losses.lo / dy); k * dy <= plot->losses.hi; k++) {
        const double at = plot->y(k * dy);
        plot->svg +=
            format("<line x1=\"%g\" x2=\"%g\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-opacity=\"0.3\"/>\n", kLeft,
                   kWidth - kRight, at, at, grey);
        plot->label(kLeft - 8, at + 4, "end", format("%.*f", decimals, k * dy));
    }
    for (double k = std::ceil(plot->steps.lo / dx); k * dx <= plot->steps.hi; k++)
        if (dx >= 1 || k * dx == std::floor(k * dx))
            plot->label(plot->x(k * dx), kHeight - kBottom + 18, "middle", with_commas(uint64_t(k * dx)));
    plot->label((kLeft + kWidth - kRight) / 2, kHeight - 8, "middle", "step");
    plot->label(8, kTop - 16, "start", "loss (nats per token)");
}

std::string draw(const std::vector<Run>& runs) {
    Plot plot;
    for (const Run& run : runs)
        for (const LossPoints* points : {&run.train, &run.val})
            for (const auto& [step, loss] : *points) plot.steps.add(double(step)), plot.losses.add(loss);
    // Room for the raw losses around their average, but not for spikes: from the 1st to the 99th of a hundred.
    for (const Run& run : runs) {
        std::vector<double> values;
        for (const auto& [step, loss] : run.raw) values.push_back(loss);
        std::sort(values.begin(), values.end());
        if (values.empty()) continue;
        plot.losses.add(values[values.size() / 100]);
        plot.losses.add(values[values.size() - 1 - values.size() / 100]);
    }
    if (!(plot.losses.hi - plot.losses.lo < 1e30 && plot.steps.hi < 1e15))
        die(kExitBadContent, "losses or steps are too large to draw");
    const double margin =
        std::max(0.03 * (plot.losses.hi - plot.losses.lo), 1e-3 * std::max(1.0, std::fabs(plot.losses.hi)));
    plot.losses.lo -= margin, plot.losses.hi += margin;
    if (plot.steps.hi <= plot.steps.lo) plot.steps.hi = plot.steps.lo + 1;

    plot.svg = format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" width=\"%g\" height=\"%g\" role=\"img\" "
        "font-family=\"system-ui, sans-serif\" font-size=\"12\">\n<title>Training and validation loss</title>\n",
        kWidth, kHeight, kWidth, kHeight);
    axes(&plot);
    for (size_t i = 0; i < runs.size(); i++) {
        const char* color = colors[i % (sizeof colors / sizeof *colors)];
        if (!runs[i].raw.empty()) plot.line(runs[i].raw, color, 1, 0.25);
        plot.line(runs[i].train, color, 1.8, 1);
        for (const auto& [step, loss] : thinned(runs[i].val))
            plot.svg += format("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", plot.x(double(step)),
                               plot.y(loss), color);
        const double at = kTop + 8 + 18 * double(i);  // legend, top right: losses fall, so nothing is there
        std::string name = runs[i].name;
        if (!runs[i].train.empty()) name += format("  train %.3f", runs[i].train.back().second);
        if (!runs[i].val.empty()) name += format("  val %.3f", runs[i].val.back().second);
        plot.label(kWidth - kRight - 18, at + 4, "end", name);
        plot.svg += format("<circle cx=\"%g\" cy=\"%g\" r=\"4\" fill=\"%s\"/>\n", kWidth - kRight - 8, at, color);
    }
    return plot.svg + "</svg>\n";
}

Run read_run(std::string path, double window) {
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    const bool folder = is_directory(path);
    const Metrics metrics = read_metrics(folder ? path_join(path, "metrics.jsonl") : path);
    Run run;
    run.name = base_name(path);
    run.raw = smooth_losses(metrics.train, 1);  // without what is not finite
    run.train = smooth_losses(metrics.train, window > 0 ? window : double(metrics.train.size()) / 100);
    run.val = smooth_losses(metrics.val, 1);
    if (run.train.empty() && run.val.empty())
        die(kExitBadContent, "%s: no losses in it; want a run's folder or its metrics.jsonl", path.c_str());
    return run;
}

int plot_main(int argc, char** argv) {
    std::vector<std::string> paths;
    std::string out;    // default: loss.svg beside the first run's metrics.jsonl
    double window = 0;  // of the smoothing, in steps; 0: a hundredth of the run
    for (int i = 1; i < argc; i++) {
        const std::string arg = argv[i];
        if (arg == "-o" || arg == "--smooth") {
            if (i + 1 == argc) die(kExitUsage, "%s: got no value; %s", arg.c_str(), "e.g. plot runs/a -o loss.svg");
            const std::string value = argv[++i];
            if (arg == "-o") {
                out = value;
                continue;
            }
            char* end;
            window = std::strtod(value.c_str(), &end);
            if (value.empty() || *end || !(window > 0 && window < 1e9))
                die(kExitUsage, "--smooth: got %s, want a number of steps > 0", value.c_str());
        } else if (arg.size() > 1 && arg[0] == '-') {
            die(kExitUsage, "unknown option %s; want plot OUT... -o loss.svg", arg.c_str());
        } else {
            paths.push_back(arg);
        }
    }
    if (paths.empty()) die(kExitUsage, "got no run, want plot OUT... -o loss.svg");
    std::vector<Run> runs;
    for (const std::string& path : paths) runs.push_back(read_run(path, window));
    if (runs.size() > 1)
        for (Run& run : runs) run.raw.clear();  // several clouds of raw values hide each other
    const std::string& first = paths[0];
    if (out.empty()) out = path_join(is_directory(first) ? first : first.substr(0, first.rfind('/') + 1), "loss.svg");
    write_file_atomic(out, draw(runs));
    std::printf("%s\n", out.c_str());
    return kExitDone;
}

}  // namespace

int main(int argc, char** argv) { return tool_main("plot", usage, argc, argv, plot_main); }
