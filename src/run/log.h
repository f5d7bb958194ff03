// log.h -- what users and programs read: the console, OUT/metrics.jsonl. Only rank 0 has a Log.
//
// metrics.jsonl is append-only and flushed per line. A "resume" event at step n makes lines above it invalid: all of
// steps after n, and the "train" and "warn" events of step n. No failed write ends a run: lines wait in memory, and
// console output that nobody reads is lost.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>
#include "src/base/json.h"

using LossPoints = std::vector<std::pair<int64_t, double>>;         // (step, loss) in order of step
// The losses of metrics.jsonl, without lines that a resume made invalid. Skips lines that are no events. Throws
// kExitNoInput.
struct Metrics {
    LossPoints train, val;
    double trained = 0;                         // seconds of valid steps, logged from unix time `since` on
};
Metrics read_metrics(const std::string& path, double since = 0);
double unix_seconds();                          // the clock of the events' "time"

struct Log {
    // Opens OUT/metrics.jsonl: a new file, or on a resume the old one, to append to it after an incomplete last line is
    // cut off. Throws kExitWrite. out_dir "": console only.
    Log(const std::string& out_dir, bool resumed);
    ~Log();
    Log(const Log&) = delete;
    void text(const char* format, ...) __attribute__((format(printf, 2, 3)));      // prints a line on the console
    void piece(const std::string& text);        // prints a part of a line
    void event(const JsonLine& line);           // adds "time" and writes it; its first key is "event"
    void sync();                                // puts metrics.jsonl on disk; also from another thread

  private:
    void add(const std::string& line);
    void follow();                              // opens a new file if this one was rotated or deleted; errors only warn
    int fd = -1;                                // metrics.jsonl; -1: none
    std::string path, pending;                  // pending: lines that could not be written yet
    int file_error = 0, console_error = 0;      // errno of the last write
    bool lost = false;                          // the file's name is taken; a warning said so
};
