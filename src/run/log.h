// log.h -- writes the console and OUT/metrics.jsonl, which users and programs read. Only rank 0 has a Log.
//
// metrics.jsonl only grows, and each line is written at once. A "resume" event at step n makes these lines above it
// invalid: all events of steps after n, and the "train" and "warn" events of step n. A failed write does not end a run:
// lines wait in memory (up to 4 MiB), and console output that nobody reads is lost.
#pragma once
#include <string>
#include "src/base/json.h"

double unix_seconds();                          // seconds since 1970: the clock of the events' "time"

struct Log {
    // Opens OUT/metrics.jsonl, which it empties unless `resumed`. On a resume it cuts off an incomplete last line, and
    // appends. Throws kExitWrite. out_dir "": the log writes on the console only.
    Log(const std::string& out_dir, bool resumed);
    ~Log();
    Log(const Log&) = delete;
    void text(const char* format, ...) __attribute__((format(printf, 2, 3)));      // prints a line on the console
    void piece(const std::string& text);        // prints a part of a line
    void event(const JsonLine& line);           // adds "time" to the line and writes it; its first key is "event"
    void sync();                                // fdatasync of metrics.jsonl; any thread may call it

  private:
    void add(const std::string& line);
    void follow();                              // opens the path again if the file was moved or deleted; only warns
    int fd = -1;                                // metrics.jsonl; -1: none
    std::string path, pending;                  // pending: lines that could not be written yet
    int file_error = 0, console_error = 0;      // errno of the last write
    bool lost = false;                          // the path could not be opened again; a warning said so
};
