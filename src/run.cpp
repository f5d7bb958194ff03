// run.cpp -- the run folder, its lock, agreement between ranks, requests by signal.
#include "run.h"
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "checkpoint.h"
#include "common.h"
#include "file.h"

// ------------------------------------------------------------------------------------------------------- the run folder

namespace {

// Makes it, for two runs that are started in the same second.
std::string make_default_folder(const Options& options) {
    std::string data = options.data.empty() ? "stories" : base_name(options.data);
    if (const size_t dot = data.find('.'); dot != std::string::npos && dot > 0) data.resize(dot);
    for (char& c : data)
        if (!isalnum((unsigned char)c) && c != '-' && c != '_') c = '_';
    char when[32];
    const time_t now = time(nullptr);
    tm local;
    std::strftime(when, sizeof when, "%Y%m%d-%H%M%S", localtime_r(&now, &local));
    const std::string first = "runs/" + options.preset + "-" + data + "-" + when;
    std::string folder = first;
    make_directories("runs");
    for (int n = 2; mkdir(folder.c_str(), 0777) != 0 && errno == EEXIST; n++) folder = format("%s-%d", first.c_str(), n);
    return folder;
}

// The run in runs/ that wrote its log last: what a bare --resume means.
std::string newest_run() {
    std::string newest;
    timespec best = {};
    for (const std::string& name : is_directory("runs") ? list_directory("runs") : std::vector<std::string>()) {
        const std::string folder = path_join("runs", name);
        struct stat s;
        if (stat(path_join(folder, "metrics.jsonl").c_str(), &s) != 0) continue;
        if (newest.empty() || std::pair(s.st_mtim.tv_sec, s.st_mtim.tv_nsec) > std::pair(best.tv_sec, best.tv_nsec)) {
            newest = folder;
            best = s.st_mtim;
        }
    }
    return newest;
}

// One run per folder: the lock's file stays open, and the lock dies with the process, so nothing is left to clean.
void lock_folder(const std::string& folder) {
    const std::string path = path_join(folder, ".lock");
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);        // its pid must not go into another's file
    if (fd < 0) die(kExitWrite, "cannot lock the run folder: %s: %s", path.c_str(), strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        char who[64] = {};
        const ssize_t n = read(fd, who, sizeof who - 1);
        close(fd);
        die(kExitWrite, "the run folder is in use: %s: locked by process %.*s; wait for its end, or give another --out-dir", folder.c_str(), int(n > 0 ? n : 0), who);
    }
    const std::string pid = std::to_string(getpid());
    if (ftruncate(fd, 0) != 0 || pwrite(fd, pid.data(), pid.size(), 0) < 0) warn("%s: %s", path.c_str(), strerror(errno));
}

bool is_empty_run(const std::string& folder) {
    if (!is_directory(folder)) return true;
    for (const std::string& name : list_directory(folder))
        if (name != ".lock") return false;
    return true;
}

std::string without_slash(std::string path) {
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    return path;
}

// What rank 0 decides: folder and checkpoint. Returns the saved options of a resumed run.
std::string choose_folder(const Options& options, Run* run) {
    Run& c = *run;
    c.out_dir = without_slash(options.out_dir);
    const std::string resume = without_slash(options.resume);
    if (resume.empty()) return "";
    if (resume != "auto") {
        c.out_dir = run_of(resume);
        if (c.out_dir.empty()) die(kExitNoInput, "--resume: %s: not a run or checkpoint folder", resume.c_str());
        if (!options.out_dir.empty() && run_of(options.out_dir) != c.out_dir)
            die(kExitUsage, "--out-dir %s and --resume %s name two runs; leave --out-dir out", options.out_dir.c_str(), resume.c_str());
    } else {
        if (c.out_dir.empty()) c.out_dir = newest_run();
        if (c.out_dir.empty()) die(kExitNoInput, "--resume: no run in runs/; give --out-dir DIR or --resume DIR");
    }
    // Before the checkpoint is chosen: a run that still holds the folder may be about to save a newer one.
    c.locked = !options.dry_run && is_directory(c.out_dir);
    if (c.locked) lock_folder(c.out_dir);
    c.checkpoint = resume == "auto" || resume == c.out_dir ? find_checkpoint(c.out_dir) : resolve_model_folder(resume);
    if (const std::string latest = path_join(c.out_dir, "ckpt/latest"); c.checkpoint.empty() && file_exists(latest))
        die(kExitBadContent, "--resume: %s: no checkpoint is there, but the run has saved some; is their disk mounted? Without %s it starts again", c.out_dir.c_str(), latest.c_str());
    // A run that never saved starts again from its first step, with the options of its own config.json.
    const std::string config = path_join(c.out_dir, "config.json");
    std::string saved;
    if (file_exists(config) && (saved = read_file(config)).empty()) die(kExitBadContent, "--resume: %s: it is empty; it holds the run's options", config.c_str());
    if (saved.empty() && c.resumed()) die(kExitNoInput, "--resume: %s: missing; it holds the run's options", config.c_str());
    return saved;
}

