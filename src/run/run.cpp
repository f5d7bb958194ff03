// run.cpp -- the run's folder and locks, the comparison of ranks, requests by signal (run.h).
#include "src/run/run.h"
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>
#include "src/base/common.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/checkpoint/checkpoint.h"

// ---- the run folder

std::string Run::folder() const { return lock ? lock->held : out_dir; }

std::string run_of(const std::string& path) {
    const auto has = [](const std::string& folder, const char* name) {
        return file_exists(path_join(folder, name));
    };
    const std::string named = checkpoint_named(path), real = real_path(named);
    if (has(real, "metrics.jsonl") || (has(real, "config.json") && has(real, "ckpt"))) return real;
    if (!has(real, "state.json")) return "";
    // OUT/ckpt may be a link.
    for (const std::string& run : {real + "/../..", parent_folder(parent_folder(named))})
        if (has(run, "config.json")) return real_path(run);
    return "";
}

namespace {

// Returns a path's part of a run's name: the first 32 bytes of its stem, with _ for all but
// letters, digits, - and .
std::string name_of(const std::string& path) {
    const std::filesystem::path real = real_path(path);         // of "." or runs/last, too
    std::string all = is_directory(real.string()) ? real.filename() : real.stem(), name;
    // The path is one like "shards/*.bin".
    if (all.starts_with('*')) all = real.parent_path().filename();
    for (const char c : all.substr(0, 32))
        name += isalnum((unsigned char)c) || (!name.empty() && (c == '-' || c == '.')) ? c : '_';
    return name;
}

// Makes runs/PRESET-DATA-DATE-TIME, or that with -2, -3, ... if another run has made the folder in
// the same second.
std::string make_default_folder(const Options& options) {
    const std::string of = options.init.empty() ? "" : run_of(options.init);
    std::string model =
        options.init.empty() ? options.preset : name_of(of.empty() ? options.init : of);
    model += options.label();
    // A mixture is named after its first source.
    const std::string source = options.data.substr(0, options.data.find(':')),
                      data = source.empty() ? "stories" : name_of(source);
    char when[32];
    const time_t now = time(nullptr);
    std::strftime(when, sizeof when, "%Y%m%d-%H%M%S", localtime(&now));
    const std::string name = "runs/" + model + "-" + data + "-" + when;
    std::string folder = name;
    make_directories("runs");
    for (int n = 2; mkdir(folder.c_str(), 0777) != 0 && errno == EEXIST; n++)
        folder = name + "-" + std::to_string(n);
    return folder;
}

// Locks the run's folder until the process ends. Throws kExitWrite.
void lock_run(Run* run) {
    run->lock = std::make_shared<FolderLock>();
    run->ckpt_lock = std::make_shared<FolderLock>();
    lock_folder(run->lock.get(), run->out_dir, "the run folder", ", or give another --out-dir");
}

// Returns whether the folder holds what a run writes: its config, log or checkpoints. It may hold
// other files, such as the job's own log, and ckpt/, which a user has made as a link to another
// disk.
bool has_run(const std::string& folder) {
    const std::string ckpt = path_join(folder, "ckpt");
    for (const char* name : {"config.json", "metrics.jsonl", "ckpt/latest"})
        if (file_exists(path_join(folder, name))) return true;
    for (const std::string& name : is_directory(ckpt) ? list_directory(ckpt) : Words())
        if (name.starts_with("step_")) return true;
    return false;
}

// Returns whether the run's log mentions a checkpoint.
bool has_saved(const std::string& folder) {
    const std::string log = path_join(folder, "metrics.jsonl");
    return file_exists(log) && read_file(log).find("{\"event\":\"ckpt\"") != std::string::npos;
}

// Returns the folder of the run that --resume means. kExitNoInput if there is none; kExitUsage if
// --out-dir is another.
std::string folder_to_resume(const Options& o) {
    const bool chosen = o.resume != "auto";
    const std::string named = chosen ? o.resume : "runs/last";
    const std::string folder = chosen || o.out_dir.empty() ? run_of(named) : real_path(o.out_dir);
    if (folder.empty())
        die(kExitNoInput, "--resume: got %s, want a run or checkpoint folder%s", named.c_str(),
            chosen ? "" : "; with --out-dir DIR it begins there at step 0");
    if (chosen && !o.out_dir.empty() && run_of(o.out_dir) != folder)
        die(kExitUsage, "--out-dir: got another run than --resume %s; leave it out",
            o.resume.c_str());
    return folder;
}

// Throws kExitUsage if a file in the folder that the run would write is one of another program.
void check_files(const std::string& folder) {
    for (const auto& [name, key] :
         {std::pair("config.json", "\"run\""), {"metrics.jsonl", "\"event\""}}) {
        const std::string path = path_join(folder, name),
                          text = file_exists(path) ? read_file(path) : "";
        if (text.find('\n') != text.npos && text.find(key) == text.npos)
            die(kExitUsage, "%s: got another program's, want a run's; try another --out-dir",
                path.c_str());
    }
}

// Rank 0 chooses the run's folder and checkpoint and puts them into *run. On a resume it returns
// the text of the run's config.json, even if the run never saved; "" if there is none.
std::string choose_folder(const Options& o, Run* run) {
    run->out_dir = real_path(o.out_dir);
    if (o.resume.empty()) return "";
    const std::string folder = run->out_dir = folder_to_resume(o);
    const std::string config = path_join(folder, "config.json");
    check_files(folder);
    // The lock comes before the choice of a checkpoint, because a run that holds the lock may be
    // saving a newer one.
    if (!o.dry_run && is_directory(folder)) lock_run(run);
    const bool newest = o.resume == "auto" || real_path(o.resume) == folder;
    run->checkpoint = newest ? find_checkpoint(folder) : whole_checkpoint(o.resume);
    if (!run->resumed() && (file_exists(path_join(folder, "ckpt/latest")) || has_saved(folder)))
        die(kExitBadContent,
            "--resume: %s: the run has saved, but no checkpoint is there; if ckpt/ is on another "
            "disk, mount that; --force begins again",
            folder.c_str());
    if (!run->resumed() && !file_exists(config)) return "";
    const std::string saved = read_file(config);
    if (saved.empty()) die(kExitBadContent, "%s: empty, want the run's options", config.c_str());
    return saved;
}

// Throws kExitUsage if the folder has a run and --force is missing, or if a new run would overwrite
// another program's files or its own inputs there, or write among these.
void check_folder(const Run* run, const Options& o, const std::string& model) {
    check_files(run->out_dir);
    const std::string ckpt = real_path(path_join(run->out_dir, "ckpt")) + "/";
    Words inputs = {o.init, model, o.val_data, o.tokenizer};
    for (const std::string& source : split(o.data, ','))        // PATH or PATH:WEIGHT
        inputs.push_back(source.substr(0, source.rfind(':')));
    for (const std::string& path : inputs) {
        const std::string input = file_exists(path) ? real_path(path) : "";
        if (input == run->out_dir || (input + "/").starts_with(ckpt))
            die(kExitUsage,
                "--out-dir: %s: the run reads %s, which a new run there changes; give another folder",
                run->out_dir.c_str(), path.c_str());
    }
    if (!o.force && has_run(run->out_dir))
        die(kExitUsage,
            "--out-dir: %s: not empty; --resume goes on with the run in it, --force overwrites it",
            run->out_dir.c_str());
}

}  // namespace

