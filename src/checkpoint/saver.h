// saver.h -- saves checkpoints in the background, on rank 0. Training pauses while the state is copied, and goes on
// while the copy is written.
//
//     main thread   ... step | copy |  step  |  step  |  step  | result ...
//     writer                        | write, sync, commit      |
//
// One save at a time.
#pragma once
#include <functional>
#include <string>
#include "src/base/common.h"
#include "src/checkpoint/checkpoint.h"

struct Saver;
// files: those that every save will have. copy: saver_start copies their arrays (4 bytes per element), which may then
// change; else they must not change until the save has ended.
Saver* saver_create(const CheckpointFiles& files, bool copy, const std::string& out_dir, int keep);
void saver_destroy(Saver* saver);           // waits for the save under way; does nothing for null

// Starts a save; none may be under way. The writer calls before_commit first, then files.progress as it goes.
void saver_start(Saver* saver, int64_t step, const CheckpointFiles& files, std::function<void()> before_commit);
bool saver_ready(const Saver* saver);       // whether a save has ended whose result was not taken yet; false for null

struct Saved { Error error; std::string folder; double seconds; };     // error.code 0: it is saved
Saved saver_result(Saver* saver);           // waits for the save to end
// Does the same for a run's last save. If that cannot be written (kExitWrite), it is tried again for `patience`
// seconds, with a warning every half minute, or until stop() becomes true.
Saved saver_retry(Saver* saver, double patience, const std::function<bool()>& stop);
// Waits at most `seconds` until no save is under way in this process. A thread calls it before it ends the process.
void saver_wait(double seconds);
