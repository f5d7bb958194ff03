// checkpoints.cpp -- decides when a run saves, what state.json contains and what follows a failed
// save (run.h). src/checkpoint writes the files.
#include <cmath>
#include "src/checkpoint/checkpoint.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/run/run.h"

struct Checkpoints {
    Comm* comm;
    Reporter* report;
    Saver* saver = nullptr;             // rank 0; null elsewhere
    // Rank 0: what is saved. state.json changes from save to save.
    CheckpointFiles files = {};
    std::string device_kind = {};
    bool busy = false;                  // a save is under way; the same on all ranks
    int failed = 0;                     // how many saves in a row have failed
    int64_t step = 0;                   // the step of the save under way
    int64_t best = -1;                  // the best step that was saved before its score
    double stall = 0;                   // seconds for which training has waited for this save
};

// In version 1 an optimizer's rule for matrices took those that are stacked in one tensor as one.
constexpr int kStateVersion = 2, kMaxFailed = 3;

Checkpoints* checkpoints_create(Comm* comm, Reporter* report, const CheckpointFiles& files,
                                bool copy, const std::string& device_kind) {
    const Options& o = *report->options;
    const Run& run = *report->run;
    auto c = std::make_unique<Checkpoints>(Checkpoints{.comm = comm, .report = report});
    if (comm->rank != 0) return c.release();
    const bool saves = o.save_every > 0;
    // Before anything in it changes.
    if (saves || file_exists(path_join(run.folder(), "ckpt"))) claim_checkpoints(run);
    if (saves) try_rename(run.folder());
    // On a resume and with --force this check would come too early: old files are removed before
    // the first save.
    if (saves && !run.resumed() && !o.force) require_space(run.folder(), files);
    // A process that ends waits at most --timeout seconds for the save under way, because a disk
    // may hang.
    comm_at_end(comm, [seconds = o.timeout] { saver_wait(seconds); });
    c->saver = saver_create(files, copy, run.folder());
    c->files = files;
    c->files.progress = [comm] { comm_still_works(comm); };
    c->device_kind = device_kind;
    return c.release();
}

void checkpoints_destroy(Checkpoints* c) {
    if (!c) return;
    comm_progress(c->comm, -1, "checkpoint");
    saver_destroy(c->saver);
    delete c;
}

bool checkpoints_saved(const Checkpoints* c) { return saver_ready(c->saver); }

void checkpoints_best(Checkpoints* c, int64_t step) {
    c->best = step;
    if (c->saver && !c->busy) name_best(c->report->run->folder(), step);
}

// After a failed save training goes on to the next one, because a disk may be full for a while
// only. The third failure in a row ends the run.
void checkpoints_finish(Checkpoints* c, int64_t step, bool last) {
    if (!c->busy) return;
    comm_progress(c->comm, step, "checkpoint");
    const double begin = now_seconds();
    const auto stop = [&] {
        report_place(c->report);
        return stop_requested() != 0;
    };
    Saved saved = {};
    if (c->saver && last) saved = saver_retry(c->saver, c->report->options->save_patience, stop);
    else if (c->saver) saved = saver_result(c->saver);
    // All ranks get rank 0's result.
    const std::string why = comm_first_text(c->comm, saved.error.message);
    c->busy = false;
    c->stall += now_seconds() - begin;
    c->failed = why.empty() ? 0 : c->failed + 1;
    if (c->best == c->step) checkpoints_best(c, c->step);
    if (why.empty()) return report_saved(c->report, c->step, saved.folder, c->stall, saved.seconds);
    if (last || c->failed == kMaxFailed) die(kExitWrite, "%s", why.c_str());
    report_warning(c->report, c->step, "not saved: " + why + "; training goes on to the next save");
}

bool checkpoints_due(Checkpoints* c, const RunProgress& at, const StepStats& stats, bool stop) {
    const Options& o = *c->report->options;
    const bool is_due = is_multiple(at.step, o.save_every) || is_multiple(at.step, o.keep_every);
    if (stats.ranks[0].saved) checkpoints_finish(c, at.step, false);
    if (stop || (stats.requests & kSaveRequest)) return true;
    // While gradients are not finite the weights may be bad: a regular save of them would replace
    // good ones.
    return o.save_every > 0 && (at.step == o.steps || (is_due && at.bad_steps == 0));
}

