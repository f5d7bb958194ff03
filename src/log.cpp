// log.cpp -- lines for people on stdout, lines for programs in metrics.jsonl. Neither can end a run.
#include "log.h"
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "common.h"
#include "file.h"
#include "tokenizer.h"
#include "unicode.h"

namespace {

constexpr double kTerminalPause = 0.1, kPlainPause = 1;   // seconds between lines about steps
constexpr int kWarmSteps = 5;                             // not in the ETA: memory is touched first, the clock of the CPU rises
constexpr size_t kPendingBytes = 4 << 20;                 // of metrics that wait for a disk; what comes on top is lost

// Writes all of it and returns 0; else errno, and *text is what is left. EAGAIN: its reader, a pipe's or a terminal's, took nothing for
// `patience` ms.
int write_all(int fd, std::string* text, int patience) {
    size_t done = 0;
    int error = 0;
    while (done < text->size() && error == 0) {
        pollfd wait{fd, POLLOUT, 0};
        const int ready = poll(&wait, 1, patience);
        const ssize_t n = ready > 0 ? ::write(fd, text->data() + done, std::min(text->size() - done, size_t(PIPE_BUF))) : -1;
        if (n > 0) done += size_t(n);
        else if (ready == 0) error = EAGAIN;
        else if (n == 0 || errno != EINTR) error = n == 0 ? EIO : errno;
    }
    text->erase(0, done);
    return error;
}

// Cuts what follows the last line end: a crash or a full disk stopped the writer there.
void cut_torn_line(int fd, const std::string& path) {
    const MappedFile file = map_file(path);
    const size_t whole = file.text().rfind('\n') + 1;             // npos + 1 = 0
    if (whole < file.size && ftruncate(fd, off_t(whole)) != 0)
        die(kExitWrite, "%s: cannot cut a torn last line: %s", path.c_str(), strerror(errno));
}

// Three digits and a unit: 252k, 1.62M, 812.
std::string with_unit(double x, const char* gap) {
    if (!std::isfinite(x)) return "?";
    const char* const units[] = {"", "k", "M", "G", "T", "P"};
    int unit = 0;
    for (; x >= 999.5 && unit < 5; unit++) x /= 1000;
    return format("%.*f%s%s", unit == 0 || x >= 99.95 ? 0 : x >= 9.995 ? 1 : 2, x, gap, units[unit]);
}

std::string duration(double seconds) {
    if (!(seconds >= 0 && seconds < 1e9)) return "?";
    const long long s = llround(seconds), days = s / 86400, h = s / 3600 % 24, m = s / 60 % 60;
    if (days) return format("%lldd %lld:%02lld:%02lld", days, h, m, s % 60);
    return h ? format("%lld:%02lld:%02lld", h, m, s % 60) : format("%lld:%02lld", m, s % 60);
}

// Control characters as \xNN, those of Latin 1 (C2 80..9F) too; a line end and a tab stay. Bytes that belong to no character (a
// young model's samples are full of them) become U+FFFD, so that a log stays text.
std::string printable(std::string_view text) {
    std::string out;
    while (!text.empty()) {
        const Utf8Char c = decode_utf8(text);
        const bool control = (c.code < 0x20 && c.code != '\n' && c.code != '\t') || (c.code >= 0x7f && c.code < 0xA0);
        if (!c.valid) out += "\uFFFD";
        else if (control) out += format("\\x%02x", c.code);
        else out += text.substr(0, c.length);
        text.remove_prefix(c.length);
    }
    return out;
}

int terminal_columns() {
    winsize size{};
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

struct Log::Impl {
    int fd = -1;                        // metrics.jsonl; -1: none
    std::string path, pending;          // lines, or the rest of one, that the disk did not take
    std::atomic<bool> warned_file = false;
    bool console_lost = false, console_stuck = false;
    bool terminal = false, live = false;    // live: a line about a step stands on the terminal and may be rewritten
    int64_t log_every = 0;
    double last_line = -1e9;            // time of the last line about a step
    bool said_pace = false;
    int steps_seen = 0;                 // by this process, and when and where the ETA's clock was started
    int64_t mark_step = 0;
    double mark_time = 0;
    Utf8Stream sample;

    ~Impl() {
        flush();
        if (live) put("\n");            // the shell's prompt gets a line of its own
        if (fd >= 0 && close(fd) != 0) complain(errno);
    }
    void put(std::string text) {
        if (console_lost || text.empty()) return;
        std::fflush(stdout);            // what others printed comes first
        const int error = write_all(STDOUT_FILENO, &text, console_stuck ? 0 : 200);
        console_stuck = error == EAGAIN;                    // Ctrl-S, a pager: what does not fit is lost, the run does not wait for it
        if (error == 0 || console_stuck) return;
        console_lost = true;            // EPIPE, a full disk behind a redirection, a terminal that is gone
        warn("stdout: %s; the run goes on without it", strerror(error));
    }
    void put_line(const std::string& line) {
        put((live ? "\r\x1b[K" : "") + line + "\n");
        live = false;
    }
    void flush() {
        if (fd < 0) return;
        if (const int error = write_all(fd, &pending, 1000)) complain(error);
    }
    void complain(int error) {
        if (!warned_file.exchange(true)) warn("%s: %s; the run goes on, its lines wait in memory", path.c_str(), strerror(error));
    }
};

Log::Log(const std::string& out_dir, bool resumed, int64_t log_every) : impl(new Impl) {
    const char* term = std::getenv("TERM");
    const bool piped = std::getenv("OMPI_COMM_WORLD_SIZE");      // Open MPI gives rank 0 a terminal of its own and copies what it shows
    impl->terminal = isatty(STDOUT_FILENO) && !piped && term && std::strcmp(term, "dumb") != 0;
    impl->log_every = log_every;
    if (out_dir.empty()) return;
    impl->path = path_join(out_dir, "metrics.jsonl");
    impl->fd = open(impl->path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | (resumed ? 0 : O_TRUNC), 0666);
    if (impl->fd < 0) die(kExitWrite, "%s: %s", impl->path.c_str(), strerror(errno));
    if (resumed) cut_torn_line(impl->fd, impl->path);
}

Log::~Log() = default;

void Log::text(const char* format, ...) {
    va_list args;
    va_start(args, format);
    impl->put_line(printable(vformat(format, args)));
    va_end(args);
}

void Log::event(const JsonLine& line) {
    if (impl->fd < 0) return;
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    std::string text = line.text();
    text.insert(text.size() - 1, format(",\"time\":%lld.%03ld", (long long)now.tv_sec, now.tv_nsec / 1000000));
    if (impl->pending.size() < kPendingBytes) impl->pending += text + "\n";
    impl->flush();
}

void Log::sync() {
    if (impl->fd >= 0 && fdatasync(impl->fd) != 0 && errno != EINVAL) impl->complain(errno);   // EINVAL: a pipe, /dev/null
}

std::string train_line_text(const TrainLine& l, double eta, int columns) {
    struct Field { int matters; std::string text; };        // less is left out first
    const auto plain = [](double x) { return std::isnan(x) ? NAN : x; };   // x86's own has its sign set: printf's -nan
    std::vector<Field> fields = {
        {9, format("step %5lld/%lld", (long long)l.step, (long long)l.steps)}, {8, format("loss %.4f", plain(l.loss))}, {2, format("lr %.1e", l.lr)},
        {4, format("norm %.2f", plain(l.grad_norm))}, {3, format("%6.1f ms", l.step_ms)}, {6, format("%5s tok/s", with_unit(l.tok_s, "").c_str())}};
    if (std::isfinite(l.mfu)) fields.push_back({5, format("mfu %.1f%%", 100 * l.mfu)});
    else if (l.gflops > 0) fields.push_back({1, with_unit(1e9 * l.gflops, " ") + "FLOP/s"});
    fields.push_back({7, "eta " + duration(eta)});
    if (*l.gpu.throttle) fields.push_back({1, format("gpu %d of %d MHz: %s", l.gpu.sm_mhz, l.gpu.sm_mhz_max, l.gpu.throttle)});
    if (l.ranks > 1) fields.push_back({0, format("comm %.1f ms exposed %.1f | slowest rank %d", l.comm_ms, l.exposed_ms, l.slowest_rank)});
    for (;;) {
        std::string line;
        for (const Field& f : fields) line += (line.empty() ? "" : " | ") + f.text;
        if (columns == 0 || line.size() <= size_t(columns) || fields.size() == 1) return line;
        fields.erase(std::min_element(fields.begin(), fields.end(), [](const Field& x, const Field& y) { return x.matters < y.matters; }));
    }
}

void Log::train(const TrainLine& l) {
    // Times need no more digits than a float has.
    JsonLine json;
    json.add("event", "train").add("step", l.step).add("loss", l.loss).add("lr", l.lr).add("grad_norm", l.grad_norm)
        .add("step_ms", float(l.step_ms)).add("tok_s", float(l.tok_s)).add("tokens", l.tokens).add("mfu", float(l.mfu))
        .add("compute_ms", float(l.compute_ms)).add("comm_ms", float(l.comm_ms)).add("exposed_ms", float(l.exposed_ms));
    if (l.ranks > 1)
        json.add("compute_ms_min", float(l.compute_ms_min)).add("compute_ms_max", float(l.compute_ms_max))
            .add("slowest_rank", l.slowest_rank);
    if (l.gpu.sm_mhz > 0)
        json.add("sm_mhz", l.gpu.sm_mhz).add("watts", float(l.gpu.watts)).add("throttle", l.gpu.throttle);
    event(json);

    // The ETA counts evaluations and checkpoints: the wall clock over the steps since the mark. Before the mark: this step's time.
    const double now = now_seconds();
    const bool first = impl->steps_seen++ == 0, last = l.step + 1 >= l.steps;
    const double left = double(l.steps - 1 - l.step);
    double eta = first && left > 0 ? NAN : left * l.step_ms / 1000;
    if (impl->steps_seen == kWarmSteps) impl->mark_step = l.step, impl->mark_time = now;
    if (impl->steps_seen > kWarmSteps && l.step > impl->mark_step)
        eta = left * (now - impl->mark_time) / double(l.step - impl->mark_step);

    const double since = now - impl->last_line;
    if (impl->terminal) {
        if (!first && !last && since < kTerminalPause) return;
        const int columns = std::max(1, terminal_columns() - 1);        // a line that wraps cannot be rewritten
        std::string line = train_line_text(l, eta, columns);
        if (first || last) {
            impl->put_line(line);
        } else {
            line.resize(std::min(line.size(), size_t(columns)));
            impl->put("\r" + line + "\x1b[K");
            impl->live = true;
        }
    } else {
        const bool due = impl->log_every > 0 && l.step % impl->log_every == 0;
        if (!first && !last && !due) return;
        if (!first && !last && since < kPlainPause) {
            const std::string where = impl->fd < 0 ? "" : "; every step is in " + impl->path;
            if (!impl->said_pace) impl->put_line("(one line a second at most" + where + ")");
            impl->said_pace = true;
            return;
        }
        impl->put_line(train_line_text(l, eta));
    }
    impl->last_line = now;
}

void Log::val(int64_t step, double loss, double bpb, const std::string& extra) {
    event(JsonLine().add("event", "val").add("step", step).add("loss", loss).add("bpb", bpb));
    const bool best = loss < best_val;
    if (best) best_val = loss;
    std::string line = format("val  step %lld | loss %.4f", (long long)step, loss);
    if (std::isfinite(bpb)) line += format(" | %.4f bpb", bpb);
    if (best) line += " | best";
    if (!extra.empty()) line += " | " + extra;
    impl->put_line(printable(line));
}

void Log::sample_begin(int64_t step, const std::string& prompt) {
    impl->put_line(format("sample  step %lld", (long long)step));
    impl->sample = Utf8Stream();
    sample_text(prompt);
}

void Log::sample_text(const std::string& text) { impl->put(printable(impl->sample.push(text))); }

void Log::sample_end(int64_t step, const std::string& prompt, const std::string& text) {
    impl->put(printable(impl->sample.finish()) + "\n");
    event(JsonLine().add("event", "sample").add("step", step).add("prompt", prompt).add("text", text));
}

Metrics Log::metrics(double since) const try {
    return read_metrics(impl->path, since);
} catch (const Error&) {
    return {};
}

void Log::curve(const Metrics& metrics) {
    const int width = std::clamp((impl->terminal ? terminal_columns() : 80) - 10, 8, 70);
    std::string text = draw_curve(metrics.train, metrics.val, width, 10);
    text.pop_back();                    // put_line ends the last line
    impl->put_line(text);
}
