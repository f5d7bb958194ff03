// report.h -- what the files of src/run share: the state of a run's reports, and functions for the run's folder that
// reports and saves call.
#pragma once
#include <memory>
#include "src/run/log.h"
#include "src/run/run.h"

struct Reporter : RunFacts {
    std::unique_ptr<Log> log = nullptr;     // on rank 0, after report_begin; else null
    std::string config = {};            // the text of OUT/config.json
    double began = 0, printed = 0;      // now_seconds() at report_begin, and at the last console line about a step
    double spent = 0;                   // seconds of steps and of evaluations, for the time that is left
    int64_t steps_here = 0;             // steps that this process has run
};

void report_place(const Reporter* r);   // kExitWrite: the run's folder was deleted, or another run has locked it
void report_saved(Reporter* r, int64_t step, const std::string& folder, double stall_seconds, double write_seconds);

// Makes ckpt/ in the run's folder and locks it. kExitWrite: another run has locked it, or its disk is missing.
void claim_checkpoints(const Run& run);
void empty_run(const Run& run, bool force);     // --force: removes the old run's files; called after the last check
// Returns the text behind `event`, up to the next comma, where it is last in the log of a run; "": it is not there.
std::string last_event(const std::string& log, const std::string& event);
const char* const kSavedEvent = "{\"event\":\"ckpt\",\"step\":";
void name_last(const std::string& folder);      // points the link runs/last to a folder in runs/; ignores failures
