// lock.h -- one process at a time writes into a folder, and it writes into that folder wherever it is moved.
//
// The lock is flock on FOLDER/.lock, whose text names the process for messages. A file system without flock gets
// FOLDER/.locked, made with O_EXCL: of a process that has ended on this boot of this host it is taken over, any other
// one counts as held.
#pragma once
#include "src/base/file.h"

struct FolderLock {
    std::string path = {};      // where the folder is: as given, or where it was found after a move
    std::string held = {};      // the same folder whatever its name becomes, by descriptor; to open files in it
    Descriptor folder, file;    // file: of .lock
    std::string claim = {};     // the text of .locked; empty where flock works
    FolderLock() = default;
    FolderLock(const FolderLock&) = delete;
    ~FolderLock() { release(); }
    void release();             // leaves .lock, which says nothing without its flock
    bool holds(const std::string& path) const;      // the path is the locked folder
};
// Locks an existing folder, and releases what was locked before. what: "the run folder". cure: what else the user can
// do. kExitWrite: it cannot be locked, or a process, which the error names, has locked it.
void lock_folder(FolderLock* lock, const std::string& path, const char* what, const char* cure);
// Looks at folder and lock again; call it before a write. Returns true, with a new `path`, if the folder has moved.
// kExitWrite: the folder was deleted, or another process has locked it. For one thread at a time.
bool check_lock(FolderLock* lock);
// A path that begins with a lock's `held`, as the user knows it; any other path as it is. From any thread.
std::string shown_path(const std::string& path);
