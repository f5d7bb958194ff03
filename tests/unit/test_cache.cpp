// test_cache.cpp -- the cache of folders: where it is, entries complete or absent, makers that are killed, its limit.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <map>
#include "src/base/cache.h"
#include "src/base/file.h"
#include "tests/test.h"
#include "tests/unit/synced.h"

namespace {

using Settings = std::map<std::string, std::string>;

// Sets these of the variables that the cache reads, and no others, while it lives.
struct Variables {
    explicit Variables(const Settings& values = {}) {
        for (const char* name : kNames)
            if (const char* const value = getenv(name)) old[name] = value;
        set_only(values);
    }
    ~Variables() { set_only(old); }
    static void set_only(const Settings& values) {
        for (const char* name : kNames) unsetenv(name);
        for (const auto& [name, value] : values) setenv(name.c_str(), value.c_str(), 1);
    }
    static constexpr const char* kNames[] = {"LOCKSTEP_CACHE", "LOCKSTEP_CACHE_SIZE", "XDG_CACHE_HOME", "HOME",
                                             "TMPDIR"};
    Settings old;
};

void no_wait() { FAIL("nobody else makes it"); }

void write_text(const std::string& into, const std::string& text) { write_file_atomic(into + "/text", text); }

std::string make_text(const std::string& folder, const std::string& name, const std::string& text) {
    return cached(folder, name, [&](const std::string& into) { write_text(into, text); }, no_wait);
}

void set_age(const std::string& path, int64_t seconds) {
    const timespec times[2] = {{time_t(std::time(nullptr) - seconds), 0}, {time_t(std::time(nullptr) - seconds), 0}};
    EXPECT(utimensat(AT_FDCWD, path.c_str(), times, 0) == 0, "%s", path.c_str());
}

bool holds(const Folder& tmp, const std::vector<std::string>& names) { return list_directory(tmp.path) == names; }

std::string listed(const Folder& tmp) { return join(list_directory(tmp.path), " "); }

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

// A process that begins to make the entry "e" and goes on at go.send().
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
    })) {}
};

// A process that wants "e" too, and says when it begins to wait.
struct Waiter {
    Signal waits;
    pid_t pid;
    Waiter(const std::string& folder, const char* want) : pid(start([&] {
        bool told = false;
        const auto waiting = [&] {
            if (!told) waits.send();
            told = true;
        };
        const std::string entry =
            cached(folder, "e", [](const std::string& into) { write_text(into, "second"); }, waiting);
        const std::string got = read_file(entry + "/text");
        EXPECT_EQ(got, want);
    })) {}
};

}  // namespace

TEST(made_once) {
    const Folder tmp;
    const Variables none;
    EXPECT(make_text(tmp.path + "/a/b", "e", "x") == tmp.path + "/a/b/e", "the folder is made");
    const std::string entry = make_text(tmp.path, "e", "x");
    set_age(entry, 9000);
    EXPECT(make_text(tmp.path, "e", "y") == entry && read_file(entry + "/text") == "x", "it is made again");
    struct stat info;
    EXPECT(stat(entry.c_str(), &info) == 0 && info.st_mtime > std::time(nullptr) - 5000, "its time is the last use's");
    EXPECT(holds(tmp, {"a", "e"}), "%s", listed(tmp).c_str());
}

TEST(a_damaged_entry_is_made_anew) {
    const Folder tmp;
    const Variables none;
    const std::string entry = make_text(tmp.path, "e", "whole");
    for (const char* damaged : {"whale", "who", ""}) {
        write_text(entry, damaged);
        EXPECT(make_text(tmp.path, "e", "whole") == entry && read_file(entry + "/text") == "whole", "%s", damaged);
    }
    unlink((entry + "/text").c_str());
    EXPECT(read_file(make_text(tmp.path, "e", "anew") + "/text") == "anew", "a file is missing");
    EXPECT(holds(tmp, {"e"}), "%s", listed(tmp).c_str());
}

// cached and make_folder fsync what the maker writes, so that a maker need not.
TEST(a_power_cut_loses_nothing) {
    const Folder tmp;
    const Variables none;
    const auto make = [](const std::string& into) {
        make_directories(into + "/inside");
        for (const char* name : {"/file", "/inside/file"}) std::fclose(std::fopen((into + name).c_str(), "w"));
    };
    synced.clear();
    expect_synced(cached(tmp.path, "e", make, no_wait));
    make_folder(tmp.path + "/folder", make);
    expect_synced(tmp.path);
}

TEST(two_at_once) {
    const Folder tmp;
    const Variables none;
    const Maker maker(tmp.path);
    maker.begun.wait();
    EXPECT(!file_exists(tmp.path + "/e"), "half an entry is there");
    const Waiter waiter(tmp.path, "first");
    waiter.waits.wait();
    maker.go.send();
    EXPECT(end_of(maker.pid) == 0 && end_of(waiter.pid) == 0, "both have it");
    EXPECT(holds(tmp, {"e"}), "%s", listed(tmp).c_str());
}

