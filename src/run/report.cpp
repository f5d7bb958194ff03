// report.cpp -- rank 0 reports a run: the header, steps, scores, samples and the end (run.h).
#include "src/run/run.h"
#include <algorithm>
#include <cmath>
#include "src/base/common.h"
#include "src/base/file.h"
#include "src/base/numbers.h"
#include "src/checkpoint/checkpoint.h"

void join_reports(StepStats* s, const std::vector<RankReport>& ranks) {
    for (const RankReport& r : ranks) s->requests |= r.requests;
    s->skipped = !std::isfinite(s->norm);
    s->ranks = ranks;
}

// Returns how many passes the run makes over the training samples of source k.
static double epochs(const Options& o, const Dataset& train, size_t k) {
    return train.weights[k] * double(o.steps) * double(o.total_batch_size / o.shape.T) /
           double(train.begins[k + 1] - train.begins[k]);
}

std::string describe_run(const Options& o, const Data& data, int ranks) {
    const ModelInfo& info = *find_model(o.model);
    std::string text = format("model   %s: %s | context %d | %s parameters", info.title,
                              info.text(o.shape).c_str(), o.shape.T,
                              with_commas(count_parameters(info.tensors(o.shape))).c_str());
    if (o.vocabulary && o.vocabulary != o.shape.V)
        text += format(" (vocabulary %d, %s has %d)", o.shape.V, o.preset.c_str(), o.vocabulary);
    text += trained_of(o).text;
    text += format("\ndata    %s | tokenizer %s, vocabulary %d: a fresh model's loss is near %.4f",
                   data.train.description.c_str(), data.vocabulary.name.c_str(), o.shape.V,
                   same_log(o.shape.V));
    for (size_t k = 0; o.steps > 0 && k < data.train.paths.size(); k++) {
        const double passes = epochs(o, data.train, k);
        const std::string& path = data.train.paths[k];
        text += format(" | %.*f epochs%s%s", passes < 10 ? 2 : 0, passes, path.empty() ? "" : " of ",
                       path.c_str());
    }
    uint64_t scored = 0, all = 0;
    for (size_t k = 0; k < data.val.paths.size(); k++) {
        scored += data.val.batches(k, o.batch_size, o.eval_steps);
        all += data.val.batches(k, o.batch_size, 0);
    }
    if (o.eval_every && scored < all)
        text += format("\nval     first %s of %s batches; --eval-steps 0 takes all",
                       with_commas(scored).c_str(), with_commas(all).c_str());
    text += format(
        "\nbatch   %s tokens = %ld micro-batches of %d x %d, in %d replicas on %d ranks | %ld steps",
        with_commas(o.total_batch_size).c_str(), o.micro_batches(), o.batch_size, o.shape.T,
        o.replicas, ranks, o.steps);
    return text + (o.rate_note.empty() ? "" : "\nlr      " + o.rate_note);
}

std::string many_epochs(const Options& o, const Data& data) {
    double passes = 0;
    for (size_t k = 0; k < data.train.paths.size(); k++)
        passes = std::max(passes, epochs(o, data.train, k));
    if (passes <= 40) return "";
    return format("data: %.0f epochs; give more text, --steps %.0f for 3 or more, or a smaller "
                  "--total-batch-size", passes, std::ceil(3 / passes * o.steps));
}

// Returns the beginning of an event's line.
static JsonLine event(const std::string& name, int64_t step) {
    return JsonLine().add("event", name).add("step", step);
}

