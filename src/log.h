// log.h -- what the user sees and what programs read: the console, OUT/metrics.jsonl, the loss curve at the end.
//
// Only rank 0 has a Log. On a terminal the last line is rewritten in place; otherwise plain lines. metrics.jsonl is append-only and
// flushed per line; after a "resume" event readers drop earlier lines with the same or a later step.
#pragma once
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>
#include "json.h"

struct TrainLine {
    int64_t step, steps;
    double loss, lr, grad_norm;
    double step_ms, tok_s;
    int64_t tokens;                             // cumulative
    double mfu;                                 // NaN = unknown
    double gflops;                              // per second, from the model's flops
    double compute_ms, comm_ms, exposed_ms;     // exposed: step time minus step time without reduction
    double compute_ms_min, compute_ms_max;      // over ranks
    int slowest_rank, ranks;
};

struct Log {
    Log(const std::string& out_dir, bool resumed, int64_t log_every);
    ~Log();
    void text(const char* format, ...) __attribute__((format(printf, 2, 3)));   // a line of the console
    void event(const JsonLine& line);                                          // a line of metrics.jsonl; the caller names "event"
    void train(const TrainLine& line);                                         // both; the console at its own pace
    void val(int64_t step, double loss, double bpb, const std::string& extra);   // bpb NaN = unknown
    void sample_begin(int64_t step, const std::string& prompt);
    void sample_text(const std::string& text);                                  // streamed
    void sample_end(int64_t step, const std::string& prompt, const std::string& text);
    void curve() const;                         // the losses so far, drawn with braille dots
    void sync();                                // metrics.jsonl on disk: before each checkpoint's commit
    double best_val = 1e300;
  private:
    struct Impl; Impl* impl;
};
// Reads (step, loss) of train and val events, resumes honoured: for the curve after a resume and for tools.
struct Metrics { std::vector<std::pair<int64_t, double>> train, val; };
Metrics read_metrics(const std::string& path);
// Text of a loss curve, width x height characters of 2 x 4 dots. Points must be in order of step.
std::string draw_curve(const std::vector<std::pair<int64_t, double>>& train, const std::vector<std::pair<int64_t, double>>& val,
                       int width, int height);
