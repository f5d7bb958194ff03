// cache.cpp -- see cache.h.
#include "src/base/cache.h"
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include "src/base/common.h"
#include "src/base/file.h"

namespace {

constexpr char kWork[] = ".work-", kMade[] = ".made", kVariable[] = "LOCKSTEP_CACHE";
// An entry used so recently is kept: a process may still read it.
constexpr int64_t kKeptSeconds = 3600;
// Microseconds between two looks at another process's work.
constexpr useconds_t kPause = 200'000;

std::string variable(const char* name) {
    const char* const value = std::getenv(name);
    return value ? value : "";
}

bool is_folder(const std::string& path) {       // false also if it cannot be looked up
    struct stat info;
    return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// Makes the folder if it is not there. Throws kExitWrite if it cannot be made or written.
void make_writable(const std::string& path) {
    make_directories(path);
    if (faccessat(AT_FDCWD, path.c_str(), W_OK | X_OK, AT_EACCESS) != 0)
        die(kExitWrite, "cannot write into folder: %s: %s", path.c_str(), std::strerror(errno));
}

bool can_use(const std::string& path) try {
    make_writable(path);
    return true;
} catch (const Error&) {
    return false;
}

// Makes and returns a folder in the one for temporary files. kExitWrite: another user may have made
// it.
std::string temporary_cache() {
    const std::string tmp = variable("TMPDIR");
    const std::string path =
        path_join(tmp.empty() ? "/tmp" : tmp, format("lockstep-%u", unsigned(geteuid())));
    struct stat info;
    if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
        die(kExitWrite, "cannot make a cache: %s: %s; set %s to a folder", path.c_str(),
            std::strerror(errno), kVariable);
    if (lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid())
        die(kExitWrite,
            "cannot use the cache: %s: got something that is not this user's, want a folder of this "
            "user; set %s to another one",
            path.c_str(), kVariable);
    make_writable(path);
    return path;
}

uint64_t size_limit() {
    const std::string text = variable("LOCKSTEP_CACHE_SIZE");
    if (text.empty()) return uint64_t(20) << 30;
    constexpr std::string_view kUnits = "kMG";
    const size_t unit = kUnits.find(text.back());
    const std::string_view number(text.data(), text.size() - (unit != kUnits.npos));
    const int shift = unit == kUnits.npos ? 0 : 10 * (int(unit) + 1);
    if (uint64_t n; parse_whole(number, &n) && n <= UINT64_MAX >> shift) return n << shift;
    die(kExitUsage, "LOCKSTEP_CACHE_SIZE: got %s, want a number of bytes, such as 500M or 20G",
        text.c_str());
}

// Fsyncs a file, or a folder and all that is in it.
void sync_tree(const std::string& path) {
    if (is_directory(path)) {
        for (const std::string& name : list_directory(path)) sync_tree(path_join(path, name));
        return sync_directory(path);
    }
    const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (file.fd < 0 || fsync(file.fd) != 0)
        die(kExitWrite, "write failed: %s: %s", path.c_str(), std::strerror(errno));
}

// Appends a line with CRC-32C, size and name to *lines for each file in folder/inside, and adds its
// size to *bytes.
void add_files(const std::string& folder, const std::string& inside, std::string* lines,
               uint64_t* bytes) {
    for (const std::string& name : list_directory(path_join(folder, inside))) {
        const std::string file = inside.empty() ? name : inside + "/" + name,
                          path = path_join(folder, file);
        if (file == kMade) continue;
        if (is_directory(path)) {
            add_files(folder, file, lines, bytes);
            continue;
        }
        const InputFile in(path);
        *bytes += in.size;
        *lines += format("%08x %lu %s\n", in.checksum(), in.size, file.c_str());
    }
}

// Returns what .made must contain for an entry: the bytes of all its files, and a line for each
// file.
std::string inventory(const std::string& entry) {
    std::string lines;
    uint64_t bytes = 0;
    add_files(entry, "", &lines, &bytes);
    return std::to_string(bytes) + "\n" + lines;
}

// Returns whether the entry's files have the names, sizes and checksums in .made.
bool is_whole(const std::string& entry) try {
    return read_file(path_join(entry, kMade)) == inventory(entry);
} catch (const Error& error) {
    if (error.code == kExitNoInput || error.code == kExitBadContent) return false;
    throw;
}

// The work on one entry: only the process whose `lock` holds FOLDER/.work-NAME makes or removes the
// entry. Where nothing can be locked each process makes the entry in a folder of its own, and the
// first one's is taken.
struct Work {
    const std::string entry;
    std::string path;
    FolderLock lock = {};
    bool locked = false;
    Work(const std::string& folder, const std::string& name)
        : entry(path_join(folder, name)), path(path_join(folder, kWork + name)) {}
    // Makes and locks the folder. Returns false if another process has locked it, or has just
    // removed it.
    bool try_lock() {
        if (mkdir(path.c_str(), 0777) != 0 && errno != EEXIST)
            die(kExitWrite, "cannot make folder: %s: %s", path.c_str(), std::strerror(errno));
        locked = try_lock_folder(&lock, path);
        if (!locked || lock.exclusive) return locked;
        char host[65] = {};
        gethostname(host, sizeof host - 1);
        path += format(".%s.%d", host, int(getpid()));
        make_directories(path);
        return true;
    }
    std::string inside(const char* name) const { return path_join(path, name); }
    template <class F> void make(const F& fill) const {
        clear();
        make_directories(inside("new"));
        fill(inside("new"));
        try {
            rename_file(inside("new"), entry);
        } catch (const Error&) {
            if (lock.exclusive || !is_whole(entry)) throw;
        }
        sync_directory(parent_folder(entry));
    }
    // Renames the entry first, so that it is never incomplete. The lock is held, so no process can
    // remove an entry made anew.
    void remove() const {
        clear();
        rename_file(entry, inside("old"));
    }
    void clear() const {
        for (const std::string& name : list_directory(path))
            if (!name.starts_with(".lock")) remove_tree(inside(name.c_str()));
    }
    // .lock is removed last: after that another process may lock the folder and work in it.
    ~Work() {
        if (!locked) return;
        try {
            clear();
        } catch (const Error& error) {
            warn("%s", error.message.c_str());
        }
        unlink(inside(".lock").c_str());
        lock = {};
        rmdir(path.c_str());
    }
};

struct Entry {
    std::string name;
    int64_t used;           // time of its last use, in seconds since 1970
    uint64_t bytes;
};

// Returns the complete entries, in ascending order of their last use.
std::vector<Entry> list_entries(const std::string& folder) {
    std::vector<Entry> entries;
    for (const std::string& name : list_directory(folder)) {
        const std::string path = path_join(folder, name),
                          made = read_kernel_file(path_join(path, kMade));
        std::string_view rest = made;
        struct stat info;
        uint64_t bytes;
        if (name[0] == '.' || stat(path.c_str(), &info) != 0) continue;
        if (parse_whole(next_word(&rest, '\n'), &bytes))
            entries.push_back({name, int64_t(info.st_mtime), bytes});
    }
    std::ranges::sort(entries, {}, &Entry::used);
    return entries;
}

// Removes the entry, unless it was used since it was listed or another process works on it. Returns
// false if it is left, such as another user's entry, which this one may not remove.
bool remove_entry(const std::string& folder, const Entry& entry) try {
    Work work(folder, entry.name);
    struct stat info;
    if (!work.try_lock() || stat(work.entry.c_str(), &info) != 0 || info.st_mtime != entry.used)
        return false;
    work.remove();
    return true;
} catch (const Error&) {
    return false;
}

// Removes the folders that killed processes have left. Errors are ignored: some may belong to
// another user.
void remove_leftovers(const std::string& folder) {
    for (const std::string& name : list_directory(folder)) try {
        if (name.starts_with(kWork)) Work(folder, name.substr(sizeof kWork - 1)).try_lock();
    } catch (const Error&) {}
}

void make_room(const std::string& folder, uint64_t limit) {
    const std::vector<Entry> entries = list_entries(folder);
    uint64_t bytes = 0;
    for (const Entry& entry : entries) bytes += entry.bytes;
    for (const Entry& entry : entries) {
        if (bytes <= limit || entry.used > int64_t(std::time(nullptr)) - kKeptSeconds) return;
        if (remove_entry(folder, entry)) bytes -= entry.bytes;
    }
}

// Sets the entry's time to now. Returns false if the entry is absent or damaged. It is no error if
// the time cannot be set.
bool use(const std::string& entry) {
    if (!is_whole(entry)) return false;
    utimensat(AT_FDCWD, entry.c_str(), nullptr, 0);
    return true;
}

}  // namespace

std::string cache_folder(const std::string& otherwise) {
    if (const std::string chosen = variable(kVariable); !chosen.empty()) try {
        make_writable(chosen);
        return chosen;
    } catch (const Error& error) {
        die(kExitWrite, "%s: %s; set it to a folder that can be written", kVariable,
            error.message.c_str());
    }
    const std::string xdg = variable("XDG_CACHE_HOME"), home = variable("HOME");
    if (xdg.starts_with("/") && can_use(path_join(xdg, "lockstep")))
        return path_join(xdg, "lockstep");
    const std::string own = path_join(home, ".cache/lockstep");
    if (home.starts_with("/") && is_folder(home) && can_use(own)) return own;
    const std::string beside = path_join(otherwise, "cache");
    return is_folder(otherwise) && can_use(beside) ? beside : temporary_cache();
}

static std::string find_or_make(const std::string& folder, const std::string& name,
                                const std::function<void(const std::string& into)>& make,
                                const std::function<void()>& waiting) {
    make_directories(folder);
    Work work(folder, name);
    for (;; waiting(), usleep(kPause)) {
        if (use(work.entry)) return work.entry;
        if (work.try_lock()) break;
    }
    // Where nothing can be locked an entry may come between these two looks. It is then whole.
    const bool there = file_exists(work.entry);
    if (use(work.entry)) return work.entry;             // another process has just made it
    if (there) {
        warn("the cache: %s: it is damaged, and made anew", work.entry.c_str());
        work.remove();
    }
    remove_leftovers(folder);
    make_room(folder, size_limit());
    work.make([&](const std::string& into) {
        make(into);
        write_file_atomic(path_join(into, kMade), inventory(into));
        sync_tree(into);
    });
    return work.entry;
}

std::string cached(const std::string& folder, const std::string& name,
                   const std::function<void(const std::string& into)>& make,
                   const std::function<void()>& waiting) {
    CHECK(!name.empty() && name[0] != '.' && name.find('/') == name.npos,
          "%s as the name of an entry", name.c_str());
    try {
        return find_or_make(folder, name, make, waiting);
    } catch (const Error& error) {
        if (error.code != kExitWrite) throw;
        die(kExitWrite, "%s; make room, or set %s to another folder", error.message.c_str(),
            kVariable);
    }
}

void make_folder(const std::string& path,
                 const std::function<void(const std::string& into)>& make) {
    make_directories(parent_folder(path));
    Work work(parent_folder(path), base_name(path));
    if (!work.try_lock())
        die(kExitWrite, "%s: another process makes it now; wait until that has ended",
            path.c_str());
    work.make([&](const std::string& into) {
        make(into);
        sync_tree(into);
    });
}

void empty_cache(const std::string& folder) {
    if (!is_directory(folder)) return;
    remove_leftovers(folder);
    for (const Entry& entry : list_entries(folder)) remove_entry(folder, entry);
}
