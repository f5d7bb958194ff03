// cache.h -- folders that a tool makes once and uses again, until they are the oldest and there is no room.
//
//     FOLDER/NAME/            an entry: complete or absent. Its time is that of its last use
//     FOLDER/NAME/.made       the bytes of the entry's files, and each one's checksum, size and name. A folder without
//                             this file stays, unless it has the name of an entry that is wanted
//     FOLDER/.work-NAME/      locked by the process that makes or removes the entry; one without a lock is left over
#pragma once
#include <functional>
#include <string>

// Returns the folder LOCKSTEP_CACHE, or the first of these that can be made and written: XDG_CACHE_HOME/lockstep,
// HOME/.cache/lockstep, cache/ in the existing folder `otherwise` ("": none), ${TMPDIR:-/tmp}/lockstep-UID.
// kExitWrite: the folder LOCKSTEP_CACHE or the last one cannot be used. The last one must belong to this user: anyone
// can make it.
std::string cache_folder(const std::string& otherwise);
// Returns FOLDER/NAME. If it is not there, or damaged, make(into) fills an empty folder, which gets that name when all
// of it is on the disk. While another process makes it, this one calls waiting() some times a second; if that process
// dies, this one makes it. First the entries that were not used for longest go, until all have at most
// LOCKSTEP_CACHE_SIZE bytes (20G); those used within an hour stay. An error of make() or waiting() passes on, and
// nothing stays behind.
std::string cached(const std::string& folder, const std::string& name,
                   const std::function<void(const std::string& into)>& make, const std::function<void()>& waiting);
// Makes the folder `path`, which must not exist or be empty, in the same way: complete or absent. kExitWrite also if
// another process makes it now.
void make_folder(const std::string& path, const std::function<void(const std::string& into)>& make);
// Removes all entries, and what killed processes have left. One that another process makes or removes now stays.
void empty_cache(const std::string& folder);