// Writes config.json with the resolved options and the facts of this start, such as its ranks and
// device. Writes the facts to metrics.jsonl, too.
static void write_facts(Reporter* r, int64_t step) {
    const Options& o = *r->options;
    Words ranks;
    for (const Comm::Peer& peer : r->comm->peers)
        ranks.push_back(JsonLine().add("host", peer.host).add("pid", peer.pid).text());
    JsonLine facts;
    facts.add("argv", join(o.argv, " "))
        .add("version", version_text())
        .add("device_name", r->device)
        .add("world_size", r->comm->size)
        .add("launcher", r->comm->launcher)
        .raw("ranks", "[" + join(ranks, ",") + "]")
        .add("data_hash", r->data->train.hash)
        .add("params", count_parameters(r->info->tensors(o.shape)))
        .add("tokens_per_step", o.total_batch_size);
    const Dataset& train = r->data->train;
    if (train.rows) facts.add("padding", train.padding);
    for (size_t k = 0; train.paths.size() > 1 && k < train.paths.size(); k++)
        facts.add("epochs/" + train.paths[k], epochs(o, train, k));
    const std::string options = options_to_json(o);
    r->config = options.substr(0, options.rfind('\n')) + ",\n  \"run\": " + facts.text() + "\n}\n";
    write_file_atomic(path_join(r->run->folder(), "config.json"), r->config);
    r->log->event(event(r->run->resumed() ? "resume" : "run", step)
                      .add("name", base_name(o.out_dir))
                      .add(facts));
}

// Returns a warning if the log's last checkpoint is of a later step than `step` and its folder is
// missing, as below a disk that is not mounted. Else returns "".
static std::string missing_save(const std::string& folder, int64_t step) {
    const std::string log = read_file(path_join(folder, "metrics.jsonl")),
                      event = "{\"event\":\"ckpt\",\"step\":";
    const size_t at = log.rfind(event);
    const int64_t saved = at == log.npos ? 0 : std::atol(log.c_str() + at + event.size());
    const std::string lost = path_join(folder, format("ckpt/step_%08ld", saved));
    if (saved <= step || is_directory(lost)) return "";
    return "the log tells of " + shown_path(lost) +
           ", which is not there: is another disk to be mounted on ckpt/?";
}

// Removes what a killed start has left of config.json, and with --force an old run's files.
static void empty_run(const Run& run, bool force) {
    remove_temporaries(path_join(run.folder(), "config.json"));
    if (!force || run.resumed()) return;
    remove_checkpoints(run.folder());
    remove_tree(path_join(run.folder(), "config.json"));
}

void report_begin(Reporter* r, const RunProgress& at) {
    r->began = now_seconds();
    if (r->comm->rank != 0) return;
    const Options& o = *r->options;
    empty_run(*r->run, o.force);
    name_last(o.out_dir);
    r->log = std::make_unique<Log>(r->run->folder(), r->run->resumed());
    give_folder(r->run->lock->folder.fd);
    r->log->text("train_gpt %s | %s | ranks %d (%s), joined by %s\n%s\noutput  %s", version_text(),
                 r->device.c_str(), r->comm->size, r->comm->launcher.c_str(), r->transport.c_str(),
                 describe_run(o, *r->data, r->comm->size).c_str(), o.out_dir.c_str());
    write_facts(r, at.step);
    report_warning(r, at.step, many_epochs(o, *r->data));
    for (const std::string& change : o.changed) report_warning(r, at.step, change);
    report_warning(r, at.step, rate_change(o, at.step));
    if (!r->run->resumed()) {
        if (!o.resume.empty())
            r->log->text("nothing saved in %s yet: starting at step 0", o.out_dir.c_str());
        return;
    }
    const std::string folder = r->run->folder();
    report_warning(r, at.step, missing_save(folder, at.step));
    go_on_from(folder, at.step, at.best_step);
    r->log->text("resumed %s at step %ld", r->run->checkpoint.c_str(), at.step);
}

int report_nothing_to_do(const Options& options, const Run& run, const RunProgress& at) {
    if (run.lock && run.resumed()) {
        name_best(run.folder(), at.best_step);
        for (const std::string& change : options.changed)
            warn("without effect on a finished run: %s", change.c_str());
        std::printf("%s: finished: %ld of %ld steps; a larger --steps goes on\n",
                    run.out_dir.c_str(), at.step, options.steps);
    } else if (run.lock) {
        unclaim_run(run);
        std::printf("--steps 0: nothing to train\n");
    }
    return kExitDone;
}

