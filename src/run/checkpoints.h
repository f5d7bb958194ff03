// checkpoints.h -- when a run saves, what state.json contains, what follows a failed save. src/checkpoint writes the
// files.
#pragma once
#include "src/checkpoint/saver.h"
#include "src/run/report.h"

struct Checkpoints {
    Comm* comm = nullptr;
    Reporter* report = nullptr;
    Saver* saver = nullptr;             // rank 0; null elsewhere
    CheckpointFiles files = {};         // rank 0: what is saved; state.json changes from save to save
    JsonLine facts = {};                // rank 0: the part of state.json that stays the same
    bool busy = false;                  // a save is under way; the same on all ranks
    int failed = 0;                     // how many saves in a row have failed
    int64_t step = 0;                   // of the save under way
    double stall = 0;                   // seconds that training has waited for it
};

// Sets *c up, on rank 0 with a saver. files: all but state.json. copy: a save copies the arrays, because training
// changes them while it is written. kExitWrite if the disk has no room.
void checkpoints_create(Checkpoints* c, Comm* comm, Reporter* report, const CheckpointFiles& files, bool copy,
                        const std::string& device_kind);
void checkpoints_destroy(Checkpoints* c);       // waits for the save under way

// Takes the result of a save that has ended. Returns whether to save after this step: --save-every says so, or it is
// the last or the best so far, or a request asks for it. Collective.
bool checkpoints_due(Checkpoints* c, const Progress& at, const StepStats& stats, bool stop);
// Waits for the save under way. last: repeats a failed save for --save-patience seconds, then throws kExitWrite.
// Collective.
void checkpoints_finish(Checkpoints* c, int64_t step, bool last);
// Starts a save of the arrays as they are now; none may be under way. Collective.
void checkpoints_start(Checkpoints* c, const Progress& at);

// Rank 0 reads the state.json to resume from. kExitUsage if the data have changed, kExitBadContent for bad content.
// Adds differences that may change bits to options->changed. Collective.
Progress read_progress(const std::string& checkpoint, Comm* comm, Options* options, const Data& data,
                       const std::string& device_kind);
