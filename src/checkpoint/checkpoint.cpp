// checkpoint.cpp -- writes checkpoints atomically: a checkpoint gets its name only when its bytes
// are on disk (fsync of files, rename), and keeps it after a power cut (fsync of folders). The file
// DONE shows that it is complete.
#include "src/checkpoint/checkpoint.h"
#include <algorithm>
#include <atomic>
#include <chrono>
#include <fcntl.h>
#include <filesystem>
#include <future>
#include <memory>
#include <sys/resource.h>
#include <unistd.h>
#include "src/base/words.h"
#include "src/checkpoint/safetensors.h"

struct DoneFile { std::string name; uint64_t bytes; uint32_t crc; };
struct Done { int64_t step = 0; std::vector<DoneFile> files; };

// Returns the text of DONE:
//     lockstep checkpoint 1
//     step 1000
//     9a3c05e1 497774208 model.safetensors         CRC-32C, bytes, name
//     ...
//     crc 7d01f5aa                                 CRC-32C of all bytes before this line
static std::string done_text(const Done& done) {
    std::string text = "lockstep checkpoint 1\nstep " + std::to_string(done.step) + "\n";
    for (const DoneFile& f : done.files)
        text += format("%08x ", f.crc) + std::to_string(f.bytes) + " " + f.name + "\n";
    return text + format("crc %08x\n", crc32c(0, text.data(), text.size()));
}

// Parses DONE with loose patterns. Then kExitBadContent unless done_text writes exactly these
// bytes.
static Done parse_done(const std::string& text, const char* what) {
    Done done;
    for (std::string_view rest = text; !rest.empty();) {
        const std::string line(next_word(&rest, '\n'));
        DoneFile file;
        char name[65];
        if (std::sscanf(line.c_str(), "step %ld", &done.step) == 1) continue;
        if (std::sscanf(line.c_str(), "%8x %20lu %64[A-Za-z0-9._-]", &file.crc, &file.bytes,
                        name) == 3)
            done.files.push_back({name, file.bytes, file.crc});
    }
    if (done_text(done) != text)
        die(kExitBadContent, "%s: it is damaged, or of another version of this program", what);
    return done;
}

static std::string step_name(int64_t step) { return format("step_%08ld", step); }

// Returns the step of a name such as "step_00001000"; -1 for any other name.
static int64_t step_of(const std::string& name) {
    int64_t step;
    return std::sscanf(name.c_str(), "step_%ld", &step) == 1 && name == step_name(step) ? step : -1;
}

// Returns the names of the folders PREFIXstep_N in ckpt/, largest step first.
static Words step_folders(const std::string& ckpt, const std::string& prefix = "") {
    Words names;
    const auto step = [&](const std::string& name) {
        return name.starts_with(prefix) ? step_of(name.substr(prefix.size())) : -1;
    };
    if (is_directory(ckpt)) names = list_directory(ckpt);
    std::erase_if(names, [&](const std::string& name) { return step(name) < 0; });
    std::ranges::sort(names, std::greater(), step);
    return names;
}

std::string verify_checkpoint(const std::string& folder, bool checksums) try {
    const Done done = parse_done(read_file(path_join(folder, "DONE")), "DONE");
    const int64_t step = step_of(base_name(folder));
    if (step >= 0 && step != done.step) return "DONE: it is of step " + std::to_string(done.step);
    for (const DoneFile& f : done.files) {
        const InputFile file(path_join(folder, f.name));
        if (file.size != f.bytes)
            return f.name + ": got " + std::to_string(file.size) + " bytes, want " +
                   std::to_string(f.bytes);
        if (checksums && file.checksum() != f.crc) return f.name + ": checksum mismatch";
    }
    return "";
} catch (const Error& error) {
    if (error.code == kExitOther) throw;  // it is unreadable only now: no older one may replace it
    return error.message;
}