void report_place(const Reporter* r) {
    if (r->log) check_lock(r->run->lock.get(), "the run folder");
}

// Warns when the mean loss is 4 standard deviations above its lowest, both of about the last 16
// steps: a step far off, or a slow rise. Tells it again only if the loss rises further from there.
// The first loss counts as a deviation, so that less is said while little is known.
static void watch_loss(Reporter* r, const StepStats& s) {
    const double n = double(std::min<int64_t>(r->steps_here + 1, 16)), off = s.loss - r->mean_loss;
    if (!std::isfinite(off)) return;
    r->mean_loss += off / n;
    r->loss_variance += (off * off - r->loss_variance) / n;
    const double limit = r->mean_loss + 4 * std::sqrt(r->loss_variance) + 0.1;
    if (r->mean_loss > r->loss_limit) {
        report_warning(r, s.step,
                       format("the loss rises: got a mean of %.4f by step %ld, want at most %.4f; if it "
                              "stays, go back: --resume OUT/ckpt/step_N with a smaller --lr",
                              r->mean_loss, s.step, r->loss_limit));
        r->loss_limit = limit;
    }
    r->loss_limit = std::min(r->loss_limit, limit);
}

// As a float, so that the log has few digits.
static float ms(double seconds) { return float(seconds * 1e3); }

void report_step(Reporter* r, const StepStats& s) {
    if (!r->log) return;
    report_place(r);
    const Options& o = *r->options;
    const double speed = o.total_batch_size / s.seconds;
    const double flops = r->info->flops_per_token(o.shape, o.shape.T) * speed,
                 mfu = flops / r->peak_flops;
    JsonLine line = event("train", s.step);
    line.add("loss", s.loss)
        .add("lr", s.lr)
        .add("grad_norm", s.norm)
        .add("step_ms", ms(s.seconds))
        .add("tok_s", float(speed))
        .add("tokens", (s.step + 1) * o.total_batch_size)
        .add("mfu", float(mfu))
        .add("compute_ms", ms(s.times.compute))
        .add("comm_ms", ms(s.times.comm))
        .add("exposed_ms", ms(s.times.exposed));
    const auto [fastest, slowest] = std::ranges::minmax_element(
        s.ranks, {}, [](const RankReport& r) { return r.times.compute; });
    if (s.ranks.size() > 1)
        line.add("compute_ms_min", ms(fastest->times.compute))
            .add("compute_ms_max", ms(slowest->times.compute))
            .add("slowest_rank", slowest - s.ranks.begin());
    // A GPU that heat or its power limit slows down makes its rank the slowest.
    const auto [milliwatts, mhz, celsius] = slowest->times.sensors;
    if (milliwatts) line.add("gpu_watts", milliwatts / 1e3);
    if (mhz) line.add("gpu_mhz", mhz);
    if (celsius) line.add("gpu_c", celsius);
    for (const auto& [name, value] : s.measures) line.add(name, value);
    r->log->event(line.add(s.measured));
    watch_loss(r, s);

    const int64_t left = o.steps - 1 - s.step, before = r->steps_here++;
    r->spent = before < 2 ? s.seconds : r->spent + s.seconds;       // the first step is often slow
    const double now = now_seconds(),
                 eta = left * r->spent / std::max<int64_t>(before, 1);
    const bool edge = before == 0 || left == 0;
    if (!edge && (o.log_every == 0 || s.step % o.log_every != 0 || now - r->printed < 1)) return;
    r->printed = now;
    std::string text =
        format("step %5ld/%ld | loss %.4f | lr %.1e | norm %.2f | %.1f ms | %.0f tok/s | ", s.step,
               o.steps, s.loss, s.lr, s.norm, s.seconds * 1e3, speed);
    text += mfu > 0 ? format("mfu %.1f%%", 100 * mfu) : format("%.1f GFLOP/s", flops * 1e-9);
    for (const auto& [name, value] : s.measures) text += format(" | %s %.4g", name, value);
    if (s.ranks.size() > 1)
        text += format(" | comm %.1f ms exposed %.1f", s.times.comm * 1e3, s.times.exposed * 1e3);
    r->log->text("%s | eta %s", text.c_str(), clock_text(eta).c_str());
}