Run find_run(Options* options, Comm* comm) {
    Run run;
    std::string saved;
    if (comm->rank == 0) saved = choose_folder(*options, &run);
    for (std::string* text : {&saved, &run.checkpoint, &run.out_dir})
        *text = comm_first_text(comm, *text);
    if (!saved.empty()) options_merge_saved(options, saved, path_join(run.out_dir, "config.json"));
    return run;
}

void claim_run(Run* run, Options* options, const std::string& model, Comm* comm) {
    if (comm->rank == 0 && !run->lock) {
        const bool fresh = !is_directory(run->out_dir);
        if (run->out_dir.empty()) run->out_dir = real_path(make_default_folder(*options));
        check_folder(run, *options, model);
        make_directories(run->out_dir);
        lock_run(run);
        // This follows the lock: a start without the lock must remove nothing.
        run->created = fresh;
        comm_at_end(comm, [refused = *run] { unclaim_run(refused); });
        // This is checked again, because another run may have written before this lock.
        check_folder(run, *options, model);
    }
    options->out_dir = run->out_dir = comm_first_text(comm, run->out_dir);
}

void claim_checkpoints(const Run& run) {
    const std::string ckpt = path_join(run.folder(), "ckpt");
    make_directories(ckpt);
    if (!run.ckpt_lock->holds(ckpt))
        return lock_folder(run.ckpt_lock.get(), ckpt, "the folder of checkpoints", "");
    check_lock(run.ckpt_lock.get(), "the folder of checkpoints");
}

void unclaim_run(const Run& run) try {
    if (!run.created || has_run(run.out_dir)) return;
    remove_tree(path_join(run.out_dir, "cache"));       // tokens, if the user has no cache folder
    for (const char* name : {"ckpt/.lock", "ckpt", ".lock"})
        ::remove(path_join(run.out_dir, name).c_str());
    rmdir(run.out_dir.c_str());
} catch (...) {}                // the main and the watching thread may both remove it

