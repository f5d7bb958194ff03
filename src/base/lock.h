// lock.h -- locks a folder, so that one process at a time writes into it. If the folder is moved, that process goes on
// writing into the moved folder.
//
// The lock is flock on FOLDER/.lock. The text of that file names the process, for messages. On a file system without
// flock the lock is the file FOLDER/.locked, made with O_EXCL. It is taken over if its process, of this boot of this
// host, has ended; otherwise it counts as held.
#pragma once
#include "src/base/file.h"

struct FolderLock {
    std::string path = {};      // where the folder is: as given, or where it was found after a move
    std::string held = {};      // the same folder by its descriptor, valid after a move; to open files in it
    Descriptor folder, file;    // file: of .lock
    std::string claim = {};     // the text of .locked; empty where flock works
    FolderLock() = default;
    FolderLock(const FolderLock&) = delete;
    ~FolderLock() { release(); }
    void release();             // the file .lock stays: it means nothing without its flock
    bool holds(const std::string& path) const;      // whether path is the locked folder
};
// Locks an existing folder; first releases what `lock` held. what: "the run folder". cure: what else the user can do,
// at the end of the error. kExitWrite: it cannot be locked, or another process, which the error names, has locked it.
void lock_folder(FolderLock* lock, const std::string& path, const char* what, const char* cure);
// Does the same, but returns false if another process has locked the folder or removed it.
bool try_lock_folder(FolderLock* lock, const std::string& path, const char* what);
// Checks that the folder is still there and still locked; call it before a write. Returns true, with a new `path`, if
// the folder has moved. kExitWrite: it was deleted, or another process has locked it. One thread at a time may call it.
bool check_lock(FolderLock* lock);
// Returns a path as the user knows it: with the `path` of a lock in place of its `held`. Any thread may call it.
std::string shown_path(const std::string& path);
