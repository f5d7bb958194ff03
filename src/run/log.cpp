// log.cpp -- see run.h.
#include "src/run/run.h"
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>
#include "src/base/common.h"
#include "src/base/file.h"
#include "src/base/json.h"

// How much can wait for the disk; further lines are lost.
constexpr size_t kPendingBytes = 4 << 20;

// Writes *text and removes from it what was written. Returns 0 or errno; EAGAIN if fd took nothing
// for `patience` ms.
static int write_all(int fd, std::string* text, int patience) {
    while (!text->empty()) {
        pollfd wait = {fd, POLLOUT, 0};
        const int ready = poll(&wait, 1, patience);
        if (ready == 0) return EAGAIN;
        const ssize_t n =
            ready > 0 ? ::write(fd, text->data(), std::min<size_t>(text->size(), PIPE_BUF)) : -1;
        if (n < 0 && errno != EINTR) return errno;
        text->erase(0, size_t(std::max<ssize_t>(n, 0)));
    }
    return 0;
}

double unix_seconds() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
}

Log::Log(const std::string& out_dir, bool resumed) {
    if (out_dir.empty()) return;
    path = path_join(out_dir, "metrics.jsonl");
    fd =
        open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | (resumed ? 0 : O_TRUNC), 0666);
    if (fd < 0) die(kExitWrite, "%s: %s", shown_path(path).c_str(), strerror(errno));
    if (!resumed) return;
    const std::string text = read_file(path);
    const size_t whole = text.rfind('\n') + 1;                  // npos + 1 is 0
    if (whole < text.size() && ftruncate(fd, off_t(whole)) != 0)
        die(kExitWrite, "%s: cannot cut a torn last line: %s", shown_path(path).c_str(),
            strerror(errno));
}

Log::~Log() {
    add("");
    if (fd >= 0) close(fd);
}

void Log::text(const char* format, ...) {
    va_list args;
    va_start(args, format);
    piece(vformat(format, args) + "\n");
    va_end(args);
}

void Log::piece(const std::string& text) {
    if (text.empty()) return;
    std::string left = escape_control(text, "\n\t");
    std::fflush(stdout);                    // output of printf comes first
    const int error = write_all(STDOUT_FILENO, &left, console_error ? 0 : 200);
    if (error && error != EAGAIN && error != console_error)     // EAGAIN: Ctrl-S, a pager
        warn("stdout: %s; the run goes on without it", strerror(error));
    console_error = error;
}

void Log::add(const std::string& line) {
    if (pending.size() < kPendingBytes) pending += line;
    const int error = fd >= 0 ? write_all(fd, &pending, 1000) : 0;
    if (error && error != file_error)
        warn("%s: %s; the run goes on, its lines wait in memory", shown_path(path).c_str(),
             strerror(error));
    file_error = error;
}

void Log::event(const JsonLine& line) {
    if (fd < 0) return;
    std::string text = line.text();
    text.insert(text.size() - 1, format(",\"time\":%.3f", unix_seconds()));
    add(text + "\n");
}

void Log::sync() {
    if (fd >= 0 && fdatasync(fd) != 0 && errno != EINVAL)       // EINVAL: a pipe, /dev/null
        warn("%s: %s", shown_path(path).c_str(), strerror(errno));
}
