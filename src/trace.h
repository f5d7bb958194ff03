// trace.h -- the timeline of a run in Chrome's trace format: open it in chrome://tracing or ui.perfetto.dev.
// Source of the format: "Trace Event Format", Google, 2016 (complete events, "ph":"X", times in microseconds).
#pragma once
#include <cstdio>
#include <string>

struct Trace {
    // One file per rank: PATH for rank 0, PATH.rankN for the others. An Error (74) if it cannot be written.
    Trace(const std::string& path, int rank);
    ~Trace();
    // One span of a track ("compute", "communication", "host"). begin: now_seconds() scale.
    void span(const char* track, const std::string& name, double begin, double seconds);
    void flush();
  private:
    std::FILE* file;
    std::string path;
    double start;
    int rank;
    bool first = true;
};
