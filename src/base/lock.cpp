// lock.cpp -- see lock.h.
#include "src/base/lock.h"
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "src/base/common.h"

static bool same_file(int fd, const std::string& path) {
    struct stat a, b;
    return fstat(fd, &a) == 0 && stat(path.c_str(), &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

bool FolderLock::holds(const std::string& path) const { return folder.fd >= 0 && same_file(folder.fd, path); }

[[noreturn]] static void die_unlocked(const char* what, const std::string& path) {
    die(kExitWrite, "cannot lock %s: %s: %s", what, shown_path(path).c_str(), strerror(errno));
}

[[noreturn]] static void die_in_use(const char* what, const std::string& folder, const char* cure) {
    std::string by = read_kernel_file(path_join(folder, ".lock"));
    by = by.empty() ? "a process that does not say who" : by.substr(0, by.find('\n'));
    die(kExitWrite, "%s is in use: %s: by %s; wait until that has ended%s", what, shown_path(folder).c_str(),
        by.c_str(), cure);
}

// Opens and locks .lock in lock->held, again if another process has removed the file that this one has just opened.
// Returns false if another process has locked or removed the folder.
static bool lock_file(FolderLock* lock, const char* what) {
    const std::string path = path_join(lock->held, ".lock");
    constexpr int kFlags = O_NOFOLLOW | O_CLOEXEC;
    do {
        lock->file = Descriptor(open(path.c_str(), O_RDWR | O_CREAT | kFlags, 0666));
        // In a group's folder it may be another user's, and only readable. Most file systems can lock it all the same.
        if (lock->file.fd < 0 && errno == EACCES) lock->file = Descriptor(open(path.c_str(), O_RDONLY | kFlags));
        if (lock->file.fd < 0 && errno == ENOENT) return false;
        if (lock->file.fd < 0) die_unlocked(what, path);
        lock->exclusive = flock(lock->file.fd, LOCK_EX | LOCK_NB) == 0;
        if (!lock->exclusive && errno == EWOULDBLOCK) return false;
    } while (!same_file(lock->file.fd, path));
    char host[65] = {};
    gethostname(host, sizeof host - 1);
    const std::string text = format("process %d on %s\n", int(getpid()), host);
    if (ftruncate(lock->file.fd, 0) == 0 && pwrite(lock->file.fd, text.data(), text.size(), 0) < 0) return true;
    return true;
}

bool try_lock_folder(FolderLock* lock, const std::string& path, const char* what) {
    *lock = {.folder = Descriptor(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC))};
    if (lock->folder.fd < 0 && errno == ENOENT) return false;
    if (lock->folder.fd < 0) die_unlocked(what, path);
    lock->held = format("/proc/self/fd/%d", lock->folder.fd);
    return lock_file(lock, what);
}

void lock_folder(FolderLock* lock, const std::string& path, const char* what, const char* cure) {
    if (!try_lock_folder(lock, path, what)) die_in_use(what, path, cure);
    if (!lock->exclusive)
        warn("%s: %s: its file system cannot lock files; let one process at a time write there", what,
             shown_path(path).c_str());
}

void check_lock(FolderLock* lock, const char* what) {
    const std::string now = link_text(lock->held), file = path_join(lock->held, ".lock");
    if (now.ends_with(" (deleted)") && !lock->holds(now))
        die(kExitWrite, "the folder is gone: %s: it was deleted while this process wrote into it", now.c_str());
    if (same_file(lock->file.fd, file) || errno != ENOENT) return;      // it may be that it cannot be looked up now
    if (!lock_file(lock, what)) die_in_use(what, lock->held, "");
}
