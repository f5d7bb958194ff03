// checkpoints.h -- when a run saves, what state.json says, what a failed save does. src/checkpoint writes it.
#pragma once
#include "src/app/report.h"
#include "src/checkpoint/saver.h"

struct Checkpoints {
    Comm* comm = nullptr;
    Reporter* report = nullptr;
    Saver* saver = nullptr;             // rank 0; null elsewhere
    CheckpointFiles files = {};         // rank 0: what is saved; state.json changes from save to save
    JsonLine facts = {};                // rank 0: the part of state.json that stays the same
    bool busy = false;                  // a save is under way; alike on all ranks
    int failed = 0;                     // saves in a row
    int64_t step = 0;                   // of the save under way
    double stall = 0;                   // seconds training stood still for it
};

// files: all but state.json. copy: their arrays change while a save is written. kExitWrite if the disk has no room.
void checkpoints_create(Checkpoints* c, Comm* comm, Reporter* report, const CheckpointFiles& files, bool copy,
                        const std::string& device_kind);
void checkpoints_destroy(Checkpoints* c);       // waits for the save under way

// Takes the result of a save that has ended, and returns whether to save after this step: a regular one, the last, the
// best so far, or one that was asked for. Collective.
bool checkpoints_due(Checkpoints* c, const Progress& at, const StepStats& stats, bool stop);
// Waits for the save under way. last: tries for --save-patience seconds; kExitWrite after that. Collective.
void checkpoints_finish(Checkpoints* c, int64_t step, bool last);
// Starts a save of the arrays as they are now; none may be under way. Collective.
void checkpoints_start(Checkpoints* c, const Progress& at);

// Rank 0 reads the state.json to resume from. kExitUsage if the data have changed, kExitBadContent for bad content.
// Adds differences that may change bits to options->changed. Collective.
Progress read_progress(const std::string& checkpoint, Comm* comm, Options* options, const Data& data,
                       const std::string& device_kind);