std::string find_checkpoint(const std::string& out_dir) {
    const std::string ckpt = path_join(out_dir, "ckpt"),
                      latest = checkpoint_named(path_join(ckpt, "latest"));
    const int64_t last = step_of(base_name(latest));
    const Words names = step_folders(ckpt);
    if (last >= 0 && !is_directory(latest))
        warn("bad checkpoint: %s: it is not there", base_name(latest).c_str());
    for (const std::string& name : names) {
        if (last >= 0 && step_of(name) > last) continue;
        const std::string folder = path_join(ckpt, name), why = verify_checkpoint(folder, true);
        if (why.empty()) return folder;
        warn("bad checkpoint: %s: %s", name.c_str(), why.c_str());
    }
    if (names.empty()) return "";
    die(kExitBadContent,
        "%s: none of %zu checkpoints is whole and at most as old as `latest`; restore one, or start "
        "again in another folder",
        ckpt.c_str(), names.size());
}

std::string checkpoint_named(const std::string& path) {
    const std::string file = without_slash(path), kind = base_name(file);
    if ((kind != "best" && kind != "latest") || is_directory(file) || !file_exists(file))
        return file;
    const std::string text = read_file(file), name = text.substr(0, text.find('\n'));
    return step_of(name) < 0 ? file : path_join(parent_folder(file), name);
}

std::string whole_checkpoint(const std::string& path) {
    const std::string folder = real_path(checkpoint_named(path));
    if (const std::string why = verify_checkpoint(folder, true); !why.empty())
        die(kExitBadContent, "bad checkpoint: %s: %s", folder.c_str(), why.c_str());
    return folder;
}

// Returns the arrays of one of the two files of tensors: the weights, or the optimizer's state.
static std::vector<NamedArray> arrays_of(std::vector<NamedArray> arrays, bool weights) {
    std::erase_if(arrays, [&](const NamedArray& array) { return array.name.empty() != weights; });
    return arrays;
}

// Writes and fsyncs all files of a checkpoint in a new folder, DONE last.
static void write_files(const std::string& folder, int64_t step, const CheckpointFiles& files) {
    Done done = {step, {}};
    const auto write = [&](const std::string& name, const auto& content) {
        FileWriter file(path_join(folder, name));
        content(&file);
        file.finish();
        done.files.push_back({name, file.bytes, file.crc});
        files.progress();
    };
    const auto write_text = [&](const std::string& name, const std::string& text) {
        write(name, [&](FileWriter* file) { file->write(text.data(), text.size()); });
    };
    const auto write_arrays = [&](const std::string& name, bool weights) {
        const std::vector<NamedArray> arrays = arrays_of(files.arrays, weights);
        write(name, [&](FileWriter* file) {
            write_safetensors(file, *files.arena, arrays, files.progress);
        });
    };
    write_arrays(files.weights, true);
    fault_point("ckpt_write", 0, step);
    write_arrays("optim.safetensors", false);
    write_text("config.json", files.config_json);
    for (const auto& [name, text] : files.texts) write_text(name, text);
    write_text("state.json", files.state_json);
    write_text("DONE", done_text(done));
    sync_directory(folder);
}

// Takes a checkpoint's name from it; remove_stale removes the folder. Where a folder cannot be
// renamed, such as an image's below overlayfs, its files are removed, DONE first: no part of it
// looks complete.
static void set_aside(const std::string& ckpt, const std::string& name) {
    const std::string folder = path_join(ckpt, name), aside = path_join(ckpt, ".del_" + name);
    if (::rename(folder.c_str(), aside.c_str()) == 0) return;
    remove_tree(path_join(folder, "DONE"));
    remove_tree(folder);
}

// Renames the complete folder `temporary` to `name`. If a checkpoint has that name already, one
// system call exchanges the two, so that the name always exists. If the file system cannot do that,
// the old one is set aside first.
static void place(const std::string& ckpt, const std::string& temporary, const std::string& name) {
    const std::string final = path_join(ckpt, name);
    if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, final.c_str(), RENAME_EXCHANGE) == 0)
        return;
    if (file_exists(final)) set_aside(ckpt, name);
    rename_file(temporary, final);
}

static void remove_stale(const std::string& ckpt) {
    for (const char* prefix : {".tmp_", ".del_"})
        for (const std::string& name : step_folders(ckpt, prefix))
            remove_tree(path_join(ckpt, name));
    for (const char* name : {"latest", "best"}) remove_temporaries(path_join(ckpt, name));
}

void remove_checkpoints(const std::string& out_dir) {
    const std::string ckpt = path_join(out_dir, "ckpt");
    if (!is_directory(ckpt)) return;
    for (const std::string& name : step_folders(ckpt)) set_aside(ckpt, name);
    remove_stale(ckpt);
    for (const char* name : {"latest", "best"}) remove_tree(path_join(ckpt, name));
}