TEST(maker_is_killed) {
    const Folder tmp;
    const Variables none;
    const Maker maker(tmp.path);
    maker.begun.wait();
    const Waiter waiter(tmp.path, "second");
    waiter.waits.wait();
    kill(maker.pid, SIGKILL);
    EXPECT(WIFSIGNALED(end_of(maker.pid)) && end_of(waiter.pid) == 0, "the other makes it");
    EXPECT(holds(tmp, {"e"}), "%s", listed(tmp).c_str());
}

// Many that begin and end together: each finds the entry complete, whoever makes it.
TEST(many_at_once) {
    const Folder tmp;
    const Variables none;
    for (int round = 0; round < 5; round++) {
        std::vector<pid_t> pids;
        for (int i = 0; i < 8; i++)
            pids.push_back(start([&] {
                for (int name = 0; name < 10; name++) {
                    const std::string own = format("e%d-%d", round, name);
                    const auto make = [&](const std::string& into) { write_text(into, own); };
                    const std::string got = read_file(cached(tmp.path, own, make, [] {}) + "/text");
                    EXPECT_EQ(got, own);
                }
            }));
        for (const pid_t pid : pids) EXPECT(end_of(pid) == 0, "round %d", round);
    }
    EXPECT(list_directory(tmp.path).size() == 50, "%s", listed(tmp).c_str());
}

TEST(maker_throws) {
    const Folder tmp;
    const Variables none;
    expect_error(kExitWrite, "no room", [&] {
        cached(tmp.path, "e", [](const std::string& into) {
            write_text(into, "half");
            die(kExitWrite, "no room");
        }, no_wait);
    });
    EXPECT(holds(tmp, {}), "%s", listed(tmp).c_str());
    EXPECT_EQ(read_file(make_text(tmp.path, "e", "x") + "/text"), "x");
}

// A folder that is no entry is made in the same way, without a mark.
TEST(make_folder_alone) {
    const Folder tmp;
    const std::string path = tmp.path + "/a/b";
    make_folder(path, [&](const std::string& into) {
        write_text(into, "x");
        EXPECT(!file_exists(path), "half a folder is there");
        expect_error(kExitWrite, "another process", [&] { make_folder(path, [](const std::string&) {}); });
    });
    EXPECT(list_directory(path) == std::vector<std::string>{"text"}, "only what was put in");
    expect_error(kExitWrite, "cannot rename", [&] { make_folder(path, [](const std::string&) {}); });
    expect_error(kExitBadContent, "wrong", [&] {
        make_folder(tmp.path + "/c", [](const std::string&) { die(kExitBadContent, "wrong"); });
    });
    EXPECT(holds(tmp, {"a"}) && list_directory(tmp.path + "/a").size() == 1, "%s", listed(tmp).c_str());
}

TEST(wait_is_broken_off) {
    const Folder tmp;
    const Variables none;
    const Maker maker(tmp.path);
    maker.begun.wait();
    expect_error(kExitStopped, "stopped", [&] {
        const auto make = [](const std::string&) { FAIL("another makes it"); };
        cached(tmp.path, "e", make, [] { die(kExitStopped, "stopped"); });
    });
    maker.go.send();
    EXPECT(end_of(maker.pid) == 0 && holds(tmp, {"e"}), "%s", listed(tmp).c_str());
}

// What killed makers have left goes when another entry is made. What is not the cache's stays.
TEST(leftovers) {
    const Folder tmp;
    const Variables none;
    const Maker maker(tmp.path);
    maker.begun.wait();
    kill(maker.pid, SIGKILL);
    end_of(maker.pid);
    make_directories(tmp.path + "/.work-held");
    make_directories(tmp.path + "/mine");
    tmp.add("mine/text", "x");
    tmp.add(".work-file", "no folder: it can be neither locked nor removed");
    FolderLock lock;
    lock_folder(&lock, tmp.path + "/.work-held", "the folder", "");
    make_text(tmp.path, "f", "x");
    EXPECT(holds(tmp, {".work-file", ".work-held", "f", "mine"}), "%s", listed(tmp).c_str());
    empty_cache(tmp.path);
    EXPECT(holds(tmp, {".work-file", ".work-held", "mine"}), "%s", listed(tmp).c_str());
    empty_cache(tmp.path + "/none");
}

