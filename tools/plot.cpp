// plot.cpp -- build/plot OUT... [-o loss.svg]: a curve of one or more runs as a small SVG, drawn from their
// metrics.jsonl.
//
// A value of each step is smoothed (with one run its raw values stand faintly behind it), validations are dots.
#include "tools/picture.h"
#include "tools/tool.h"

namespace {

struct Wish {
    std::string out;                    // default: loss.svg beside the first run's metrics.jsonl
    std::string y, x = "step";
    bool log = false;
    double window = 0;                  // of the smoothing, in steps; 0: a hundredth of the run
};

Axis parse_axis(const std::string& text) {
    if (text == "step") return kSteps;
    if (text == "tokens") return kTokens;
    if (text == "time") return kSeconds;
    die(kExitUsage, "--x: got %s, want step, tokens or time", text.c_str());
}

std::string unit_of(const std::string& y) {
    if (y == "loss") return "loss (nats per token)";
    if (y == "bpb") return "validation loss (bits per byte)";
    if (y == "tok_s") return "tokens per second";
    if (y.ends_with("_ms")) return y.substr(0, y.size() - 3) + " (ms)";
    return y;
}

// Reads a run's log. kExitBadContent if the curve y is not in it.
void read_run(const std::string& y, RunLog* run) {
    run->read();
    const bool scored = y == "loss" && !run->curve("val").empty();
    if (scored || !smoothed(run->curve(y), 1).empty()) return;
    std::string names;
    for (const auto& [name, points] : run->curves) names += " " + name;
    die(kExitBadContent, "%s: no %s in it%s%s; want a run's folder or its metrics.jsonl", run->file.c_str(),
        y == "loss" ? "losses" : y.c_str(), names.empty() ? "" : ", only", names.c_str());
}

void add_run(const RunLog& run, const char* color, const Wish& wish, bool alone, Picture* picture) {
    const Points& raw = run.curve(wish.y);
    const Points dots = smoothed(wish.y == "loss" ? run.curve("val") : Points(), 1);    // without what is not finite
    const bool plain = wish.y == "lr" || wish.y == "bpb";
    const Points line = smoothed(raw, plain ? 1 : wish.window > 0 ? wish.window : double(raw.size()) / 100);
    // Several clouds of raw values hide each other.
    if (alone && !plain) picture->curves.push_back({raw, color, 1, 0.25, false});
    picture->curves.push_back({line, color, 1.8, 1, wish.y == "bpb"});
    picture->curves.push_back({dots, color, 0, 1, true});
    std::string name = run.name;
    if (!line.empty()) name += format(wish.y == "loss" ? "  train %.3f" : "  %.4g", line.back().y);
    if (!dots.empty()) name += format("  val %.3f", dots.back().y);
    picture->legend.push_back({name, color});
}

int run(const Words& paths, Wish wish) {
    Picture picture;
    picture.axis = parse_axis(wish.x);
    const Runs runs = runs_of(paths, [&](RunLog* run) { read_run(wish.y.empty() ? "loss" : wish.y, run); });
    const bool different = wish.y.empty() && !same_tokenizer(runs);
    if (wish.y.empty()) wish.y = different ? "bpb" : "loss";
    picture.title = wish.y == "loss" ? "Training and validation loss" : unit_of(wish.y);
    picture.unit = unit_of(wish.y) + (different ? ", since the runs have different tokenizers" : "");
    picture.log = wish.log;
    for (size_t i = 0; i < runs.size(); i++) add_run(runs[i], run_color(i), wish, runs.size() == 1, &picture);
    const std::string name = replaced(wish.y, '/', '_') + ".svg";
    write_output(wish.out.empty() ? path_join(runs[0].folder, name) : wish.out, picture.draw(true));
    return kExitDone;
}

}  // namespace

int main(int argc, char** argv) {
    Wish wish;
    const Tool tool = {"plot",
        "usage: plot OUT... [options]\n"
        "Draws the training and validation losses of runs (folders, or metrics.jsonl files) as an SVG; build/report\n"
        "makes a page of all curves.\n",
        {{"-o", "FILE", "default: loss.svg in the folder of the first; -: standard output", &wish.out},
         {"--y", "NAME", "another curve: bpb (the default for runs of different tokenizers), lr, grad_norm, tok_s, "
          "step_ms, compute_ms, ...", &wish.y},
         {"--x", "AXIS", "step, tokens or time, in which the run was on, without pauses before a resume", &wish.x},
         {"--log", "", "a logarithmic y axis", &wish.log},
         {"--smooth", "STEPS", "the average is over about so many; without it over a hundredth of the run",
          &wish.window, "", kPositive}}};
    return tool_main(tool, argc, argv, [&](const Words& paths) { return run(paths, wish); });
}