void name_last(const std::string& folder) {
    if (real_path(parent_folder(folder)) != real_path("runs")) return;
    std::error_code ignored;
    std::filesystem::remove("runs/.last", ignored);
    std::filesystem::create_directory_symlink(base_name(folder), "runs/.last", ignored);
    // This fails if a user has made it a folder.
    std::filesystem::rename("runs/.last", "runs/last", ignored);
}

// ---- agreement

// A field that rank 0 lacks, the program of another architecture, is not compared.
void check_agreement(Comm* comm, const Fields& fields) {
    std::string mine = "\n", differs;
    for (const auto& [name, value] : fields) mine += name + "=" + escape_control(value) + "\n";
    const std::string first = comm_first_text(comm, mine);
    for (const auto& [name, value] : fields) {
        const size_t at = first.find("\n" + name + "=");
        const std::string got = name + "=" + escape_control(value);
        const std::string want =
            at == first.npos ? got : first.substr(at + 1, first.find('\n', at + 1) - at - 1);
        if (got != want && differs.empty())
            differs =
                format("rank %d: got %s, want %s as rank 0", comm->rank, got.c_str(), want.c_str());
    }
    differs = comm_first_text(comm, differs);
    if (!differs.empty())
        die(kExitDisagree, "replicas disagree: %s; start all ranks alike", differs.c_str());
}

Fields option_fields(const Options& options, const std::string& device_kind) {
    const std::string program = read_file(program_path());
    utsname machine;
    uname(&machine);
    // Only ranks of one CPU architecture have the same program.
    Fields fields = {
        {"version", version_text()},
        {std::string("program for ") + machine.machine,
         format("%016lx", hash_bytes(program.data(), program.size(), 0))}};
    for (const auto& [name, value] : options_identity(options))
        fields.push_back({"--" + name, value});
    fields.push_back({"device", device_kind});
    return fields;
}

Fields data_fields(const Arena& arena, const Data& data) {
    Fields fields;
    for (const TensorSpec& t : arena.tensors)
        fields.push_back({"tensor " + t.name, format("(%zu,%zu)", t.rows, t.cols)});
    fields.insert(fields.end(), {{"data", data.train.hash}, {"validation data", data.val.hash}});
    return fields;
}

void check_ranks(const Options& o, int ranks) {
    if (o.replicas % ranks == 0) return;
    die(kExitUsage,
        "ranks: got %d, want a power of 2 up to %d, the replicas; a new run may have other --replicas, a "
        "power of 2 that divides the step's %ld micro-batches",
        ranks, o.replicas, o.micro_batches());
}

// ---- signals

namespace {

std::atomic<uint32_t> requests{0};
std::atomic<double> first_stop{0};
bool stop_is_said = false;

constexpr struct { int number; const char* name; } stop_signals[] = {
    {SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGUSR1, "SIGUSR1"}, {SIGHUP, "SIGHUP"},
    {SIGXCPU, "SIGXCPU"}};

bool say(const char* line) { return stop_is_said && write(STDERR_FILENO, line, strlen(line)) > 0; }

void on_signal(int signal) {
    // This handler must not change errno for the code that it interrupts.
    const int interrupted = errno;
    const bool stop = signal != SIGUSR2;
    if (stop && !stop_requested()) first_stop = now_seconds();
    const bool again = stop_requests(requests.fetch_or(1u << signal)) != 0;
    if (stop && !again) say("\nsaving and stopping; once more stops at once, unsaved\n");
    // One Ctrl-C can arrive twice, also from the launcher. The kernel sends SIGXCPU each second.
    if (stop && again && signal != SIGXCPU && now_seconds() - first_stop >= 1) {
        say("stopped at once, unsaved\n");
        _exit(kExitOther);
    }
    errno = interrupted;
}

}  // namespace

void catch_signals(bool say_so) {
    stop_is_said = say_so;
    struct sigaction action = {}, old;
    action.sa_flags = SA_RESTART;
    action.sa_handler = on_signal;
    sigaction(SIGUSR2, &action, nullptr);
    for (const auto& signal : stop_signals) {
        sigaction(signal.number, nullptr, &old);
        // nohup leaves SIGHUP ignored.
        if (signal.number != SIGHUP || old.sa_handler != SIG_IGN)
            sigaction(signal.number, &action, nullptr);
    }
}

uint32_t pending_requests() { return requests.fetch_and(~kSaveRequest); }
uint32_t stop_requested() { return stop_requests(requests); }

std::string stop_reason(uint32_t asked) {
    Words names;
    for (const auto& signal : stop_signals)
        if (asked >> signal.number & 1) names.push_back(signal.name);
    return join(names, " and ");
}