// The run's config.json has no checksum: its sizes must be those of the weights before they decide how much is allocated.
void check_shape(const Options& o, const std::string& checkpoint, const std::string& config) {
    const HfConfig hf = read_hf_config(checkpoint);
    const struct { const char* name; int got, want; } sizes[] = {
        {"layers", o.layers, hf.layers}, {"heads", o.heads, hf.heads}, {"channels", o.channels, hf.channels}, {"seq_len", o.seq_len, hf.seq_len}};
    for (const auto& s : sizes)
        if (s.got != s.want) die(kExitBadContent, "%s: %s: got %d, want %d as in %s/config.json", config.c_str(), s.name, s.got, s.want, checkpoint.c_str());
}

std::string from_rank0(Comm* comm, const std::string& text) { return comm_gather_text(comm, text)[0]; }

}  // namespace

std::string run_of(const std::string& path) {
    const std::string folder = without_slash(path);
    if (file_exists(path_join(folder, "config.json")) && is_directory(path_join(folder, "ckpt"))) return folder;
    if (file_exists(path_join(folder, "metrics.jsonl"))) return folder;
    const std::string run = path_join(folder, "../..");          // OUT/ckpt/step_N
    if (!file_exists(path_join(folder, "state.json")) || !file_exists(path_join(run, "config.json"))) return "";
    const size_t slash = folder.rfind("/ckpt/");
    return slash == std::string::npos ? run : folder.substr(0, slash);
}

Run find_run(Options* options, Comm* comm) {
    Run run;
    std::string saved;
    if (comm->rank == 0) saved = choose_folder(*options, &run);
    for (std::string* text : {&saved, &run.checkpoint, &run.out_dir}) *text = from_rank0(comm, *text);
    const std::string config = path_join(run.out_dir, "config.json");
    if (!saved.empty()) options_merge_saved(options, saved, config);
    if (comm->rank == 0 && run.resumed()) check_shape(*options, run.checkpoint, config);
    return run;
}

void claim_run(Run* run, Options* options, Comm* comm) {
    if (comm->rank == 0 && !run->locked) {
        const bool fresh = !is_directory(run->out_dir);
        if (run->out_dir.empty()) run->out_dir = make_default_folder(*options);
        while (true) {                          // looks again under the lock: before, another run may have been writing
            run->overwrite = !is_empty_run(run->out_dir);
            if (run->overwrite && !options->force)
                die(kExitUsage, "--out-dir: %s: not empty; --resume goes on with the run in it, --force overwrites it", run->out_dir.c_str());
            if (run->overwrite && run_of(run->out_dir).empty())
                die(kExitUsage, "--force: %s: not a run's folder, so it is not overwritten; give another --out-dir", run->out_dir.c_str());
            if (run->locked) break;
            make_directories(run->out_dir);
            lock_folder(run->out_dir);
            run->locked = true;
            run->created = fresh;               // whoever does not get the lock removes nothing
            comm_at_end(comm, [refused = *run] { unclaim_run(refused); });
        }
    }
    options->out_dir = run->out_dir = from_rank0(comm, run->out_dir);
}

