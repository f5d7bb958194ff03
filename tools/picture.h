// picture.h -- curves as an SVG, for plot and for a report that runs no script.
//
// The picture is transparent, and its colours are readable on light and on dark pages.
#pragma once
#include "tools/curves.h"

// Escapes a text of any bytes for XML and HTML.
inline std::string markup(const std::string& text) {
    std::string out;
    for (const char c : escape_control(text, "\n\t")) {
        switch (c) {
            case '<': out += "&lt;"; break;
            case '>': out += "&gt;"; break;
            case '&': out += "&amp;"; break;
            case '"': out += "&quot;"; break;
            case '\'': out += "&#39;"; break;
            default: out += c;
        }
    }
    return out;
}

// 1234 -> "1.23k"
inline std::string short_number(double x) {
    const char* const units[] = {"", "k", "M", "B", "T"};
    size_t u = 0;
    while (u < 4 && std::fabs(x) >= 999.5) x /= 1000, u++;
    return format("%.3g%s", x, units[u]);
}

struct TimeUnit {
    double seconds;
    const char* name;
};
inline TimeUnit time_unit(double seconds) {
    if (seconds < 180) return {1, "seconds"};
    if (seconds < 3 * 3600) return {60, "minutes"};
    if (seconds < 4 * 86400) return {3600, "hours"};
    return {86400, "days"};
}

struct Picture {
    struct Curve {
        Points points;
        const char* color;
        double width, opacity;                  // of the line; width 0: no line
        bool dots;
    };
    struct Name {
        std::string text;
        const char* color;
    };
    std::string title, unit;
    Axis axis = kSteps;
    bool log = false;
    double width = 720, height = 400;           // pixels
    std::vector<Curve> curves;
    std::vector<Name> legend;

    // Returns the SVG. alone: for a file of its own, not for a page. kExitBadContent if nothing can be drawn.
    std::string draw(bool alone) {
        set_ranges();
        svg = format("<svg %sviewBox=\"0 0 %g %g\" width=\"%g\" height=\"%g\" role=\"img\" "
                     "font-family=\"system-ui, sans-serif\" font-size=\"12\">\n<title>%s</title>\n",
                     alone ? "xmlns=\"http://www.w3.org/2000/svg\" " : "", width, height, width, height,
                     markup(title).c_str());
        draw_marks();
        for (const Curve& curve : curves) draw_curve(curve);
        for (size_t i = 0; i < legend.size(); i++) {    // top right, which is empty when losses fall
            const double at = kTop + 8 + 18 * double(i);
            label(width - kRight - 18, at + 4, "end", legend[i].text);
            circle(width - kRight - 8, at, 4, legend[i].color);
        }
        return svg + "</svg>\n";
    }

  private:
    static constexpr double kLeft = 56, kRight = 26, kTop = 34, kBottom = 44;
    static constexpr size_t kBins = 400;        // of a line; more points only make the file larger
    static constexpr const char* kGrey = "#7d8590";
    Range xs, ys;
    std::string svg;

    double scaled(double y) const { return log ? std::log10(y) : y; }
    double x_of(const Place& at) const {
        return kLeft + (at[axis] - xs.lo) / (xs.hi - xs.lo) * (width - kLeft - kRight);
    }
    double y_of(double y) const {               // a spike is drawn at the edge
        const double part = (scaled(ys.hi) - scaled(y)) / (scaled(ys.hi) - scaled(ys.lo));
        return kTop + std::clamp(part, 0.0, 1.0) * (height - kTop - kBottom);
    }
    bool drawn(double y) const { return std::isfinite(y) && (!log || y > 0); }