void checkpoints_start(Checkpoints* c, const RunProgress& at) {
    const double begin = now_seconds();
    c->busy = true;
    c->step = at.step;
    if (c->saver) {
        const Data& data = *c->report->data;
        JsonLine identity, state;
        for (const auto& [name, value] : options_identity(*c->report->options))
            identity.raw(name.c_str(), json_quote(value, true));
        if (c->files.frozen_crc) state.add("base_crc", *c->files.frozen_crc);
        state.add("version", kStateVersion)
            .add("program", version_text())
            .add("device", c->device_kind)
            .raw("options", identity.text())
            .add("data_hash", data.train.hash)
            .add("val_hash", data.val.hash)
            .add("step", at.step)
            .add("tokens", at.step * c->report->options->total_batch_size)
            .add("bad_steps", at.bad_steps)
            .add("best_val", at.best_val)
            .add("best_step", at.best_step);
        for (size_t i = 0; i < at.sums.size(); i++)
            state.add(format("sum%zu", i).c_str(), at.sums[i]);
        c->files.state_json = state.text() + "\n";
        c->files.best_step = at.best_step;
        report_place(c->report);
        saver_start(c->saver, at.step, c->files, [run = c->report->run, report = c->report] {
            claim_checkpoints(*run);
            const std::string config = path_join(run->folder(), "config.json");
            // A user may have deleted it.
            if (!file_exists(config)) write_file_atomic(config, report->config);
            report->log->sync();
        });
    }
    // Rank 0 has copied the arrays (or none needs a copy): training may go on.
    comm_barrier(c->comm);
    c->stall = now_seconds() - begin;
}

// Returns the score in the log that the weights of `step` got after their save; NaN: there is none.
// It is behind the line of their last step, if that is there: before that line it would be of
// another attempt.
static double logged_score(const std::string& folder, int64_t step) {
    const std::string path = path_join(folder, "metrics.jsonl"),
                      log = file_exists(path) ? read_file(path) : "";
    const std::string score = format("{\"event\":\"val\",\"step\":%ld,\"loss\":", step);
    const size_t trained =
        log.rfind(format("{\"event\":\"train\",\"step\":%ld,", step - 1));
    const size_t at = log.rfind(score), begin = at + score.size();
    double loss = NAN;
    if (at != log.npos && (trained == log.npos || trained < at))
        parse_whole(log.substr(begin, log.find(',', begin) - begin), &loss);
    return loss;
}

RunProgress read_progress(const Run& run, Comm* comm, Options* options, const Data& data,
                          const std::string& device_kind) {
    const std::string path = path_join(run.checkpoint, "state.json"),
                      folder = base_name(run.checkpoint);
    const char* const where = path.c_str();
    const std::string text = comm_first_text(comm, comm->rank == 0 ? read_file(path) : "");
    const Json state = parse_json(text, where, true);
    if (state.get_string("data_hash", where) != data.train.hash)
        die(kExitUsage,
            "--data: %s: got other data or weights than the run began with; give those, or begin a new "
            "run with --init",
            options->data.c_str());
    const Json eval_steps = state.find("options").find("eval-steps");
    const bool scores_differ =
        state.get_string("val_hash", where) != data.val.hash ||
        (eval_steps && eval_steps.text() != std::to_string(options->eval_steps));
    if (scores_differ)
        options->changed.push_back(
            "the validation data or --eval-steps have changed: earlier validation losses do not "
            "compare, and ckpt/best is chosen anew");
    const std::pair<const char*, std::string> ours[] = {{"program", version_text()},
                                                        {"device", device_kind}};
    for (const auto& [key, now] : ours)
        if (const Json was = state.find(key); was && was.text() != now)
            options->changed.push_back(
                format("another %s: got %s, the checkpoint is of %s; the bits may differ", key,
                       now.c_str(), json_shown(was).c_str()));
    for (const auto& [name, value] : options_identity(*options, true))
        if (const Json had = state.find("options").find(name); had && had.text() != value)
            die_content(format("%s: --%s", where, name.c_str()), json_shown(had),
                        value + " as in the run's config.json");
    const OptimizerInfo& optimizer = *all_optimizers()[size_t(find_optimizer(options->optimizer))];
    if (optimizer.whole && state.get_u64("version", where) < kStateVersion)
        die(kExitBadContent,
            "%s: version: got 1, want 2: the run's %s took stacked matrices, as q, k and v, as one; "
            "begin a new run with --init %s", where, optimizer.name, run.checkpoint.c_str());
    const uint64_t step = state.get_u64("step", where), bad = state.get_u64("bad_steps", where);
    if (step > INT64_MAX ||
        (folder.starts_with("step_") && folder != format("step_%08lu", step)))
        die_content(path + ": step", std::to_string(step), "that of " + folder);
    if (bad > 4) die_content(path + ": bad_steps", std::to_string(bad), "less than 5");
    RunProgress at = {.step = int64_t(step), .bad_steps = int(bad), .unscored = true};
    at.sums.resize(size_t(optimizer.sums));
    for (size_t i = 0; i < at.sums.size(); i++)
        at.sums[i] = state.get_double(format("sum%zu", i), where);
    if (scores_differ) return at;
    state.find("best_val").as_double(&at.best_val);
    // Older checkpoints do not have it.
    parse_whole(state.find("best_step").text(), &at.best_step);
    const double score =
        comm_gather(comm, comm->rank == 0 ? logged_score(run.folder(), at.step) : NAN)[0];
    at.unscored = std::isnan(score);
    if (score < at.best_val) at.best_val = score, at.best_step = at.step;
    return at;
}
