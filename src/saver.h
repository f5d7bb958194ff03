// saver.h -- checkpoints in the background: the state is copied while training stands still, and written while it goes on.
//
//     main threads   ... step | copy |  step  |  step  |  step  | (rank 0 reports in the step's message that its thread is done) ...
//     writers                        | write own part ... | wait for the others' parts, commit (rank 0) |
//
// The ranks of the first host write, each its part (checkpoint.h); they meet in memory they share, so that no collective is needed until the
// end. One save at a time. The copy takes 12 bytes per parameter, over all ranks of the host; on a GPU none is needed beside the
// host's copy of the state, which training does not touch.
#pragma once
#include <functional>
#include <string>
#include "checkpoint.h"
#include "comm.h"
#include "common.h"

struct Saver;
// Collective. copy: a save copies the arrays it is given, which may change when all ranks have returned from saver_start; else they stay as
// they are until it is done.
Saver* saver_create(Comm* comm, const Arena* arena, bool copy, const std::string& out_dir, int keep);
void saver_destroy(Saver* saver);           // waits for the save under way

// Starts a save; none may be under way. before_commit: rank 0's thread calls it when all parts are there.
void saver_start(Saver* saver, int64_t step, const CheckpointFiles& files, std::function<void()> before_commit);
bool saver_busy(const Saver* saver);        // a save was started and its result not yet taken
bool saver_ready(const Saver* saver);       // and it is there

// The result, waited for. On rank 0 the whole save's, elsewhere that of this rank's part is of no interest.
struct Saved { int64_t step; Error error; std::string folder; double seconds; };        // error.code 0: it is saved
Saved saver_result(Saver* saver);
