// saver.cpp -- see saver.h.
#include "saver.h"
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <unistd.h>
#include <vector>
#include "common.h"
#include "fault.h"

namespace {

// In the host's memory. Saves are counted from 1, alike on all ranks; a count is stored when what it stands for is there.
struct Slot { std::atomic<uint64_t> written; int code; char message[400]; CheckpointPart part; };
struct Board {
    std::atomic<uint64_t> begun, over;
    Slot* slots() { return reinterpret_cast<Slot*>(this + 1); }         // of the local ranks
};

}  // namespace

struct Saver {
    Comm* comm;
    std::string out_dir;
    int keep;
    Board* board;
    uint64_t count = 0;
    bool busy = false;
    std::thread thread;
    std::atomic<bool> ready{false}, joining{false};     // joining: the main thread waits for this one
    double begin;
    CheckpointFiles files;
    std::function<void()> before_commit;
    size_t base, n;                     // elements of this rank's part
    std::unique_ptr<float[]> copy;      // (3, n)  their master, m, v; null: nothing is copied
    std::vector<uint32_t> sums;
    Saved saved;
};

namespace {

// Threads of other processes: nothing to wait on but their memory. A rank that is gone ends this process (comm.h); one that hangs is the one
// that does not say it waits.
void wait_for(Saver* s, const std::atomic<uint64_t>& counter) {
    bool said = false;
    for (; counter.load(std::memory_order_acquire) < s->count; usleep(1000))
        if (s->joining && !said) comm_waits(s->comm, said = true);
    if (said) comm_waits(s->comm, false);
}

// Runs f; what it throws is left in *code and *message.
template <class F> void guarded(int* code, std::string* message, F f) {
    try { f(); }
    catch (const Error& e) { *code = e.code; *message = e.message; }
    catch (const std::exception& e) { *code = kExitOther; *message = e.what(); }        // no memory
}

void write_part(Saver* s) {
    const int rank = s->comm->local_rank;
    Slot& mine = s->board->slots()[rank];
    mine.code = 0;
    std::string message;
    guarded(&mine.code, &message, [&] {
        if (rank == 0) begin_checkpoint(s->out_dir, s->saved.step, s->files);
        if (rank == 0) s->board->begun.store(s->count, std::memory_order_release);
        wait_for(s, s->board->begun);
        mine.part = write_checkpoint_part(s->out_dir, s->saved.step, s->files, rank, s->comm->local_size);
    });
    std::snprintf(mine.message, sizeof mine.message, "%s", message.c_str());
    if (rank == 0) s->board->begun.store(s->count, std::memory_order_release);          // after a failure the others find no files, and fail too
    mine.written.store(s->count, std::memory_order_release);
}

void commit(Saver* s) {
    Error& error = s->saved.error;
    for (int r = 0; r < s->comm->local_size; r++) {
        const Slot& slot = s->board->slots()[r];
        wait_for(s, slot.written);
        if (slot.code && !error.code) guarded(&error.code, &error.message, [&] { die(slot.code, "%s", slot.message); });
    }
    if (!error.code) guarded(&error.code, &error.message, [&] {
        std::vector<CheckpointPart> parts;
        for (int r = 0; r < s->comm->local_size; r++) parts.push_back(s->board->slots()[r].part);
        s->before_commit();
        s->saved.folder = commit_checkpoint(s->out_dir, s->saved.step, s->files, s->keep, parts);
    });
    if (error.code) guarded(&error.code, &error.message, [&] { cancel_checkpoint(s->out_dir, s->saved.step); });
}

void run(Saver* s) {
    write_part(s);
    if (s->comm->rank == 0) commit(s);
    s->saved.seconds = now_seconds() - s->begin;
    if (s->comm->rank == 0) s->board->over.store(s->count, std::memory_order_release);
    s->ready = true;
}

}  // namespace

Saver* saver_create(Comm* comm, const Arena* arena, bool copy, const std::string& out_dir, int keep) {
    Saver* s = new Saver;
    s->comm = comm; s->out_dir = out_dir; s->keep = keep;
    s->base = part_begin(*arena, comm->local_rank, comm->local_size);
    s->n = part_begin(*arena, comm->local_rank + 1, comm->local_size) - s->base;
    if (copy && comm->host == 0) s->copy = std::make_unique_for_overwrite<float[]>(3 * s->n);
    const size_t bytes = sizeof(Board) + size_t(comm->local_size) * sizeof(Slot);
    s->board = static_cast<Board*>(comm_shared(comm, bytes, "what the writers of a checkpoint tell each other"));
    return s;
}

void saver_destroy(Saver* s) {
    if (s && s->busy) saver_result(s);
    if (s && s->comm->host == 0) wait_for(s, s->board->over);        // who leaves now may end rank 0 in its commit
    delete s;
}

void saver_start(Saver* s, int64_t step, const CheckpointFiles& files, std::function<void()> before_commit) {
    CHECK(!s->busy && step >= 0, "saver_start: step %lld", (long long)step);
    s->begin = now_seconds();
    s->saved = {.step = step, .error = {}, .folder = "", .seconds = 0};
    fault_point("ckpt_copy", s->comm->rank, step);
    s->files = files;
    s->files.moved = [comm = s->comm] { comm_moved(comm); };
    s->before_commit = std::move(before_commit);
    if (s->copy) {
        float* to = s->copy.get();
        for (const float** array : {&s->files.master, &s->files.m, &s->files.v}) {
            *array = static_cast<const float*>(std::memcpy(to, *array + s->base, s->n * sizeof(float)));
            to += s->n;
        }
        if (files.sums) s->sums.assign(files.sums + s->base / kUnit, files.sums + (s->base + s->n) / kUnit);
        if (files.sums) s->files.sums = s->sums.data();
        s->files.base = s->base;
    }
    s->busy = true;
    s->count++;
    s->ready = s->comm->host > 0;               // other hosts' ranks write nothing
    if (s->ready) return;
    try { s->thread = std::thread(run, s); }
    catch (const std::exception&) { run(s); }   // no memory, no thread: training waits
}

bool saver_busy(const Saver* s) { return s->busy; }
bool saver_ready(const Saver* s) { return s->busy && s->ready; }

Saved saver_result(Saver* s) {
    s->joining = true;
    if (s->thread.joinable()) s->thread.join();
    s->joining = s->busy = false;
    return s->saved;
}
