// synced.h -- which files and folders this program has fsynced: its fsync stands before libc's. Include it once.
#pragma once
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <mutex>
#include <set>
#include "src/base/file.h"
#include "tests/test.h"

inline std::mutex sync_mutex;
inline std::set<ino_t> synced;

extern "C" int fsync(int fd) {
    struct stat info;
    const std::lock_guard lock(sync_mutex);
    if (fstat(fd, &info) == 0) synced.insert(info.st_ino);
    return int(syscall(SYS_fsync, fd));
}

// Fails unless the folder and all that is in it were fsynced since `synced` was cleared.
inline void expect_synced(const std::string& path) {
    struct stat info;
    EXPECT(stat(path.c_str(), &info) == 0 && synced.contains(info.st_ino), "%s was not fsynced", path.c_str());
    if (!S_ISDIR(info.st_mode)) return;
    for (const std::string& name : list_directory(path)) expect_synced(path_join(path, name));
}
