// test_cache.cpp -- the cache of folders: where it is, entries complete or absent, makers that are killed, its limit.
#include <sys/file.h>
#include <sys/wait.h>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <dirent.h>
#include <fcntl.h>
#include <map>
#include "src/base/cache.h"
#include "tests/test.h"
#include "tests/unit/synced.h"

namespace {

// This program's open, opendir, stat and flock stand before libc's. Before look number `comes_at` at `looked_at`, or at
// what is in it, `comes` is called; flock fails if can_lock is false.
std::string looked_at;
int looks = 0, comes_at = 0;
std::function<void()> comes;
bool can_lock = true;

void look(const char* path) {
    if (looked_at.empty() || !std::string_view(path).starts_with(looked_at) || ++looks != comes_at) return;
    const std::string entry = std::exchange(looked_at, "");
    comes();
    looked_at = entry;
}
int open_at(const char* path, int flags, mode_t mode) { return int(syscall(SYS_openat, AT_FDCWD, path, flags, mode)); }

}  // namespace

extern "C" int open(const char* path, int flags, ...) {
    look(path);
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return open_at(path, flags, mode);
}
extern "C" DIR* opendir(const char* path) {
    look(path);
    const int fd = open_at(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    return fd < 0 ? nullptr : fdopendir(fd);
}
extern "C" int stat(const char* path, struct stat* info) noexcept {
    look(path);
    return fstatat(AT_FDCWD, path, info, 0);
}
extern "C" int flock(int fd, int how) noexcept {
    if (can_lock) return int(syscall(SYS_flock, fd, how));
    errno = ENOLCK;
    return -1;
}

namespace {

using Settings = std::map<std::string, std::string>;

// Sets these of the variables that the cache reads, and no others but TMPDIR.
void set_only(const Settings& values) {
    for (const char* name : {"LOCKSTEP_CACHE", "LOCKSTEP_CACHE_SIZE", "XDG_CACHE_HOME", "HOME"}) unsetenv(name);
    for (const auto& [name, value] : values) setenv(name.c_str(), value.c_str(), 1);
}

void no_wait() { FAIL("nobody else makes it"); }

void write_text(const std::string& into, const std::string& text) { put(into + "/text", text); }

std::string make_text(const std::string& folder, const std::string& name, const std::string& text,
                      const std::function<void()>& waiting = no_wait) {
    return cached(folder, name, [&](const std::string& into) { write_text(into, text); }, waiting);
}

// A folder with entries, of which each has one text.
struct Cache : Folder {
    std::string make(const std::string& name, const std::string& text) const { return make_text(path, name, text); }
    std::string text(const std::string& name) const { return read_file(*this / name + "/text"); }
    std::string names() const { return join(list_directory(path), " "); }
    void set_age(const std::string& name, int64_t seconds) const {
        const time_t then = std::time(nullptr) - seconds;
        const timespec times[2] = {{then, 0}, {then, 0}};
        EXPECT(utimensat(AT_FDCWD, (*this / name).c_str(), times, 0) == 0, "%s", name.c_str());
    }
};

// A pipe on which one process tells another something.
struct Signal {
    int ends[2];
    Signal() { EXPECT_EQ(pipe(ends), 0); }
    ~Signal() { close(ends[0]), close(ends[1]); }
    void send() const { EXPECT_EQ(write(ends[1], "x", 1), 1); }
    void wait() const {
        char x;
        EXPECT_EQ(read(ends[0], &x, 1), 1);
    }
};

// Runs work() in another process, which ends with 0, or 1 after an error.
template <class F> pid_t start(const F& work) {
    std::fflush(nullptr);
    const pid_t pid = fork();
    if (pid != 0) return pid;
    alarm(60);
    try {
        work();
        _exit(0);
    } catch (const Error& error) {
        print_error(error);
    } catch (const TestFailure& failure) {
        print_error({1, failure.message});
    }
    _exit(1);
}

int end_of(pid_t pid) {
    int status = -1;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return status;
}

// A process that makes the entry "e": it has begun, and goes on at go.send().
struct Maker {
    Signal begun, go;
    pid_t pid;
    explicit Maker(const std::string& folder) : pid(start([&] {
        cached(folder, "e", [&](const std::string& into) {
            write_text(into, "half");
            begun.send();
            go.wait();
            write_text(into, "first");
        }, no_wait);
    })) {
        begun.wait();
    }
};

// A process that wants "e", too, and waits for it.
struct Waiter {
    Signal waits;
    pid_t pid;
    Waiter(const std::string& folder, const char* want) : pid(start([&] {
        bool told = false;
        const auto waiting = [&] {
            if (!std::exchange(told, true)) waits.send();
        };
        EXPECT_EQ(read_file(make_text(folder, "e", "second", waiting) + "/text"), want);
    })) {
        waits.wait();
    }
};

}  // namespace

TEST(made_once) {
    const Cache cache;
    EXPECT(make_text(cache / "a/b", "e", "x") == cache / "a/b/e", "the folder is made");
    const std::string entry = cache.make("e", "x");
    cache.set_age("e", 9000);
    EXPECT(cache.make("e", "y") == entry && cache.text("e") == "x", "it is made again");
    struct stat info;
    EXPECT(stat(entry.c_str(), &info) == 0 && info.st_mtime > std::time(nullptr) - 5000, "its time is the last use's");
    EXPECT_EQ(cache.names(), "a e");
}

TEST(a_damaged_entry_is_made_anew) {
    const Cache cache;
    const std::string entry = cache.make("e", "whole");
    for (const char* damaged : {"whale", "who", "", "missing"}) {
        write_text(entry, damaged);
        if (damaged == std::string("missing")) unlink((entry + "/text").c_str());
        EXPECT(cache.make("e", "whole") == entry && cache.text("e") == "whole", "%s", damaged);
    }
    EXPECT_EQ(cache.names(), "e");
}

// cached and make_folder fsync what the maker writes, so that a maker need not.
TEST(a_power_cut_loses_nothing) {
    const Cache cache;
    const auto make = [](const std::string& into) {
        make_directories(into + "/inside");
        for (const char* name : {"/file", "/inside/file"}) put(into + name, "");
    };
    synced.clear();
    expect_synced(cached(cache.path, "e", make, no_wait));
    make_folder(cache / "folder", make);
    expect_synced(cache.path);
}

// The other process has the entry, or makes it if the first one is killed. A wait may be broken off.
TEST(two_at_once) {
    for (const bool killed : {false, true}) {
        const Cache cache;
        const Maker maker(cache.path);
        EXPECT(!file_exists(cache / "e"), "half an entry is there");
        expect_error(kExitStopped, "stopped", [&] {
            make_text(cache.path, "e", "another makes it", [] { die(kExitStopped, "stopped"); });
        });
        const Waiter waiter(cache.path, killed ? "second" : "first");
        if (killed) kill(maker.pid, SIGKILL);
        else maker.go.send();
        const int end = end_of(maker.pid);
        EXPECT((killed ? WIFSIGNALED(end) : end == 0) && end_of(waiter.pid) == 0, "killed: %d", killed);
        EXPECT_EQ(cache.names(), "e");
    }
}

// Many that begin and end together: each finds the entry complete, whoever makes it.
TEST(many_at_once) {
    const Cache cache;
    for (int round = 0; round < 5; round++) {
        std::vector<pid_t> pids;
        for (int i = 0; i < 8; i++)
            pids.push_back(start([&] {
                for (int name = 0; name < 10; name++) {
                    const std::string own = format("e%d-%d", round, name);
                    EXPECT_EQ(read_file(make_text(cache.path, own, own, [] {}) + "/text"), own);
                }
            }));
        for (const pid_t pid : pids) EXPECT(end_of(pid) == 0, "round %d", round);
    }
    EXPECT(list_directory(cache.path).size() == 50, "%s", cache.names().c_str());
}

// Where nothing can be locked another process may make the entry at any moment, and what it has made stays. The moments
// are those before each look at the entry.
TEST(two_at_once_without_locks) {
    can_lock = false;
    for (comes_at = 1;; comes_at++) {
        const Cache cache;
        ino_t made = 0;
        const auto inode = [&] {
            struct stat info;
            return fstatat(AT_FDCWD, (cache / "e").c_str(), &info, 0) == 0 ? info.st_ino : 0;
        };
        comes = [&] { cache.make("e", "x"), made = inode(); };
        looked_at = cache / "e";
        looks = 0;
        cache.make("e", "x");
        looked_at = "";
        if (looks < comes_at) break;
        EXPECT(made != 0 && inode() == made && cache.text("e") == "x", "look %d", comes_at);
    }
    can_lock = true;
    EXPECT(comes_at > 3, "%d looks", comes_at - 1);
}

TEST(maker_throws) {
    const Cache cache;
    expect_error(kExitWrite, "no room", [&] {
        cached(cache.path, "e", [](const std::string& into) {
            write_text(into, "half");
            die(kExitWrite, "no room");
        }, no_wait);
    });
    EXPECT_EQ(cache.names(), "");
    cache.make("e", "x");
    EXPECT_EQ(cache.text("e"), "x");
}

// A folder that is no entry is made in the same way, without a mark.
TEST(make_folder_alone) {
    const Folder tmp;
    const std::string path = tmp / "a/b";
    make_folder(path, [&](const std::string& into) {
        write_text(into, "x");
        EXPECT(!file_exists(path), "half a folder is there");
        expect_error(kExitWrite, "another process", [&] { make_folder(path, [](const std::string&) {}); });
    });
    EXPECT(list_directory(path) == std::vector<std::string>{"text"}, "only what was put in");
    expect_error(kExitWrite, "cannot rename", [&] { make_folder(path, [](const std::string&) {}); });
    expect_error(kExitBadContent, "wrong", [&] {
        make_folder(tmp / "c", [](const std::string&) { die(kExitBadContent, "wrong"); });
    });
    EXPECT(list_directory(tmp.path).size() == 1 && list_directory(tmp / "a").size() == 1, "nothing else");
}

// What killed makers have left goes when another entry is made. What is not the cache's stays.
TEST(leftovers) {
    const Cache cache;
    const Maker maker(cache.path);
    kill(maker.pid, SIGKILL);
    end_of(maker.pid);
    for (const char* name : {".work-held", "mine"}) make_directories(cache / name);
    cache.add("mine/text", "x");
    cache.add(".work-file", "no folder: it can be neither locked nor removed");
    FolderLock lock;
    lock_folder(&lock, cache / ".work-held", "the folder", "");
    cache.make("f", "x");
    EXPECT_EQ(cache.names(), ".work-file .work-held f mine");
    empty_cache(cache.path);
    EXPECT_EQ(cache.names(), ".work-file .work-held mine");
    empty_cache(cache / "none");
}

TEST(limit) {
    const Cache cache;
    set_only({{"LOCKSTEP_CACHE_SIZE", "2k"}});
    for (const auto& [name, age] : {std::pair{"a", 8000}, {"b", 9000}, {"c", 7000}, {"d", 100}}) {
        cache.make(name, std::string(1000, 'x'));
        cache.set_age(name, age);
    }
    EXPECT_EQ(cache.names(), "a c d");      // b was made when a alone was there, c when a and b were
    cache.make("e", "x");
    EXPECT_EQ(cache.names(), "c d e");
    set_only({{"LOCKSTEP_CACHE_SIZE", "1"}});
    cache.make("f", "x");
    EXPECT_EQ(cache.names(), "d e f");      // those of the last hour stay
    for (const char* wrong : {"x", "-1", "1T", "k", "99999999999G"}) {
        set_only({{"LOCKSTEP_CACHE_SIZE", wrong}});
        expect_error(kExitUsage, wrong, [&] { cache.make("g", "x"); });
    }
    EXPECT_EQ(cache.names(), "d e f");
    set_only({});
}

TEST(folders) {
    const Folder tmp;
    const std::string home = tmp / "home", run = tmp / "run", file = tmp.add("file", "x"), beside = run + "/cache";
    const std::string last = getenv("TMPDIR") + format("/lockstep-%u", unsigned(geteuid()));
    for (const std::string& path : {home, run}) make_directories(path);
    const auto of = [](const Settings& values, const std::string& otherwise) {
        set_only(values);
        return cache_folder(otherwise);
    };
    const struct { Settings values; std::string otherwise, want; } rows[] = {
        {{{"HOME", home}, {"XDG_CACHE_HOME", run}, {"LOCKSTEP_CACHE", home + "/own"}}, "", home + "/own"},
        {{{"HOME", home}, {"XDG_CACHE_HOME", run}}, "", run + "/lockstep"},
        {{{"HOME", home}, {"XDG_CACHE_HOME", file}}, "", home + "/.cache/lockstep"},
        {{{"HOME", home + "/none"}}, run, beside}, {{{"HOME", file}}, run, beside}, {{}, run, beside},
        {{}, "", last}, {{}, run + "/none", last}};
    for (const auto& [values, otherwise, want] : rows) EXPECT_EQ(of(values, otherwise), want);
    EXPECT(!file_exists(home + "/none"), "no such HOME");
    struct stat info;
    EXPECT(stat(last.c_str(), &info) == 0 && (info.st_mode & 077) == 0, "others may write: %o", info.st_mode);
    rmdir(last.c_str());
    EXPECT_EQ(symlink(run.c_str(), last.c_str()), 0);
    expect_error(kExitWrite, "lockstep-", [&] { of({}, ""); });         // a link may lead into another user's folder
    for (const std::string& bad : {file, file + "/x", std::string("/proc/none")})
        expect_error(kExitWrite, "LOCKSTEP_CACHE: ", [&] { of({{"HOME", home}, {"LOCKSTEP_CACHE", bad}}, ""); });
    set_only({});
}

// As a user without rights: the home is read-only, and the last folder was made by somebody else if root runs this.
TEST(no_rights) {
    const Folder tmp;
    const std::string home = tmp / "home", run = tmp / "run";
    const bool root = geteuid() == 0;
    const unsigned user = root ? 65534 : geteuid();
    for (const std::string& path : {home, run, tmp / format("lockstep-%u", user)}) make_directories(path);
    chmod(tmp.path.c_str(), 0755);
    chmod(home.c_str(), 0555);
    chmod(run.c_str(), 0777);
    const pid_t pid = start([&] {
        EXPECT(!root || setuid(user) == 0, "setuid");
        set_only({{"HOME", home}, {"TMPDIR", tmp.path}});
        EXPECT_EQ(cache_folder(run), run + "/cache");
        if (root) expect_error(kExitWrite, "not this user's", [&] { cache_folder(home); });
        set_only({{"LOCKSTEP_CACHE", home}});
        expect_error(kExitWrite, "LOCKSTEP_CACHE: ", [&] { cache_folder(run); });
    });
    EXPECT_EQ(end_of(pid), 0);
}

// An entry that may not be removed stays, and is no error.
TEST(entries_of_others) {
    if (geteuid() != 0) SKIP("only root can make another user's files");
    const Cache cache;
    set_only({{"LOCKSTEP_CACHE_SIZE", "1"}});
    cache.make("a", "x");
    cache.set_age("a", 9000);
    make_directories(cache / ".work-b");
    chmod((cache / ".work-b").c_str(), 0700);
    chmod(cache.path.c_str(), 01777);
    const pid_t pid = start([&] {
        EXPECT_EQ(setuid(65534), 0);
        cache.make("a", "y");
        EXPECT_EQ(cache.text("a"), "x");
        cache.make("c", "x");
        empty_cache(cache.path);
    });
    EXPECT_EQ(end_of(pid), 0);
    EXPECT_EQ(cache.names(), ".work-b a");
}

int main(int argc, char** argv) {
    alarm(300);                             // no test may hang
    const Folder all;
    chmod(all.path.c_str(), 0755);
    set_only({{"TMPDIR", all.path}});
    return run_tests(argc, argv);
}