void report_warning(Reporter* r, int64_t step, const std::string& message) {
    if (!r->log || message.empty()) return;
    warn("%s", message.c_str());
    r->log->event(event("warn", step).add("msg", message));
}

void report_score(Reporter* r, int64_t step, const std::vector<double>& losses, double bpb,
                  bool best, double seconds) {
    if (!r->log) return;
    r->spent += seconds;
    JsonLine line = event("val", step);
    line.add("loss", losses[0]).add("bpb", bpb);
    std::string text = std::isfinite(bpb) ? format(" | %.4f bpb", bpb) : "";
    for (size_t k = 1; k < losses.size(); k++) {
        const std::string& path = r->data->val.paths[k - 1];
        line.add("val_loss/" + path, losses[k]);
        text += format(" | %s %.4f", path.c_str(), losses[k]);
    }
    r->log->event(line);
    r->log->text("val  step %ld | loss %.4f%s%s", step, losses[0], text.c_str(),
                 best ? " | best" : "");
}

void report_sample(Reporter* r, int64_t step,
                   const std::function<std::string(const Print&)>& generate) {
    if (!r->log || stop_requested()) return;
    const std::string& prompt = r->options->prompt;
    r->log->text("sample  step %ld", step);
    r->log->piece(prompt);
    const std::string text = generate([r](const std::string& piece) { r->log->piece(piece); });
    r->log->piece("\n");
    r->log->event(event("sample", step).add("prompt", prompt).add("text", text));
}

void report_saved(Reporter* r, int64_t step, const std::string& folder, double stall_seconds,
                  double write_seconds) {
    if (!r->log) return;
    r->log->event(event("ckpt", step)
                      .add("path", folder)
                      .add("stall_ms", ms(stall_seconds))
                      .add("write_ms", ms(write_seconds)));
    r->log->text("saved   %s", folder.c_str());
}

void report_end(Reporter* r, int64_t step, int code, const std::string& why) {
    if (!r->log) return;
    const Options& o = *r->options;
    const std::string folder = shown_path(r->run->folder()), here = shell_quote(folder);
    if (folder != o.out_dir) name_last(folder);             // it was moved
    if (code == kExitStopped)
        r->log->text("%s at step %ld, saved; go on with: %s --resume %s", why.c_str(), step,
                     shell_quote(o.program).c_str(), here.c_str());
    if (code == kExitDone)
        r->log->text("done    %ld steps in %.1f s", r->steps_here,
                     now_seconds() - r->began);

    r->log->event(event("done", step).add("code", code).add("why", why));
    r->log->sync();
    if (code != kExitDone) return;
    if (o.save_every == 0) return r->log->text("nothing was saved (--save-every 0)");
    if (const std::string best = path_join(folder, "ckpt/best"); file_exists(best))
        r->log->text("best    %s", shell_quote(best).c_str());
    const std::string program = shell_quote(o.program), tool = tool_path("export"),
                      hf = path_join(folder, format("step_%08ld-hf", step));
    r->log->text("next    %s %s %s\n        %s --resume %s --steps %ld", program.c_str(),
                 r->data->vocabulary.chats ? "chat" : "sample", here.c_str(), program.c_str(),
                 here.c_str(), 2 * step);
    if (file_exists(tool))
        r->log->text("        %s %s\n        %s %s --hf %s",
                     shell_quote(tool_path("report")).c_str(), here.c_str(),
                     shell_quote(tool).c_str(), here.c_str(), shell_quote(hf).c_str());
}

void report_failure(Reporter* r, int64_t step) try {
    throw;
} catch (const Error& e) {
    report_end(r, step, e.code, e.message);
} catch (const std::exception& e) {
    report_end(r, step, kExitOther, e.what());
}
