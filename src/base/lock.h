// lock.h -- locks a folder, so that only one process at a time writes into it. If the folder is moved, the process that
// holds the lock goes on writing into it at its new place.
//
// The lock is flock on FOLDER/.lock. The text of that file names the process, for messages. On a file system without
// flock the lock is the file FOLDER/.locked, made with O_EXCL. Another process takes it over if the one that made it
// ran on the same host since its last boot and has ended; otherwise the lock counts as held.
#pragma once
#include "src/base/file.h"

struct FolderLock {
    std::string path = {};      // where the folder is: as given, or where it was found after a move
    std::string held = {};      // /proc/self/fd/N: the folder by its descriptor, also after a move; open files in it
    Descriptor folder, file;    // file: .lock
    std::string claim = {};     // the text of .locked; empty if flock works and there is no .locked
    FolderLock() = default;
    FolderLock(const FolderLock&) = delete;
    ~FolderLock() { release(); }
    void release();             // removes .locked; .lock stays, and its flock lasts until `file` is closed
    bool holds(const std::string& path) const;      // whether path is the locked folder
};
// Locks an existing folder; first releases what `lock` held. what: its name in errors, "the run folder". cure: advice
// at their end. kExitWrite: it cannot be locked, or another process, which the error names, has locked it.
void lock_folder(FolderLock* lock, const std::string& path, const char* what, const char* cure);
// Calls lock_folder. Returns false if another process has locked or removed the folder.
bool try_lock_folder(FolderLock* lock, const std::string& path, const char* what);
// Checks that the folder still exists and is still locked; call it before a write. If the folder has moved, sets `path`
// and returns true. kExitWrite: it was deleted, or another process has locked it. One thread at a time may call this.
bool check_lock(FolderLock* lock);
// Returns a path as the user knows it: with a lock's `path` in place of its `held`. Any thread may call this.
std::string shown_path(const std::string& path);
