// log.h -- what the user sees and what programs read: the console, OUT/metrics.jsonl, the loss curve at the end.
//
// Only rank 0 has a Log. On a terminal the last line is rewritten in place; otherwise plain lines. metrics.jsonl is append-only and
// flushed per line; after a "resume" event readers drop earlier lines with the same or a later step. A disk that is full or a
// closed terminal never ends a run: one warning, and lines of metrics.jsonl wait in memory for the next try. Nor does a console that
// nobody reads: its lines are lost until somebody does.
#pragma once
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>
#include "gpu_health.h"
#include "json.h"

struct TrainLine {
    int64_t step, steps;
    double loss, lr, grad_norm;
    double step_ms, tok_s;
    int64_t tokens;                             // cumulative
    double mfu;                                 // a fraction of the peak; NaN = unknown
    double gflops;                              // per second, from the model's flops; NaN or 0 = not shown
    double compute_ms, comm_ms, exposed_ms;     // exposed: from the end of the computation to that of the reduction, waits for slower ranks with it
    double compute_ms_min, compute_ms_max;      // over ranks
    int slowest_rank, ranks;
    GpuHealth gpu;                              // of the slowest rank; sm_mhz 0 = unknown
};

using LossPoints = std::vector<std::pair<int64_t, double>>;                    // (step, loss) in order of step
// What metrics.jsonl says of a run, resumes honoured: its losses, and in seconds where the time went from `since` on (of the clock in
// "time"): steps that count, steps that a resume did again, training standing still for checkpoints. Lines that are no events are skipped.
// Errors: 66.
struct Metrics { LossPoints train, val; double trained = 0, again = 0, saving = 0; };
Metrics read_metrics(const std::string& path, double since = 0);

struct Log {
    // Opens OUT/metrics.jsonl: fresh, or on a resume for appending, after what a crash left of a last line is cut. Error 74.
    // out_dir "": console only. log_every: steps between plain lines; 0 = the first and the last only.
    Log(const std::string& out_dir, bool resumed, int64_t log_every);
    ~Log();
    void text(const char* format, ...) __attribute__((format(printf, 2, 3)));   // a line of the console
    void event(const JsonLine& line);                                          // a line of metrics.jsonl; the caller names "event"
    void train(const TrainLine& line);                                         // both; the console at its own pace
    void val(int64_t step, double loss, double bpb, const std::string& extra);   // bpb NaN = unknown
    void sample_begin(int64_t step, const std::string& prompt);
    void sample_text(const std::string& text);                                  // streamed; may cut UTF-8 characters
    void sample_end(int64_t step, const std::string& prompt, const std::string& text);
    Metrics metrics(double since) const;        // what metrics.jsonl says (read_metrics), nothing where it cannot be read
    void curve(const Metrics& metrics);         // its losses, drawn with braille dots
    void sync();                                // metrics.jsonl on disk: before each checkpoint's commit, by its thread
    double best_val = 1e300;                    // of this run; on a resume of the part of it that counts
  private:
    struct Impl; std::unique_ptr<Impl> impl;
};

// One line of the console for a step, without line end. eta: seconds left, NaN = not known yet. columns: what there is room for; fields
// that matter less are left out until the line fits (0: all are there).
std::string train_line_text(const TrainLine& line, double eta, int columns = 0);

// ---- curve.cpp

// Exponential moving average over about `window` points, debiased, so that the first value is the first loss. Values that are
// not finite are left out.
LossPoints smooth_losses(const LossPoints& points, double window);
// Text of a loss curve, width x height characters of 2 x 4 dots, and its axes. Points must be in order of step.
std::string draw_curve(const LossPoints& train, const LossPoints& val, int width, int height);