TEST(limit) {
    const Folder tmp;
    const Variables set(Settings{{"LOCKSTEP_CACHE_SIZE", "2k"}});
    for (const auto& [name, age] : {std::pair{"a", 8000}, {"b", 9000}, {"c", 7000}, {"d", 100}}) {
        make_text(tmp.path, name, std::string(1000, 'x'));
        set_age(tmp.path + "/" + name, age);
    }
    EXPECT(holds(tmp, {"a", "c", "d"}), "b was made when a alone was there, c when a and b were: %s",
           listed(tmp).c_str());
    make_text(tmp.path, "e", "x");
    EXPECT(holds(tmp, {"c", "d", "e"}), "%s", listed(tmp).c_str());
    setenv("LOCKSTEP_CACHE_SIZE", "1", 1);
    make_text(tmp.path, "f", "x");
    EXPECT(holds(tmp, {"d", "e", "f"}), "those of the last hour stay: %s", listed(tmp).c_str());
    for (const char* wrong : {"x", "-1", "1T", "k", "99999999999G"}) {
        setenv("LOCKSTEP_CACHE_SIZE", wrong, 1);
        expect_error(kExitUsage, wrong, [&] { make_text(tmp.path, "g", "x"); });
    }
    EXPECT(holds(tmp, {"d", "e", "f"}), "%s", listed(tmp).c_str());
}

TEST(folders) {
    const Folder tmp;
    const std::string home = tmp.path + "/home", run = tmp.path + "/run", file = tmp.add("file", "x");
    const std::string last = tmp.path + format("/lockstep-%u", unsigned(geteuid()));
    make_directories(home);
    make_directories(run);
    const auto of = [&](const Settings& values, const std::string& otherwise = "") {
        const Variables set(values);
        setenv("TMPDIR", tmp.path.c_str(), 1);
        return cache_folder(otherwise);
    };
    EXPECT_EQ(of({{"HOME", home}, {"XDG_CACHE_HOME", run}, {"LOCKSTEP_CACHE", home + "/own"}}), home + "/own");
    EXPECT_EQ(of({{"HOME", home}, {"XDG_CACHE_HOME", run}}), run + "/lockstep");
    EXPECT_EQ(of({{"HOME", home}, {"XDG_CACHE_HOME", file}}), home + "/.cache/lockstep");
    const std::string beside = run + "/cache";
    EXPECT(of(Settings{{"HOME", home + "/none"}}, run) == beside && !file_exists(home + "/none"), "no such HOME");
    EXPECT(of({}, run) == beside && of(Settings{{"HOME", file}}, run) == beside, "no HOME");
    EXPECT(of({}) == last && of({}, run + "/none") == last, "the last one");
    struct stat info;
    EXPECT(stat(last.c_str(), &info) == 0 && (info.st_mode & 077) == 0, "others may write: %o", info.st_mode);
    rmdir(last.c_str());
    EXPECT_EQ(symlink(run.c_str(), last.c_str()), 0);
    expect_error(kExitWrite, "lockstep-", [&] { of({}); });         // a link may lead into another user's folder
    for (const std::string& bad : {file, file + "/x", std::string("/proc/none")})
        expect_error(kExitWrite, "LOCKSTEP_CACHE: ", [&] { of({{"HOME", home}, {"LOCKSTEP_CACHE", bad}}); });
}

// As a user without rights: the home is read-only, and the last folder was made by somebody else if root runs this.
TEST(no_rights) {
    const Folder tmp;
    const std::string home = tmp.path + "/home", run = tmp.path + "/run";
    const bool root = geteuid() == 0;
    const unsigned user = root ? 65534 : geteuid();
    for (const std::string& path : {home, run, tmp.path + format("/lockstep-%u", user)}) make_directories(path);
    chmod(tmp.path.c_str(), 0755);
    chmod(home.c_str(), 0555);
    chmod(run.c_str(), 0777);
    const pid_t pid = start([&] {
        EXPECT(!root || setuid(user) == 0, "setuid");
        const Variables set(Settings{{"HOME", home}, {"TMPDIR", tmp.path}});
        EXPECT_EQ(cache_folder(run), run + "/cache");
        if (root) expect_error(kExitWrite, "not this user's", [&] { cache_folder(home); });
        setenv("LOCKSTEP_CACHE", home.c_str(), 1);
        expect_error(kExitWrite, "LOCKSTEP_CACHE: ", [&] { cache_folder(run); });
    });
    EXPECT_EQ(end_of(pid), 0);
}

// An entry that may not be removed stays, and is no error.
TEST(entries_of_others) {
    if (geteuid() != 0) SKIP("only root can make another user's files");
    const Folder tmp;
    const Variables set(Settings{{"LOCKSTEP_CACHE_SIZE", "1"}});
    set_age(make_text(tmp.path, "a", "x"), 9000);
    make_directories(tmp.path + "/.work-b");
    chmod((tmp.path + "/.work-b").c_str(), 0700);
    chmod(tmp.path.c_str(), 01777);
    const pid_t pid = start([&] {
        EXPECT_EQ(setuid(65534), 0);
        EXPECT_EQ(read_file(make_text(tmp.path, "a", "y") + "/text"), "x");
        make_text(tmp.path, "c", "x");
        empty_cache(tmp.path);
    });
    EXPECT(end_of(pid) == 0 && holds(tmp, {".work-b", "a"}), "%s", listed(tmp).c_str());
}

int main(int argc, char** argv) {
    alarm(300);                             // no test may hang
    return run_tests(argc, argv);
}
