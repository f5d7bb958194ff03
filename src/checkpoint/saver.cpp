// saver.cpp -- saves checkpoints in another thread: see checkpoint.h.
#include "src/checkpoint/checkpoint.h"
#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <sys/resource.h>
#include <unistd.h>
#include <utility>

struct Saver {
    std::string out_dir;
    int keep;
    std::unique_ptr<float[]> copy;          // memory for a copy of all arrays; null: saves do not copy
    int64_t step = 0;
    double begin = 0;
    CheckpointFiles files = {};
    std::function<void()> before_commit = {};
    std::future<Saved> result = {};         // the last member, so destroyed first: that waits for the writer
};

static std::atomic<bool> under_way{false};  // a save is under way in this process

static Saved save(Saver* s) {
    under_way = true;
    Saved saved = {};
    try {
        s->before_commit();
        saved.folder = write_checkpoint(s->out_dir, s->step, s->files, s->keep);
    } catch (const Error& e) {
        saved.error = e;
    } catch (const std::exception& e) {     // such as std::bad_alloc
        saved.error = {kExitOther, e.what()};
    }
    saved.seconds = now_seconds() - s->begin;
    under_way = false;
    return saved;
}

Saver* saver_create(const CheckpointFiles& files, bool copy, const std::string& out_dir, int keep) {
    rlimit most;
    getrlimit(RLIMIT_FSIZE, &most);
    uint64_t weights = 0, state = 0, all = 0;
    for (const NamedArray& array : files.arrays) {
        const Arena& arena = array.arena(*files.arena);
        (array.name.empty() ? weights : state) += count_parameters(arena.tensors) * sizeof(float);
        all += arena.n;
    }
    const uint64_t want = std::max(weights, state);
    if (most.rlim_cur < want)
        die(kExitWrite, "ulimit -f: got files of %s bytes, want %s for a checkpoint; raise it",
            with_commas(most.rlim_cur).c_str(), with_commas(want).c_str());
    // make_unique writes zeros to the memory, so that too little memory is noticed now and not in the first save.
    return new Saver{out_dir, keep, copy ? std::make_unique<float[]>(all) : nullptr};
}

void saver_destroy(Saver* s) { delete s; }

void saver_start(Saver* s, int64_t step, const CheckpointFiles& files, std::function<void()> before_commit) {
    CHECK(!s->result.valid() && step >= 0, "saver_start: step %lld", (long long)step);
    fault_point("ckpt_copy", 0, step);
    s->begin = now_seconds();
    s->step = step;
    s->files = files;
    s->before_commit = std::move(before_commit);
    float* to = s->copy.get();
    for (NamedArray& array : s->files.arrays) {
        if (!s->copy) break;
        const size_t n = array.arena(*files.arena).n;
        std::copy_n(array.data, n, to);
        array.data = std::exchange(to, to + n);
    }
    under_way = true;                       // here too, because the thread may begin later
    s->result = std::async(save, s);        // if no thread can be started, saver_result runs save
}

bool saver_ready(const Saver* s) {
    return s && s->result.valid() && s->result.wait_for(std::chrono::seconds(0)) != std::future_status::timeout;
}

Saved saver_result(Saver* s) {
    for (Countdown left{"the save"}; !saver_ready(s); usleep(1000)) left.at();
    return s->result.get();
}

Saved saver_retry(Saver* s, double patience, const std::function<bool()>& stop) {
    Saved saved = saver_result(s);
    const bool stopped = stop();            // a request that came earlier does not end the wait
    const double begin = now_seconds();
    for (int tick = 0; saved.error.code == kExitWrite; tick++) {
        const double left = begin + patience - now_seconds();
        if (left <= 0 || (stop() && !stopped)) break;
        if (tick % 300 == 0)
            warn("not saved: %s; the last save is tried again for %.0f seconds more, or until a signal to stop",
                 saved.error.message.c_str(), left);
        usleep(100000);
        s->files.progress();                // waiting counts as progress
        if (tick % 20 == 19) saved = save(s);
    }
    return saved;
}

void saver_wait(double seconds) {
    for (const double end = now_seconds() + seconds; under_way && now_seconds() < end;) usleep(1000);
}
