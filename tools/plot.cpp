// plot.cpp -- build/plot OUT... [-o loss.svg]: a curve of one or more runs as a small SVG, drawn from their
// metrics.jsonl.
//
// A value of each step is smoothed (with one run its raw values stand faintly behind it), validations are dots.
#include "tools/picture.h"
#include "tools/tool.h"

namespace {

const char* const usage =
    "usage: plot OUT... [-o loss.svg] [--y loss] [--x step|tokens|time] [--log] [--smooth STEPS]\n"
    "Draws the training and validation losses of runs (folders, or metrics.jsonl files) as an SVG; without -o as\n"
    "loss.svg in the folder of the first. build/report makes a page of all curves.\n"
    "  --y NAME   another curve, and NAME.svg: bpb (validation, in bits per byte; the default for runs of different\n"
    "             tokenizers) or a number of the train events: lr, grad_norm, tok_s, step_ms, compute_ms, ...\n"
    "  --x time   the time in which the run was on, without pauses before a resume\n"
    "  --log      a logarithmic y axis\n"
    "  --smooth   the average is over about so many steps; without it over a hundredth of the run\n";

struct Wish {
    std::vector<std::string> paths;
    std::string out;                    // default: loss.svg beside the first run's metrics.jsonl
    std::string y;
    Axis x = kSteps;
    bool log = false;
    double window = 0;                  // of the smoothing, in steps; 0: a hundredth of the run
};

Axis parse_axis(const std::string& text) {
    if (text == "step") return kSteps;
    if (text == "tokens") return kTokens;
    if (text == "time") return kSeconds;
    die(kExitUsage, "--x: got %s, want step, tokens or time", text.c_str());
}

Wish parse_wish(int argc, char** argv) {
    Wish wish;
    for (int i = 1; i < argc; i++) {
        const std::string arg = argv[i];
        if (arg == "--log") {
            wish.log = true;
        } else if (arg == "-o" || arg == "--smooth" || arg == "--x" || arg == "--y") {
            if (i + 1 == argc) die(kExitUsage, "%s: got no value; e.g. plot runs/a -o loss.svg", arg.c_str());
            const std::string value = argv[++i];
            if (arg == "-o") wish.out = value;
            if (arg == "--y") wish.y = value;
            if (arg == "--x") wish.x = parse_axis(value);
            if (arg == "--smooth" && !(parse_whole(value, &wish.window) && wish.window > 0 && wish.window < 1e9))
                die(kExitUsage, "--smooth: got %s, want a number of steps > 0", value.c_str());
        } else if (arg.size() > 1 && arg[0] == '-') {
            die(kExitUsage, "unknown option %s; want plot OUT... -o loss.svg", arg.c_str());
        } else {
            wish.paths.push_back(arg);
        }
    }
    if (wish.paths.empty()) die(kExitUsage, "got no run, want plot OUT... -o loss.svg");
    return wish;
}

std::string unit_of(const std::string& y) {
    if (y == "loss") return "loss (nats per token)";
    if (y == "bpb") return "validation loss (bits per byte)";
    if (y == "tok_s") return "tokens per second";
    if (y.ends_with("_ms")) return y.substr(0, y.size() - 3) + " (ms)";
    return y;
}

void add_run(const RunLog& run, const char* color, const Wish& wish, bool alone, Picture* picture) {
    const Points& raw = run.curve(wish.y);
    const Points dots = smoothed(wish.y == "loss" ? run.curve("val") : Points(), 1);    // without what is not finite
    const bool plain = wish.y == "lr" || wish.y == "bpb";
    const Points line = smoothed(raw, plain ? 1 : wish.window > 0 ? wish.window : double(raw.size()) / 100);
    if (line.empty() && dots.empty()) {
        std::string names;
        for (const auto& [name, points] : run.curves) names += " " + name;
        die(kExitBadContent, "%s: no %s in it%s%s; want a run's folder or its metrics.jsonl", run.file.c_str(),
            wish.y == "loss" ? "losses" : wish.y.c_str(), names.empty() ? "" : ", only", names.c_str());
    }
    // Several clouds of raw values hide each other.
    if (alone && !plain) picture->curves.push_back({raw, color, 1, 0.25, false});
    picture->curves.push_back({line, color, 1.8, 1, wish.y == "bpb"});
    picture->curves.push_back({dots, color, 0, 1, true});
    std::string name = run.name;
    if (!line.empty()) name += format(wish.y == "loss" ? "  train %.3f" : "  %.4g", line.back().y);
    if (!dots.empty()) name += format("  val %.3f", dots.back().y);
    picture->legend.push_back({name, color});
}

int plot_main(int argc, char** argv) {
    Wish wish = parse_wish(argc, argv);
    std::vector<RunLog> runs;
    for (const std::string& path : wish.paths) {
        runs.emplace_back(path);
        runs.back().read();
    }
    Picture picture;
    const bool different = wish.y.empty() && !same_tokenizer(runs);
    if (wish.y.empty()) wish.y = different ? "bpb" : "loss";
    picture.title = wish.y == "loss" ? "Training and validation loss" : unit_of(wish.y);
    picture.unit = unit_of(wish.y) + (different ? ", since the runs have different tokenizers" : "");
    picture.axis = wish.x;
    picture.log = wish.log;
    for (size_t i = 0; i < runs.size(); i++) add_run(runs[i], run_color(i), wish, runs.size() == 1, &picture);
    if (wish.out.empty()) wish.out = path_join(runs[0].folder, wish.y + ".svg");
    write_file_atomic(wish.out, picture.draw(true));
    remove_temporaries(wish.out);
    std::printf("%s\n", wish.out.c_str());
    return kExitDone;
}

}  // namespace

int main(int argc, char** argv) { return tool_main("plot", usage, argc, argv, plot_main); }