// Removes the oldest complete checkpoints before `step`, so that files.keep are left, that of
// `step` included, the best one and those of files.keep_every. Incomplete ones stay and do not
// count.
static void retire(const std::string& ckpt, int64_t step, const CheckpointFiles& files) {
    const std::string best = base_name(checkpoint_named(path_join(ckpt, "best")));
    int kept = 1;
    for (const std::string& name : step_folders(ckpt)) {
        if (files.keep == 0 || step_of(name) >= step ||
            !verify_checkpoint(path_join(ckpt, name), false).empty() || ++kept <= files.keep ||
            name == best || is_multiple(step_of(name), files.keep_every))
            continue;
        set_aside(ckpt, name);
    }
    remove_stale(ckpt);
}

void try_rename(const std::string& out_dir) {
    const std::string ckpt = path_join(out_dir, "ckpt"),
                      trial = path_join(ckpt, ".tmp_step_00000000");
    std::error_code error;
    remove_stale(ckpt);
    make_directories(path_join(trial, "part"));     // some rename only empty ones
    std::filesystem::rename(trial, path_join(ckpt, ".del_step_00000000"), error);
    remove_stale(ckpt);
    if (error)
        die(kExitWrite,
            "cannot save: %s: its file system cannot rename folders (%s); give an --out-dir on "
            "another, or --save-every 0",
            shown_path(ckpt).c_str(), error.message().c_str());
}

// Returns the bytes of one of the two files of tensors.
static uint64_t bytes_of(const CheckpointFiles& files, bool weights) {
    uint64_t floats = 0;
    for (const NamedArray& array : arrays_of(files.arrays, weights))
        floats += count_parameters(array.arena(*files.arena).tensors);
    return floats * sizeof(float);
}

void require_space(const std::string& folder, const CheckpointFiles& files) {
    require_space(folder, bytes_of(files, true) + bytes_of(files, false),
                  "no space for a checkpoint");
}

static void set_latest(const std::string& ckpt, const std::string& name) {
    write_file_atomic(path_join(ckpt, "latest"), name + "\n");
}

void name_best(const std::string& out_dir, int64_t step) try {
    const std::string best = path_join(out_dir, "ckpt/best"), name = step_name(step);
    const bool is_there = is_directory(path_join(parent_folder(best), name));
    if (is_there && base_name(checkpoint_named(best)) != name) write_file_atomic(best, name + "\n");
} catch (const Error& error) {
    warn("%s", error.message.c_str());
}

std::string write_checkpoint(const std::string& out_dir, int64_t step,
                             const CheckpointFiles& files) {
    const std::string ckpt = path_join(out_dir, "ckpt"), name = step_name(step),
                      folder = path_join(ckpt, name);
    const std::string temporary = path_join(ckpt, ".tmp_" + name);
    try {
        make_directories(ckpt);
        remove_stale(ckpt);
        require_space(ckpt, files);
        make_directories(temporary);
        write_files(temporary, step, files);
        fault_point("ckpt_done", 0, step);
    } catch (...) {
        try { remove_tree(temporary); } catch (const Error&) {}     // the first error is reported
        throw;
    }
    // After an exchange `temporary` is the old one; retire removes it.
    place(ckpt, temporary, name);
    sync_directory(ckpt);
    files.progress();
    fault_point("ckpt_placed", 0, step);
    if (const std::string bad = verify_checkpoint(folder, false); !bad.empty())
        die(kExitWrite, "write failed: %s: it does not read back: %s", shown_path(folder).c_str(),
            bad.c_str());
    set_latest(ckpt, name);
    fault_point("ckpt_latest", 0, step);
    name_best(out_dir, files.best_step);
    fault_point("ckpt_best", 0, step);
    try {
        retire(ckpt, step, files);
    } catch (const Error& error) {  // the new one is complete; only space is lost
        warn("old checkpoints stay: %s", error.message.c_str());
    }
    return shown_path(folder);
}

void read_state(const std::string& folder, const Arena& arena,
                const std::vector<NamedArray>& arrays, const std::string& weights) {
    read_safetensors(path_join(folder, weights), arena, arrays_of(arrays, true));
    read_safetensors(path_join(folder, "optim.safetensors"), arena, arrays_of(arrays, false));
}

