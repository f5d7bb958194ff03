// saver.h -- saves checkpoints in another thread of rank 0. Training waits while the state is copied, and continues
// while the copy is written.
//
//     main thread   ... step | copy |  step  |  step  |  step  | result ...
//     writer                        | write, sync, commit      |
//
// Only one save can be under way.
#pragma once
#include <functional>
#include <string>
#include "src/base/common.h"
#include "src/checkpoint/checkpoint.h"

struct Saver;
// files: their arrays have the sizes that every save will have. copy: saver_start copies the arrays (4 bytes per
// element), which may change after that; without `copy` they must not change until the save has ended.
Saver* saver_create(const CheckpointFiles& files, bool copy, const std::string& out_dir, int keep);
void saver_destroy(Saver* saver);           // waits for the save under way; does nothing for null

// Starts a save; none may be under way. The writing thread calls before_commit first, then files.progress as it writes.
void saver_start(Saver* saver, int64_t step, const CheckpointFiles& files, std::function<void()> before_commit);
bool saver_ready(const Saver* saver);       // whether a save has ended whose result was not taken yet; false for null

struct Saved { Error error; std::string folder; double seconds; };     // error.code 0: it is saved
Saved saver_result(Saver* saver);           // waits for the save to end
// Does the same for a run's last save. If the save fails with kExitWrite, this tries it again for `patience` seconds or
// until stop() becomes true, and warns every half minute.
Saved saver_retry(Saver* saver, double patience, const std::function<bool()>& stop);
// Waits until no save is under way in this process, at most `seconds`. The watchdog thread calls it before it exits.
void saver_wait(double seconds);
