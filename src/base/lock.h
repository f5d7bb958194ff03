// lock.h -- locks a folder, so that only one process at a time writes into it: flock on FOLDER/.lock. The text of that
// file names the process, for messages. A file system without flock locks nothing.
#pragma once
#include "src/base/file.h"

struct FolderLock {
    std::string held = {};      // /proc/self/fd/N: the folder by its descriptor, also after a move; open files in it
    Descriptor folder = Descriptor(), file = Descriptor();      // file: .lock; its flock lasts until it is closed
    bool exclusive = false;                                     // false: the file system has no flock
    bool holds(const std::string& path) const;                  // whether path is the locked folder
};
// Locks an existing folder; first releases what `lock` held. what: its name in errors, "the run folder". Returns false
// if another process has locked or removed the folder. kExitWrite: it cannot be locked.
bool try_lock_folder(FolderLock* lock, const std::string& path, const char* what);
// Calls try_lock_folder. kExitWrite, which names the process, if that returns false; a warning if there is no flock.
// cure: advice at the error's end.
void lock_folder(FolderLock* lock, const std::string& path, const char* what, const char* cure);
// Checks that the folder still exists and is still locked; call it before a write. Locks it again if somebody has
// removed .lock. kExitWrite: the folder was deleted, or another process has locked it.
void check_lock(FolderLock* lock, const char* what);
