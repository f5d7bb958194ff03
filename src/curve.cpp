// curve.cpp -- the losses of a run: read back from metrics.jsonl, smoothed, drawn in a terminal.
#include <algorithm>
#include <cmath>
#include <utility>
#include "common.h"
#include "file.h"
#include "log.h"

// Drops the points with this or a later step: the run has gone back there.
static void drop_losses(LossPoints* points, int64_t step) {
    while (!points->empty() && points->back().first >= step) points->pop_back();
}

Metrics read_metrics(const std::string& path, double since) {
    Metrics metrics;
    std::vector<std::pair<int64_t, double>> steps;       // that count so far, and their seconds
    const std::string text = read_file(path);
    std::string_view rest = text;
    rest = rest.substr(0, rest.rfind('\n') + 1);          // npos + 1 is 0; what follows is being written
    while (!rest.empty()) {
        try {
            const Json line = parse_json(next_word(&rest, '\n'), path.c_str());
            const std::string event = line.get_string("event", path.c_str());
            const uint64_t number = line.get_u64("step", path.c_str());
            if (number > INT64_MAX) continue;
            const int64_t step = int64_t(number);
            const bool train = event == "train", resume = event == "resume";
            if (train || resume) drop_losses(&metrics.train, step);
            if (event == "val" || resume) drop_losses(&metrics.val, step);
            double loss = NAN;                           // null: the run had a NaN here
            line.find("loss").as_double(&loss);
            if (train || event == "val") (train ? metrics.train : metrics.val).push_back({step, loss});

            if (line.get_double("time", path.c_str()) < since) continue;
            if (event == "ckpt") metrics.saving += line.get_double("stall_ms", path.c_str()) / 1e3;
            for (; (train || resume) && !steps.empty() && steps.back().first >= step; steps.pop_back()) metrics.again += steps.back().second;
            if (train) steps.push_back({step, line.get_double("step_ms", path.c_str()) / 1e3});
        } catch (const Error&) {}                        // a torn or foreign line says nothing
    }
    for (const auto& [step, seconds] : steps) metrics.trained += seconds;
    return metrics;
}

LossPoints smooth_losses(const LossPoints& points, double window) {
    LossPoints out;
    const double beta = window > 1 ? 1 - 1 / window : 0;
    double mean = 0, weight = 0;                         // weight: of the losses seen so far, near 1 in the end
    for (const auto& [step, loss] : points) {
        if (!std::isfinite(loss)) continue;
        mean = beta * mean + (1 - beta) * loss;
        weight = beta * weight + (1 - beta);
        out.push_back({step, mean / weight});
    }
    return out;
}

namespace {

// The value at step x on the straight lines between points; x within their steps. *at: index that only grows from call to call.
double interpolate(const LossPoints& points, double x, size_t* at) {
    while (*at + 1 < points.size() && double(points[*at + 1].first) < x) ++*at;
    if (*at + 1 >= points.size()) return points[*at].second;
    const double x0 = double(points[*at].first), x1 = double(points[*at + 1].first);
    const double u = std::clamp((x - x0) / (x1 - x0), 0.0, 1.0);
    return points[*at].second + u * (points[*at + 1].second - points[*at].second);
}

std::string axis_number(double x, double range) {
    if (std::fabs(x) >= 1e5) return format("%.2e", x);
    return format("%.*f", range < 0.01 ? 5 : range < 0.5 ? 3 : 2, x);
}

std::string pad_left(const std::string& text, size_t width) {
    return text.size() >= width ? text : std::string(width - text.size(), ' ') + text;
}

// U+2800 + bits: bits 0 1 2 6 are the left dots from the top, 3 4 5 7 the right ones.
std::string braille(unsigned bits) { return {char(0xE2), char(0xA0 | bits >> 6), char(0x80 | (bits & 63))}; }
const unsigned dot_bit[4][2] = {{1, 8}, {2, 16}, {4, 32}, {64, 128}};

}  // namespace

std::string draw_curve(const LossPoints& train, const LossPoints& val, int width, int height) {
    width = std::clamp(width, 1, 500);
    height = std::clamp(height, 1, 200);
    const LossPoints line = smooth_losses(train, double(train.size()) / 100), dots = smooth_losses(val, 1);
    if (line.empty() && dots.empty()) return "no losses to draw\n";

    double lo = INFINITY, hi = -INFINITY, first = INFINITY, last = -INFINITY;
    for (const LossPoints* points : {&line, &dots})
        for (const auto& [step, loss] : *points) {
            lo = std::min(lo, loss), hi = std::max(hi, loss);
            first = std::min(first, double(step)), last = std::max(last, double(step));
        }
    const double least = std::max(1e-6, 1e-3 * std::fabs(hi));      // a constant loss lies in the middle
    if (hi - lo < least) lo -= least, hi += least;
    if (last <= first) last = first + 1;

    const int W = 2 * width, H = 4 * height;                        // in dots
    std::vector<unsigned> cells(size_t(width) * size_t(height));
    std::vector<bool> is_val(cells.size());
    const auto dot_x = [&](double step) { return int(std::lround((step - first) / (last - first) * (W - 1))); };
    const auto dot_y = [&](double loss) {                           // halves: hi - lo may overflow
        return std::clamp(int(std::lround((hi / 2 - loss / 2) / (hi / 2 - lo / 2) * (H - 1))), 0, H - 1);
    };

    if (!line.empty()) {
        size_t at = 0;
        int previous = -1;
        for (int x = dot_x(double(line.front().first)); x <= dot_x(double(line.back().first)); x++) {
            const int y = dot_y(interpolate(line, first + (last - first) * x / (W - 1), &at));
            const int from = previous < 0 ? y : previous < y ? previous + 1 : previous > y ? previous - 1 : y;
            for (int k = std::min(from, y); k <= std::max(from, y); k++)    // from where the column before ended
                cells[size_t(k / 4 * width + x / 2)] |= dot_bit[k % 4][x % 2];
            previous = y;
        }
    }
    for (const auto& [step, loss] : dots) is_val[size_t(dot_y(loss) / 4 * width + dot_x(double(step)) / 2)] = true;

    const std::string top = axis_number(hi, hi - lo), bottom = axis_number(lo, hi - lo);
    const size_t margin = std::max(top.size(), bottom.size());
    std::string out = std::string(margin + 2, ' ') + "loss";
    out += line.empty() ? "" : "   train " + braille(0x12) + braille(0x12);
    out += dots.empty() ? "\n" : "   val o\n";
    for (int row = 0; row < height; row++) {
        out += pad_left(row == 0 ? top : row == height - 1 ? bottom : "", margin) + " \u2502";
        for (int column = 0; column < width; column++) {
            const size_t cell = size_t(row * width + column);
            out += is_val[cell] ? "o" : cells[cell] ? braille(cells[cell]) : " ";
        }
        while (out.back() == ' ') out.pop_back();
        out += "\n";
    }
    out += std::string(margin + 1, ' ') + "\u2514";
    for (int column = 0; column < width; column++) out += "\u2500";
    const std::string left = format("%.0f", first), right = format("step %.0f", last);
    out += "\n" + std::string(margin + 2, ' ');
    if (int(left.size() + right.size()) < width) out += left + pad_left(right, size_t(width) - left.size());
    else out += left + " to " + right;
    return out + "\n";
}