void unclaim_run(const Run& run) try {
    if (!run.created || !is_empty_run(run.out_dir)) return;
    unlink(path_join(run.out_dir, ".lock").c_str());
    rmdir(run.out_dir.c_str());
} catch (...) {}                // gone: the main and the watching thread may both be at it

void empty_run(const Run& run) {
    if (!run.overwrite) return;
    for (const char* name : {"ckpt", "metrics.jsonl", "config.json"})
        if (const std::string path = path_join(run.out_dir, name); file_exists(path)) remove_tree(path);
}

// -------------------------------------------------------------------------------------------------------- agreement

void check_agreement(Comm* comm, const Fields& fields) {
    std::string mine;
    for (const auto& [name, value] : fields) mine += name + "=" + escape_control(value) + "\n";
    const std::vector<std::string> all = comm_gather_text(comm, mine);
    for (size_t r = 1; r < all.size(); r++) {
        std::string_view want = all[0], got = all[r];
        while (got != want) {
            const std::string w(next_word(&want, '\n')), g(next_word(&got, '\n'));
            if (w != g)
                die(kExitDisagree, "replicas disagree: rank %zu: got %s, want %s as on rank 0; start all ranks with the same program, options and files", r,
                    g.empty() ? "nothing more" : g.c_str(), w.empty() ? "nothing more" : w.c_str());
        }
    }
}

Fields option_fields(const Options& options) {
    const MappedFile program = map_file(program_path());
    Fields fields = {{"program", format("%016llx", (unsigned long long)hash_bytes(program.data, program.size, 0))}};
    for (const auto& [name, value] : options_identity(options)) fields.push_back({"--" + name, value});
    return fields;
}

// ----------------------------------------------------------------------------------------------------------- signals

namespace {
volatile std::sig_atomic_t stop_flag = 0, save_flag = 0;
volatile int64_t first_stop_ms = 0;
bool stop_is_said = false;

constexpr struct { int number; const char* name; } stop_signals[] = {{SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGUSR1, "SIGUSR1"}, {SIGHUP, "SIGHUP"}};

void on_stop(int signal) {
    const int interrupted = errno;              // whoever is interrupted may be about to read it
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const int64_t ms = int64_t(now.tv_sec) * 1000 + now.tv_nsec / 1000000;
    const auto say = [](const char* line) { return stop_is_said && write(STDERR_FILENO, line, strlen(line)); };
    if (stop_flag && ms - first_stop_ms >= 1000) {
        say("stopped at once, unsaved\n");
        _exit(kExitOther);
    }
    if (!stop_flag) {                           // a Ctrl-C can come twice: from the terminal and from the launcher
        first_stop_ms = ms;
        say("\nsaving and stopping after this step; once more stops at once, unsaved\n");
    }
    stop_flag = signal;
    errno = interrupted;
}
void on_save(int) { save_flag = 1; }
}  // namespace

void catch_signals(bool say) {
    stop_is_said = say;
    struct sigaction action = {};
    action.sa_flags = SA_RESTART;
    action.sa_handler = on_stop;
    struct sigaction old;                                   // nohup stays nohup
    for (const auto& signal : stop_signals)
        if (signal.number != SIGHUP || (sigaction(SIGHUP, nullptr, &old) == 0 && old.sa_handler != SIG_IGN)) sigaction(signal.number, &action, nullptr);
    action.sa_handler = on_save;
    sigaction(SIGUSR2, &action, nullptr);
}

uint32_t stop_requested() { return stop_flag ? 1u << stop_flag : 0u; }

uint32_t pending_requests() {
    uint32_t signals = stop_requested();
    if (save_flag) {
        save_flag = 0;
        signals |= 1u << SIGUSR2;
    }
    return signals;
}

bool wants_save(uint32_t requests) { return requests >> SIGUSR2 & 1; }

std::string stop_reason(uint32_t requests) {
    std::string names;
    for (const auto& signal : stop_signals)
        if (requests >> signal.number & 1) names += (names.empty() ? "" : " and ") + std::string(signal.name);
    return names;
}