void go_on_from(const std::string& out_dir, int64_t step, int64_t best_step) {
    const std::string ckpt = path_join(out_dir, "ckpt"), best = path_join(ckpt, "best");
    set_latest(ckpt, step_name(step));
    const std::string named = checkpoint_named(best);
    if (step_of(base_name(named)) > step || !is_directory(named)) remove_tree(best);
    name_best(out_dir, best_step);
}

// ---- saves in another thread

struct Saver {
    std::string out_dir;
    // The memory for a copy of all arrays. Null: saves do not copy.
    std::unique_ptr<float[]> copy;
    int64_t step = 0;
    double begin = 0;
    CheckpointFiles files = {};
    std::function<void()> before_commit = {};
    // This is the last member, so it is destroyed first, which waits for the writer.
    std::future<Saved> result = {};
};

static std::atomic<bool> under_way{false};  // a save is under way in this process

static Saved save(Saver* s) {
    under_way = true;
    Saved saved = {};
    try {
        s->before_commit();
        saved.folder = write_checkpoint(s->out_dir, s->step, s->files);
    } catch (const Error& e) {
        saved.error = e;
    } catch (const std::exception& e) {     // such as std::bad_alloc
        saved.error = {kExitOther, e.what()};
    }
    saved.seconds = now_seconds() - s->begin;
    under_way = false;
    return saved;
}

Saver* saver_create(const CheckpointFiles& files, bool copy, const std::string& out_dir) {
    rlimit most;
    getrlimit(RLIMIT_FSIZE, &most);
    const uint64_t want = std::max(bytes_of(files, true), bytes_of(files, false));
    size_t all = 0;
    for (const NamedArray& array : files.arrays) all += array.arena(*files.arena).n;
    if (most.rlim_cur < want)
        die(kExitWrite, "ulimit -f: got files of %s bytes, want %s for a checkpoint; raise it",
            with_commas(most.rlim_cur).c_str(), with_commas(want).c_str());
    // make_unique writes zeros to the memory, so that too little memory is noticed now and not in
    // the first save.
    return new Saver{out_dir, copy ? std::make_unique<float[]>(all) : nullptr};
}

void saver_destroy(Saver* s) { delete s; }

void saver_start(Saver* s, int64_t step, const CheckpointFiles& files,
                 std::function<void()> before_commit) {
    CHECK(!s->result.valid() && step >= 0, "saver_start: step %ld", step);
    fault_point("ckpt_copy", 0, step);
    s->begin = now_seconds();
    s->step = step;
    s->files = files;
    s->before_commit = std::move(before_commit);
    float* to = s->copy.get();
    for (NamedArray& array : s->files.arrays) {
        if (!s->copy) break;
        const size_t n = array.arena(*files.arena).n;
        std::copy_n(array.data, n, to);
        array.data = std::exchange(to, to + n);
    }
    under_way = true;                       // here too, because the thread may begin later
    s->result = std::async(save, s);        // if no thread can be started, saver_result runs save
}

bool saver_ready(const Saver* s) {
    return s && s->result.valid() &&
           s->result.wait_for(std::chrono::seconds(0)) != std::future_status::timeout;
}

Saved saver_result(Saver* s) {
    for (Countdown left{"the save"}; !saver_ready(s); usleep(1000)) left.at();
    return s->result.get();
}

Saved saver_retry(Saver* s, double patience, const std::function<bool()>& stop) {
    Saved saved = saver_result(s);
    const bool stopped = stop();            // a request that came earlier does not end the wait
    const double begin = now_seconds();
    for (int tick = 0; saved.error.code == kExitWrite; tick++) {
        const double left = begin + patience - now_seconds();
        if (left <= 0 || (stop() && !stopped)) break;
        if (tick % 300 == 0)
            warn("not saved: %s; the last save is tried again for %.0f seconds more, or until a signal to stop",
                 saved.error.message.c_str(), left);
        usleep(100000);
        s->files.progress();                // waiting counts as progress
        if (tick % 20 == 19) saved = save(s);
    }
    return saved;
}

void saver_wait(double seconds) {
    for (const double end = now_seconds() + seconds; under_way && now_seconds() < end;)
        usleep(1000);
}