    void set_ranges() {
        for (const Curve& curve : curves) {
            std::vector<double> values;
            for (const auto& [at, y] : curve.points) {
                if (!drawn(y)) continue;
                xs.add(at[axis]);
                values.push_back(scaled(y));
            }
            ys.add(range_without_spikes(values));
        }
        if (!(xs.lo <= xs.hi)) die(kExitBadContent, "%s: no value to draw", title.c_str());
        if (!(ys.hi - ys.lo < 1e30 && xs.hi < 1e15))
            die(kExitBadContent, "%s: values are too large to draw", title.c_str());
        const double margin = std::max(0.03 * (ys.hi - ys.lo), 1e-3 * std::max(log ? 1.0 : 1e-9, std::fabs(ys.hi)));
        ys.lo -= margin;
        ys.hi += margin;
        if (log) ys = {std::pow(10, ys.lo), std::pow(10, ys.hi)};
        if (xs.hi <= xs.lo) xs.hi = xs.lo + 1;
    }
    // The distance between marks so that there are about `count`: 1, 2 or 5 times a power of ten.
    static double mark_distance(double range, int count) {
        const double rough = range / count, power = std::pow(10, std::floor(std::log10(rough)));
        for (const double m : {1.0, 2.0, 5.0})
            if (rough <= m * power) return m * power;
        return 10 * power;
    }
    // The multiples of `distance` from lo to hi.
    static std::vector<double> multiples(double lo, double hi, double distance) {
        std::vector<double> out;
        const double first = std::ceil(lo / distance);
        while (out.size() < 50 && (first + double(out.size())) * distance <= hi)
            out.push_back((first + double(out.size())) * distance);
        return out;
    }
    void label(double x, double y, const char* anchor, const std::string& text) {
        svg += format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"%s\">%s</text>\n", x, y, anchor, kGrey,
                      markup(text).c_str());
    }
    void circle(double x, double y, double r, const char* color) {
        svg += format("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%g\" fill=\"%s\"/>\n", x, y, r, color);
    }
    void draw_y_mark(double y, const std::string& text) {
        svg += format("<line x1=\"%g\" x2=\"%g\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-opacity=\"0.3\"/>\n",
                      kLeft, width - kRight, y_of(y), y_of(y), kGrey);
        label(kLeft - 8, y_of(y) + 4, "end", text);
    }
    void draw_marks() {
        if (log && ys.hi > 5 * ys.lo) {
            const bool all = ys.hi < 1e4 * ys.lo;
            for (double power = std::pow(10, std::floor(std::log10(ys.lo))); power < ys.hi; power *= 10)
                for (const double y : {power, 2 * power, 5 * power})
                    if (y >= ys.lo && y <= ys.hi && (all || y == power)) draw_y_mark(y, short_number(y));
        } else {
            const double dy = mark_distance(ys.hi - ys.lo, 6);
            const int decimals = std::max(int(std::ceil(-std::log10(dy) - 1e-9)), 0);
            for (const double y : multiples(ys.lo, ys.hi, dy))
                draw_y_mark(y, decimals > 3 ? format("%.3g", y)
                               : ys.hi < 10000 ? format("%.*f", decimals, y) : short_number(y));
        }
        const TimeUnit time = time_unit(xs.hi);
        const double scale = axis == kSeconds ? time.seconds : 1;
        const double dx = mark_distance((xs.hi - xs.lo) / scale, 8) * scale;
        for (const double x : multiples(xs.lo, xs.hi, dx)) {
            if (axis == kSteps && x != std::floor(x)) continue;
            const std::string text = axis == kSteps ? with_commas(uint64_t(x))
                                     : axis == kTokens ? short_number(x) : format("%g", x / scale);
            label(x_of({x, x, x}), height - kBottom + 18, "middle", text);
        }
        label((kLeft + width - kRight) / 2, height - 8, "middle",
              axis == kSteps ? "step" : axis == kTokens ? "tokens" : time.name);
        label(8, kTop - 16, "start", unit);
    }
    void draw_curve(const Curve& curve) {
        Points points;
        for (const Point& p : thinned(curve.points, kBins))
            if (drawn(p.y)) points.push_back(p);
        if (curve.width > 0) {
            svg += format("<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"%g\" stroke-opacity=\"%g\" "
                          "stroke-linejoin=\"round\" points=\"", curve.color, curve.width, curve.opacity);
            for (const Point& p : points) svg += format("%.1f,%.1f ", x_of(p.at), y_of(p.y));
            svg += "\"/>\n";
        }
        if (!curve.dots) return;
        for (const Point& p : points) circle(x_of(p.at), y_of(p.y), 3, curve.color);
    }
};
