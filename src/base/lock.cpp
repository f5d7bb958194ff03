// lock.cpp -- see lock.h.
#include "src/base/lock.h"
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "src/base/common.h"

namespace {

// Maps each lock's `held` to its `path`, which messages show. Any thread that writes an error reads this map.
std::mutex names_mutex;
std::map<std::string, std::string> names;

bool same_file(int fd, const std::string& path) {
    struct stat a, b;
    return fstat(fd, &a) == 0 && stat(path.c_str(), &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

std::string link_text(const std::string& link) {
    char text[4096];
    return {text, size_t(std::max<ssize_t>(readlink(link.c_str(), text, sizeof text), 0))};
}

// Returns when a process of this pid namespace began, in clock ticks since the boot; "" if there is no such process.
std::string began(int pid) {
    const std::string stat = read_kernel_file(format("/proc/%d/stat", pid));
    std::string_view rest = std::string_view(stat).substr(stat.rfind(')') + 1);     // npos + 1 is 0
    for (int field = 2; field < 22; field++) next_word(&rest, ' ');
    return std::string(next_word(&rest, ' '));
}

// Returns a text that identifies a process: host, boot of the host, pid namespace, pid, and when the process began.
std::string claim_text(int pid) {
    char host[65] = {};
    gethostname(host, sizeof host - 1);
    const std::string boot = read_kernel_file("/proc/sys/kernel/random/boot_id").substr(0, 36);
    return format("host %s boot %s space %s pid %d began %s\n", host, boot.c_str(),
                  link_text("/proc/self/ns/pid").c_str(), pid, began(pid).c_str());
}

// Reads host and pid of a claim_text. Returns whether that process has certainly ended: it was of this host, boot and
// pid namespace, and now no process or another one has its pid.
bool has_ended(const std::string& claim, char (&host)[65], int* pid) {
    if (std::sscanf(claim.c_str(), "host %64s boot %*s space %*s pid %d", host, pid) != 2) return false;
    const std::string now = claim_text(*pid);
    const size_t place = now.find(" began ");
    return !began(getpid()).empty() && claim.starts_with(now.substr(0, place)) && claim != now;
}

// The error if another process has locked the folder or removed it.
struct Missed : Error {};

[[noreturn]] void die_in_use(const char* what, const std::string& folder, const std::string& file,
                             const std::string& cure) {
    char host[65];
    int pid = 0;
    if (has_ended(read_kernel_file(file), host, &pid)) pid = 0;    // one that can only read the file has not set it
    const std::string by = pid ? format("by process %d on %s", pid, host) : "by a process that does not say who";
    throw Missed{{kExitWrite, format("%s is in use: %s: %s; wait until that has ended%s", what,
                                     shown_path(folder).c_str(), by.c_str(), cure.c_str())}};
}

[[noreturn]] void die_unlocked(const char* what, const std::string& file, const char* cannot = "cannot lock") {
    const int error = errno;
    const Error reason{kExitWrite, format("%s %s: %s: %s", cannot, what, shown_path(file).c_str(), strerror(error))};
    if (error == ENOENT) throw Missed{reason};
    throw reason;
}

// Makes FOLDER/.locked. If an ended process has left such a file, renames that first. If two processes do so at once,
// one may rename the file that the other has just made; it then puts that file back.
void make_lock_file(FolderLock* lock, const char* what, const char* cure) {
    const std::string path = path_join(lock->held, ".locked"), aside = format("%s.%d", path.c_str(), int(getpid()));
    const auto in_use = [&] {
        die_in_use(what, lock->held, path, ", or if it has, remove " + shown_path(path) + cure);
    };
    const std::string claim = claim_text(getpid());
    char host[65];
    for (int pid;;) {
        const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
        if (const Descriptor file(open(path.c_str(), flags, 0666)); file.fd >= 0) {
            const bool written = write(file.fd, claim.data(), claim.size()) == ssize_t(claim.size());
            if (!written || fsync(file.fd) != 0) die_unlocked(what, path);
            lock->claim = claim;
            return;
        }
        if (errno != EEXIST) die_unlocked(what, path);
        const std::string stale = read_kernel_file(path);
        if (!has_ended(stale, host, &pid)) in_use();
        if (rename(path.c_str(), aside.c_str()) != 0) continue;
        const bool mine = read_kernel_file(aside) == stale;
        if (!mine && link(aside.c_str(), path.c_str()) != 0) continue;
        unlink(aside.c_str());
        if (!mine) in_use();
    }
}

}  // namespace

void FolderLock::release() {
    if (!claim.empty() && read_kernel_file(path_join(held, ".locked")) == claim)
        unlink(path_join(held, ".locked").c_str());
    claim.clear();
    const std::lock_guard guard(names_mutex);
    names.erase(held);
}

bool FolderLock::holds(const std::string& path) const { return folder.fd >= 0 && same_file(folder.fd, path); }

void lock_folder(FolderLock* lock, const std::string& path, const char* what, const char* cure) {
    lock->release();
    lock->path = path;
    lock->folder = Descriptor(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (lock->folder.fd < 0) die_unlocked(what, path, "cannot open");
    lock->held = format("/proc/self/fd/%d", lock->folder.fd);
    if (!lock->holds(lock->held)) lock->held = path;        // /proc is not mounted
    {
        const std::lock_guard guard(names_mutex);
        names[lock->held] = path;
    }
    const std::string file = path_join(lock->held, ".lock");
    do {            // again if another process has removed the file that this one has just opened
        lock->file = Descriptor(open(file.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666));
        // In a group's folder it may be another user's, and only readable. Most file systems can lock it all the same.
        if (lock->file.fd < 0 && errno == EACCES && eaccess(lock->held.c_str(), W_OK) == 0)
            lock->file = Descriptor(open(file.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
        if (lock->file.fd < 0) die_unlocked(what, file);
        const int error = flock(lock->file.fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
        if (error == EWOULDBLOCK) die_in_use(what, lock->held, file, cure);
        // Another host, which mounts the same folder without flock, may have made .locked.
        if (error || file_exists(path_join(lock->held, ".locked"))) make_lock_file(lock, what, cure);
        if (error)
            warn("%s: %s: its file system cannot lock files (%s); the file .locked stands for the lock", what,
                 path.c_str(), strerror(error));
    } while (!same_file(lock->file.fd, file));
    const std::string claim = claim_text(getpid());
    if (ftruncate(lock->file.fd, 0) == 0 && pwrite(lock->file.fd, claim.data(), claim.size(), 0) < 0) return;
}

bool try_lock_folder(FolderLock* lock, const std::string& path, const char* what) try {
    lock_folder(lock, path, what, "");
    return true;
} catch (const Missed&) {
    return false;
}

// Returns true if the folder is where it was, else false and in *path where it is now. kExitWrite: it was deleted.
static bool find_folder(const FolderLock& lock, std::string* path) {
    struct stat there;
    if (lock.holds(lock.path)) return true;
    for (int tries = 0; tries < 10; tries++) {      // it may be moved again during the search
        // If a disk or server does not answer now, nothing says that the folder has moved.
        if (stat(lock.path.c_str(), &there) != 0 && errno != ENOENT && errno != ENOTDIR) return true;
        *path = link_text(format("/proc/self/fd/%d", lock.folder.fd));
        if (lock.holds(*path)) return false;
        usleep(10000);
    }
    die(kExitWrite, "the folder is gone: %s: it was deleted, or moved out of sight, while this process wrote into it",
        lock.path.c_str());
}

bool check_lock(FolderLock* lock) {
    std::string now;
    const bool moved = !find_folder(*lock, &now);
    if (moved) {
        lock->path = real_path(now);
        const std::lock_guard guard(names_mutex);
        names[lock->held] = lock->path;
    }
    const std::string file = path_join(lock->held, lock->claim.empty() ? ".lock" : ".locked");
    struct stat there;
    if (stat(file.c_str(), &there) != 0 && errno != ENOENT) return moved;       // the file cannot be looked up now
    const std::string text = lock->claim.empty() ? "" : read_kernel_file(file);
    if (!text.empty() && text != lock->claim)
        die(kExitWrite, "the folder is not locked any more: %s: another process has replaced it; let one process at a "
            "time write into that folder", shown_path(file).c_str());
    if (lock->claim.empty() ? !same_file(lock->file.fd, file) : text.empty()) {
        FolderLock again;               // somebody has removed the file, and another process may have made one
        lock_folder(&again, lock->held, "the folder", "");
        std::swap(lock->file, again.file);
        std::swap(lock->claim, again.claim);
    }
    return moved;
}

std::string shown_path(const std::string& path) {
    std::string shown = path;
    const std::lock_guard guard(names_mutex);
    for (size_t depth = 0; depth < names.size(); depth++)       // a locked folder may be inside another one
        for (const auto& [held, name] : names)
            if (shown.starts_with(held + "/") || shown == held) shown = name + shown.substr(held.size());
    return shown;
}
