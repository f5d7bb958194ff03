// trace.cpp -- writes the timeline; see trace.h. The file is whole JSON after every flush but for its last bracket, which readers forgive.
#include "trace.h"
#include "common.h"
#include "json.h"

Trace::Trace(const std::string& path_, int rank_) : path(rank_ == 0 ? path_ : format("%s.rank%d", path_.c_str(), rank_)), start(now_seconds()), rank(rank_) {
    file = std::fopen(path.c_str(), "w");
    if (!file) die(kExitWrite, "--trace: %s: cannot be written: %m; give a file in a folder that exists", path.c_str());
    std::fputs("[", file);
}

Trace::~Trace() {
    std::fputs("\n]\n", file);
    std::fclose(file);
}

void Trace::span(const char* track, const std::string& name, double begin, double seconds) {
    JsonLine line;
    line.add("name", name).add("ph", "X").add("pid", rank).add("tid", track).add("ts", (begin - start) * 1e6).add("dur", seconds * 1e6);
    std::fprintf(file, "%s\n%s", first ? "" : ",", line.text().c_str());
    first = false;
}

void Trace::flush() {
    if (std::fflush(file) != 0) die(kExitWrite, "--trace: %s: %m; make room, or leave --trace out", path.c_str());
}
