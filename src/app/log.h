// log.h -- what users and programs read: the console, OUT/metrics.jsonl. Only rank 0 has a Log.
//
// metrics.jsonl is append-only and flushed per line; after a "resume" event readers drop earlier lines of later steps,
// and "train" and "warn" of the same. No failed write ends a run: lines wait in memory, unread console output is lost.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>
#include "src/base/json.h"

using LossPoints = std::vector<std::pair<int64_t, double>>;         // (step, loss) in order of step
// What metrics.jsonl says, without what resumes took back. Skips lines that are no events. Throws kExitNoInput.
struct Metrics {
    LossPoints train, val;
    double trained = 0;                         // seconds of these steps, from unix time `since` on
};
Metrics read_metrics(const std::string& path, double since = 0);
double unix_seconds();                          // the clock in "time"

struct Log {
    // Opens OUT/metrics.jsonl: fresh, or on a resume for appending, after cutting what a crash left of a last line.
    // Throws kExitWrite. out_dir "": console only.
    Log(const std::string& out_dir, bool resumed);
    ~Log();
    Log(const Log&) = delete;
    void text(const char* format, ...) __attribute__((format(printf, 2, 3)));      // a line of the console
    void piece(const std::string& text);        // a part of one
    void event(const JsonLine& line);           // adds "time" and writes it; its first key is "event"
    void sync();                                // puts metrics.jsonl on disk; also from another thread

  private:
    void add(const std::string& line);
    void follow();                              // opens a new file if this one was rotated or deleted; only warns
    int fd = -1;                                // metrics.jsonl; -1: none
    std::string path, pending;                  // pending: what the disk did not take yet
    int file_error = 0, console_error = 0;      // errno of the last write
    bool lost = false;                          // another thing has the file's name, and was named
};
