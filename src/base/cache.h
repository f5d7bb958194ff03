// cache.h -- entries: folders that a tool makes once and uses again. If room is needed, the oldest
// ones are removed.
//
//     FOLDER/NAME/            an entry: complete or absent. It was modified when it was last used
//     FOLDER/NAME/.made       the bytes of all files of the entry, and each file's checksum, size
//                             and name. A folder without .made is not removed, unless an entry of
//                             its name is to be made
//     FOLDER/.work-NAME/      locked by the process that makes or removes the entry. Without a lock
//                             it is a leftover
#pragma once
#include <functional>
#include <string>

// Returns the folder LOCKSTEP_CACHE, or the first of these that can be made and written:
// XDG_CACHE_HOME/lockstep, HOME/.cache/lockstep, cache/ in the existing folder `otherwise` ("":
// none), ${TMPDIR:-/tmp}/lockstep-UID. kExitWrite: the folder LOCKSTEP_CACHE or the last one cannot
// be used. The last one must belong to this user, because any user can make it.
std::string cache_folder(const std::string& otherwise);
// Returns FOLDER/NAME. If it is absent or damaged, calls make(into), which fills an empty folder;
// this gets that name when all of it is on the disk. While another process makes it, this one calls
// waiting() several times a second; if that process dies, this one makes it. Before that it removes
// the entries that were not used for longest, until all together have at most LOCKSTEP_CACHE_SIZE
// bytes (20G), but none used within an hour. An error of make() or waiting() is passed on, and
// nothing of the entry is left.
std::string cached(const std::string& folder, const std::string& name,
                   const std::function<void(const std::string& into)>& make,
                   const std::function<void()>& waiting);
// Makes the folder `path`, which must be absent or empty, in the same way: it becomes complete or
// stays as it is. kExitWrite, also if another process is making it.
void make_folder(const std::string& path, const std::function<void(const std::string& into)>& make);
// Removes all entries and what killed processes have left, but no entry that another process is
// making or removing.
void empty_cache(const std::string& folder);
