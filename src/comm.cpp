// comm.cpp -- the life of a job: meeting, small collectives, bytes between hosts, watching each other, the end.
//
// A rank's life, and who may end it:
//
//     meeting     rendezvous.cpp; an Error is thrown to the caller and told to those who are there
//     running     the watching thread sends this rank's record to rank 0 every second (rank 0: to all), reads what comes, and judges:
//                   connection closed without a farewell               -> peer lost
//                   no record for `timeout` seconds                    -> peer stuck (stopped, or cut off)
//                   record does not advance, is not waiting, and another rank has waited for `timeout` seconds -> peer stuck
//                   all ranks wait and none advances                   -> the collectives differ, or GPUs that wait are stuck
//                 Rank 0 judges all, the others only rank 0's silence. The first verdict wins: rank 0 spreads it, each rank
//                 prints that one line and _exits; the main thread never learns of it, so no wait needs a deadline of its own.
//     aborting    comm_abort: the main thread has an Error; its text becomes the verdict, the watching thread falls silent
//     leaving     comm_destroy: after a last barrier a farewell is sent, then a closed connection means nothing
//
// `ending` is the one flag between the last three: who sets it first ends the process.
//
// A record says (step, phase, count, waiting); it lies in memory shared by a host's ranks, so that rank 0 knows the last step of a
// dead neighbour exactly. A rank that waits for others inside a collective is marked as waiting: it is a victim, not a culprit.
#include "comm.h"
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <linux/futex.h>
#include <mutex>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include "common.h"
#include "file.h"
#include "rendezvous.h"

namespace {

constexpr size_t kChunk = size_t(1) << 20;          // bytes of a rank that go through the mailbox at a time, or a call between hosts
constexpr size_t kSegmentAlign = size_t(2) << 20;   // a huge page, where the kernel gives them to shared memory
constexpr uint32_t kForGpu = 1 << 16;
constexpr double kStartFactor = 5;                  // start-up, the first step and a checkpoint take longer than other steps

struct Snapshot {
    int64_t step;
    uint64_t count;         // grows with everything the rank does
    uint32_t waiting;       // threads inside a collective, and kForGpu while its GPU is waited for
    uint32_t steady;        // the first step is over
    char phase[24];
};

// One writer (a process), many readers (its neighbours): each field is whole, together they may be a moment apart.
struct alignas(64) Record {
    std::atomic<int64_t> step;
    std::atomic<uint64_t> count;
    std::atomic<uint32_t> waiting, steady;
    std::atomic<uint64_t> phase[3];
};

struct alignas(64) Barrier {
    std::atomic<uint32_t> arrived;
    alignas(64) std::atomic<uint32_t> turn;         // the futex: grows when all have arrived
    std::atomic<uint32_t> sleepers;
};

// What a rank thinks it is doing; ranks that disagree are told so instead of exchanging nonsense.
enum class Op : uint32_t { barrier, allgather, broadcast, shared, scatter, gather };
const char* const kOpNames[] = {"barrier", "all-gather", "broadcast", "shared memory", "scatter between hosts", "gather between hosts"};
struct Call { Op op; int32_t root; uint64_t number, bytes; };

// At the start of a host's memory. Behind it: Record[local_size], Call[2][local_size], then two halves of the mailbox.
struct HostMemory {
    Barrier barriers[2];
    std::atomic<int> error;             // errno of the leader's last attempt to grow the memory
    std::atomic<uint64_t> available;    // bytes there were then
};

enum class Kind : uint32_t { record = 1, verdict, abort, farewell };
struct Message { Kind kind; int32_t code; Snapshot record; char text[448]; };

// What the watching thread knows of another rank.
struct Watched {
    int fd = -1;                        // -1: this rank itself, no connection, or closed
    bool farewell = false;
    size_t got = 0;                     // bytes of `incoming` that are there
    Message incoming;
    Snapshot record = {};
    double heard = 0, advanced = 0;     // when a record came, and when it last differed
};

}  // namespace

struct Comm::Impl {
    Meeting meeting;
    std::vector<int> data, leaders;     // connections by host: among equal local ranks; among the hosts' first ranks
    int memory = -1;
    size_t memory_bytes = 0;
    std::vector<std::pair<void*, size_t>> maps;
    HostMemory* host = nullptr;
    Record* records = nullptr;          // by local rank
    Call* calls = nullptr;              // [2][local_size]
    char* mailbox = nullptr;            // [2][size * kChunk]
    uint64_t turn = 0;                  // halves alternate: one barrier per chunk is enough
    uint64_t number = 0, data_number = 0;

    Record early = {};                  // until `records` is there
    std::atomic<Record*> record{&early};
    int64_t first_step = -1;

    std::vector<Watched> watched;       // rank 0: by rank; others: [0] only
    std::thread watcher;
    int wake = -1;                      // eventfd: the watching thread stops
    std::atomic<bool> ending{false};
    std::mutex mutex;                   // of clean_up
    std::function<void()> clean_up = [] {};
};

namespace {

using Impl = Comm::Impl;

// -------------------------------------------------------------------------------------------------------------- records

void set_phase(Record* r, const char* phase) {
    uint64_t words[3] = {};
    std::memcpy(words, phase, std::min(std::strlen(phase), sizeof words - 1));
    for (int i = 0; i < 3; i++) r->phase[i].store(words[i], std::memory_order_relaxed);
}

Snapshot read_record(const Record* r) {
    Snapshot s = {};
    uint64_t words[3];
    for (int i = 0; i < 3; i++) words[i] = r->phase[i].load(std::memory_order_relaxed);
    std::memcpy(s.phase, words, sizeof words);
    s.step = r->step.load(std::memory_order_relaxed);
    s.count = r->count.load(std::memory_order_relaxed);
    s.waiting = r->waiting.load(std::memory_order_relaxed);
    s.steady = r->steady.load(std::memory_order_relaxed);
    return s;
}

// Marks a thread as waiting for other ranks.
struct Waiting {
    Record* r;
    explicit Waiting(Impl* impl) : r(impl->record.load(std::memory_order_relaxed)) {
        r->waiting.fetch_add(1, std::memory_order_relaxed);
        r->count.fetch_add(1, std::memory_order_relaxed);
    }
    ~Waiting() {
        r->waiting.fetch_sub(1, std::memory_order_relaxed);
        r->count.fetch_add(1, std::memory_order_relaxed);
    }
    void moved() { r->count.fetch_add(1, std::memory_order_relaxed); }
};

// The newest record of a rank: from shared memory if it is on this host, else the last one that came.
Snapshot last_record(const Comm* comm, int rank) {
    const Impl* impl = comm->impl;
    if (rank == comm->rank) return read_record(impl->record.load());
    if (impl->record.load() != &impl->early && rank / comm->local_size == comm->host)
        return read_record(&impl->records[rank % comm->local_size]);
    return impl->watched[size_t(rank)].record;
}

std::string describe(const Comm* comm, int rank) {
    const Comm::Peer& p = comm->peers[size_t(rank)];
    return format("rank %d (host %s, pid %d)", rank, p.host.c_str(), p.pid);
}

std::string last_seen(const Comm* comm, int rank) {
    const Snapshot s = last_record(comm, rank);
    return s.phase[0] ? format("last step %lld, phase %s", (long long)s.step, s.phase) : "not yet at its first step";
}

// ------------------------------------------------------------------------------------------------------------- watching

// To rank 0, or from rank 0 to all. Connections that fail show it when they are read.
void send_message(Comm* comm, Kind kind, int code = 0, const std::string& text = "") {
    Message m = {kind, code, read_record(comm->impl->record.load()), {}};
    std::snprintf(m.text, sizeof m.text, "%s", text.c_str());
    for (Watched& w : comm->impl->watched)
        if (w.fd >= 0) send_all(w.fd, &m, sizeof m, 0.1);
}

// What was sent last must arrive: closing a socket with unread bytes in it would discard it. So: no more from us, and read until
// the others close too, for at most `seconds` (a stopped process never does). True if all did.
bool wait_for_close(Comm* comm, double seconds) {
    const double deadline = now_seconds() + seconds;
    char discarded[4096];
    for (Watched& w : comm->impl->watched) {
        if (w.fd < 0) continue;
        shutdown(w.fd, SHUT_WR);
        while (receive_all(w.fd, discarded, 1, deadline - now_seconds())) {}
    }
    return now_seconds() < deadline;
}

// The verdict: spread by rank 0, and the process is over. Not if the main thread is ending it already. That a peer is lost is said by
// every rank, for each may be the only one whose output survives; an error of a rank's own (abort) is said once, by rank 0.
void end_job(Comm* comm, int code, const std::string& text, Kind kind = Kind::verdict) {
    if (comm->impl->ending.exchange(true)) return;
    if (comm->rank == 0) send_message(comm, kind, code, text);
    if (kind == Kind::verdict || comm->rank == 0) print_error({code, text});
    if (comm->rank == 0) wait_for_close(comm, 0.3);
    const std::lock_guard lock(comm->impl->mutex);
    comm->impl->clean_up();
    _exit(code);
}

void handle_message(Comm* comm, int rank, const Message& m) {
    Watched& w = comm->impl->watched[size_t(rank)];
    w.heard = now_seconds();
    if (m.kind == Kind::farewell) w.farewell = true;
    if (m.kind == Kind::verdict || m.kind == Kind::abort) end_job(comm, m.code, std::string(m.text, strnlen(m.text, sizeof m.text)), m.kind);
    if (m.kind != Kind::record) return;
    if (m.record.count != w.record.count) w.advanced = w.heard;
    w.record = m.record;
    w.record.phase[sizeof w.record.phase - 1] = 0;
}

// Reads all that has come from a rank.
void listen_to(Comm* comm, int rank) {
    Watched& w = comm->impl->watched[size_t(rank)];
    while (w.fd >= 0) {
        const ssize_t n = recv(w.fd, reinterpret_cast<char*>(&w.incoming) + w.got, sizeof w.incoming - w.got, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) {
            close(w.fd);
            w.fd = -1;
            if (w.farewell) return;
            end_job(comm, kExitPeer, format("peer lost: %s: connection closed; %s; run again with --resume to go on",
                describe(comm, rank).c_str(), last_seen(comm, rank).c_str()));
            return;
        }
        w.got += size_t(n);
        if (w.got < sizeof w.incoming) continue;
        w.got = 0;
        handle_message(comm, rank, w.incoming);
    }
}

void end_stuck(Comm* comm, int rank, double seconds) {
    end_job(comm, kExitPeer, format("peer stuck: %s: no progress for %.0f s, %s; run again with --resume to go on",
        describe(comm, rank).c_str(), seconds, last_seen(comm, rank).c_str()));
}

// Rank 0 on all, the others on rank 0. `now` is after everything that had come was read.
void judge(Comm* comm, double now) {
    std::vector<Watched>& all = comm->impl->watched;
    for (size_t r = 0; r < all.size(); r++)
        if (all[r].fd >= 0 && now - all[r].heard > comm->timeout) end_stuck(comm, int(r), comm->timeout);
    if (comm->rank != 0) return;
    const Snapshot own = read_record(comm->impl->record.load());
    if (own.count != all[0].record.count) all[0].advanced = now;
    all[0].record = own;

    // The longest wait of any rank, and among those who do not wait the one that has not moved for longest.
    double longest_wait = 0, longest_still = 0, least_still = now;
    int culprit = -1;
    bool steady = true, for_gpu = false;
    for (size_t r = 0; r < all.size(); r++) {
        if (r > 0 && all[r].fd < 0) return;                 // somebody said farewell: nothing to wait for any more
        const double still = now - all[r].advanced;
        least_still = std::min(least_still, still);
        steady &= all[r].record.steady != 0;
        for_gpu |= all[r].record.waiting >= kForGpu;
        if (all[r].record.waiting) longest_wait = std::max(longest_wait, still);
        else if (still > longest_still) longest_still = still, culprit = int(r);
    }
    // Writing a checkpoint may block in one fsync for longer than a step ever takes. Who hangs there, all others may be behind, waiting for theirs.
    const bool saving = culprit >= 0 && std::strcmp(all[size_t(culprit)].record.phase, "checkpoint") == 0;
    const double limit = steady && !saving ? comm->timeout : kStartFactor * comm->timeout;
    if (culprit >= 0 && longest_still > limit && (longest_wait > limit || saving)) end_stuck(comm, culprit, limit);
    if (culprit < 0 && least_still > limit) {
        std::string text = format("%s: all %d ranks have waited for each other for %.0f s", for_gpu ? "the GPUs are stuck" : "collectives differ", comm->size, limit);
        for (int r = 0; r < comm->size && r < 8; r++) text += format("; rank %d: %s", r, last_seen(comm, r).c_str());
        if (for_gpu) text += "; look at the network between the GPUs (NCCL_DEBUG=INFO, --selftest)";
        end_job(comm, for_gpu ? kExitPeer : kExitDisagree, text);
    }
}

void watch(Comm* comm, std::vector<pollfd> polls) {        // allocates nothing: there may be no memory when it is needed
    Impl* impl = comm->impl;
    const double interval = std::min(1.0, comm->timeout / 5);
    double next = now_seconds();
    for (double last = next;;) {
        polls[0] = {impl->wake, POLLIN, 0};
        for (size_t r = 0; r < impl->watched.size(); r++) polls[1 + r] = {impl->watched[r].fd, POLLIN, 0};
        poll(polls.data(), polls.size(), std::max(1, int((next - now_seconds()) * 1e3)));
        if (polls[0].revents) return;
        for (size_t r = 0; r < impl->watched.size(); r++)
            if (polls[1 + r].revents) listen_to(comm, int(r));
        const double now = now_seconds();
        if (now - last > 2 * interval)          // we were stopped ourselves: what looks like the others' silence was ours
            for (Watched& w : impl->watched) w.heard = w.advanced = now;
        last = now;
        if (now < next) continue;
        next = now + interval;
        send_message(comm, Kind::record);
        judge(comm, now);
    }
}

void start_watching(Comm* comm) {
    Impl* impl = comm->impl;
    impl->watched.resize(impl->meeting.control.size());
    for (size_t r = 0; r < impl->watched.size(); r++) {
        impl->watched[r].fd = impl->meeting.control[r];
        impl->watched[r].heard = impl->watched[r].advanced = now_seconds();
    }
    impl->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (impl->wake < 0) die(kExitOther, "eventfd: %s", std::strerror(errno));
    sigset_t all, before;                       // signals are the main thread's business
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    impl->watcher = std::thread(watch, comm, std::vector<pollfd>(1 + impl->watched.size()));
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void stop_watching(Comm* comm) {
    const uint64_t one = 1;
    if (!comm->impl->watcher.joinable()) return;
    if (write(comm->impl->wake, &one, sizeof one) != sizeof one) return;
    comm->impl->watcher.join();
}

// A data connection failed. The watching thread knows more, and soon; this Error is for when it does not.
[[noreturn]] void peer_lost(Comm* comm, int rank) {
    Waiting waiting(comm->impl);
    usleep(2000000);
    die(kExitPeer, "peer lost: %s: data connection closed", describe(comm, rank).c_str());
}

// ----------------------------------------------------------------------------------------------------- barrier of a host

void pause_briefly() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

void futex(std::atomic<uint32_t>* word, int op, uint32_t value, const timespec* patience) {
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), op, value, patience, nullptr, 0);
}

// Looks for 50 us before it sleeps, and gives the core away between looks: it may be what the rank waited for needs. (4 ranks on 2 cores:
// 7 us a barrier; 55 us if the core is kept until then. AMD EPYC.)
void wait_for_turn(Impl* impl, Barrier* b, uint32_t turn) {
    for (const double end = now_seconds() + 50e-6; now_seconds() < end; sched_yield())
        for (int i = 0; i < 16; i++, pause_briefly())
            if (b->turn.load(std::memory_order_acquire) != turn) return;
    const Waiting waiting(impl);
    const timespec second = {1, 0};
    b->sleepers.fetch_add(1);
    while (b->turn.load() == turn) futex(&b->turn, FUTEX_WAIT, turn, &second);
    b->sleepers.fetch_sub(1);
}

void host_barrier(Comm* comm, int channel) {
    if (comm->local_size == 1) return;
    Barrier* b = &comm->impl->host->barriers[channel];
    const uint32_t turn = b->turn.load(std::memory_order_relaxed);      // before arriving: afterwards it may move at any time
    if (b->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 < uint32_t(comm->local_size))
        return wait_for_turn(comm->impl, b, turn);
    b->arrived.store(0, std::memory_order_relaxed);
    b->turn.fetch_add(1);
    if (b->sleepers.load() > 0) futex(&b->turn, FUTEX_WAKE, INT_MAX, nullptr);
}

// -------------------------------------------------------------------------------------------------------- between hosts

struct Wire { char magic[4]; Op op; int32_t root; uint32_t reserved; uint64_t number, bytes, payload; };

// One direction of a connection: Wire, payload, CRC-32C of the payload. The sum is made while the bytes are in the cache. What is at
// `data` is `window` bytes of the payload at a time, up to `limit`.
struct Flow {
    Wire wire;
    char* data;
    size_t bytes, window, limit, done = 0;
    uint32_t crc = 0, sent_crc = 0;
    size_t at() const { return done - sizeof wire; }                // of the payload, once the header is through
    bool in_payload() const { return done >= sizeof wire && at() < bytes; }
    bool finished() const { return done == sizeof wire + bytes + sizeof sent_crc; }
    bool full() const { return in_payload() && at() == limit; }     // until the window moves on
    bool open() const { return !finished() && !full(); }
    // Where the next bytes are or go, and how many at most.
    std::pair<char*, size_t> next() {
        if (done < sizeof wire) return {reinterpret_cast<char*>(&wire) + done, sizeof wire - done};
        if (at() < bytes) return {data + at() % window, std::min({bytes - at(), limit - at(), kChunk})};
        return {reinterpret_cast<char*>(&sent_crc) + (at() - bytes), sizeof sent_crc - (at() - bytes)};
    }
    void moved(size_t n) {
        if (in_payload()) crc = crc32c(crc, data + at() % window, n);
        done += n;
    }
};
struct Link { int fd, rank; Call call; Flow out, in; };

Flow make_flow(const Call& call, const void* data, size_t bytes, size_t window = SIZE_MAX) {
    Flow f = {};
    f.window = f.limit = window;
    f.wire = {{'L', 'K', 'D', '1'}, call.op, call.root, 0, call.number, call.bytes, bytes};
    f.data = static_cast<char*>(const_cast<void*>(data));       // outgoing bytes are only read
    f.bytes = bytes;
    return f;
}

[[noreturn]] void collectives_differ(Comm* comm, int rank, const Call& got, const Call& want) {
    const auto text = [](const Call& c) {
        return format("%s %llu from %d (%llu bytes)", uint32_t(c.op) < 6 ? kOpNames[uint32_t(c.op)] : "unknown", (unsigned long long)c.number, c.root,
            (unsigned long long)c.bytes);
    };
    die(kExitDisagree, "collectives differ: %s: got %s, want %s", describe(comm, rank).c_str(), text(got).c_str(), text(want).c_str());
}

// Moves a piece, if that needs no waiting; one, so that what goes out and what comes in take turns in the cache. True if anything did.
bool move_flow(Comm* comm, Link* link, bool outgoing) {
    Flow& f = outgoing ? link->out : link->in;
    bool any = false;
    while (f.open() && !any) {
        if (outgoing && f.done == sizeof f.wire + f.bytes) f.sent_crc = f.crc;
        const auto [at, most] = f.next();
        const ssize_t n = outgoing ? send(link->fd, at, most, MSG_DONTWAIT | MSG_NOSIGNAL) : recv(link->fd, at, most, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return any;
        if (n <= 0) peer_lost(comm, link->rank);
        const bool in_head = f.done < sizeof f.wire;
        f.moved(size_t(n));
        any = true;
        if (outgoing || !in_head || f.done < sizeof f.wire) continue;
        if (const Wire want = make_flow(link->call, f.data, f.bytes).wire; std::memcmp(&f.wire, &want, sizeof want) != 0)
            collectives_differ(comm, link->rank, {f.wire.op, f.wire.root, f.wire.number, f.wire.payload}, {want.op, want.root, want.number, want.payload});
    }
    if (!outgoing && f.finished() && f.sent_crc != f.crc)
        die(kExitDisagree, "damaged on the wire: %s: got checksum %08x, want %08x in %s %llu (%zu bytes); check the network",
            describe(comm, link->rank).c_str(), f.crc, f.sent_crc, kOpNames[uint32_t(link->call.op)], (unsigned long long)link->call.number, f.bytes);
    return any;
}

// With host h: sends out(h), receives in(h); {null, 0} for nothing. A header always goes, so that both sides know they agree. Both
// directions of all connections at once, so that no order of sends and receives can lock. `arrived` empties the windows that all have
// filled, while the kernel sends and receives on.
using Part = std::function<std::pair<const void*, size_t>(int host)>;
void exchange_hosts(Comm* comm, const std::vector<int>& fds, const Call& call, const Part& out, const Part& in,
                    size_t window = SIZE_MAX, const Arrived& arrived = nullptr) {
    std::vector<Link> links;
    for (int h = 0; h < comm->hosts; h++) {
        if (h == comm->host) continue;
        const auto [from, sends] = out(h);
        const auto [to, receives] = in(h);
        links.push_back({fds[size_t(h)], h * comm->local_size + comm->local_rank, call, make_flow(call, from, sends),
            make_flow(call, to, receives, window)});
    }
    Waiting waiting(comm->impl);
    for (size_t taken = 0;;) {
        std::vector<pollfd> polls;
        bool moved = false;
        size_t least = SIZE_MAX;                        // bytes of payload that all have sent
        for (Link& link : links) {
            moved |= link.out.open() && move_flow(comm, &link, true);
            moved |= link.in.open() && move_flow(comm, &link, false);
            const short events = short((link.out.finished() ? 0 : POLLOUT) | (link.in.open() ? POLLIN : 0));
            if (events) polls.push_back({link.fd, events, 0});
            least = std::min(least, link.in.done < sizeof(Wire) ? 0 : std::min(link.in.at(), link.in.bytes));
        }
        const Flow& first = links.front().in;
        if (arrived && least > taken && (least == first.limit || least == first.bytes)) {
            arrived(taken, least - taken);
            taken = least;
            moved = true;
            for (Link& link : links) link.in.limit += window;
        } else if (polls.empty()) return;
        if (moved) waiting.moved();
        else poll(polls.data(), polls.size(), 1000);
    }
}

// ---------------------------------------------------------------------------------------------------- small collectives

// One round of the mailbox: `mine` (bytes, at most kChunk) of every rank, or of call.root alone, is in the returned memory on all
// ranks, packed in order of rank, until the next round but one.
const char* mailbox_round(Comm* comm, const Call& call, const void* mine, size_t bytes) {
    Impl* impl = comm->impl;
    const size_t half = impl->turn++ % 2;
    char* box = impl->mailbox + half * size_t(comm->size) * kChunk;
    const bool from_all = call.op != Op::broadcast;
    Call* calls = impl->calls + half * size_t(comm->local_size);
    calls[comm->local_rank] = call;
    if (bytes > 0 && (from_all || comm->rank == call.root))
        std::memcpy(box + (from_all ? size_t(comm->rank) * bytes : 0), mine, bytes);
    host_barrier(comm, 0);
    for (int l = 1; l < comm->local_size; l++)
        if (std::memcmp(&calls[l], &calls[0], sizeof(Call)) != 0) collectives_differ(comm, comm->host * comm->local_size + l, calls[l], calls[0]);
    if (comm->hosts == 1) return box;
    if (comm->local_rank == 0) {
        const size_t host_bytes = size_t(comm->local_size) * bytes;
        const int root_host = call.root / comm->local_size;
        const Part part = [&](int h) -> std::pair<const void*, size_t> {
            if (from_all) return {box + size_t(h) * host_bytes, host_bytes};
            return {box, h == root_host ? bytes : 0};
        };
        exchange_hosts(comm, impl->leaders, call, [&](int) { return part(comm->host); }, part);
    }
    host_barrier(comm, 0);
    return box;
}

// Rounds until all of `bytes` has gone; take(box, at, n) copies out what a round has brought. At least one round, so that zero bytes
// on one rank alone are noticed.
template <class F> void mailbox_rounds(Comm* comm, Op op, int root, const void* mine, size_t bytes, const F& take) {
    const Call call = {op, root, comm->impl->number++, bytes};
    size_t at = 0;
    do {
        const size_t n = std::min(kChunk, bytes - at);
        const char* box = mailbox_round(comm, call, static_cast<const char*>(mine) + at, n);
        if (n > 0) take(box, at, n);
        at += n;
    } while (at < bytes);
}

// ------------------------------------------------------------------------------------------------------------ the start

// Hosts are numbered in order of their first rank; anything but equal, contiguous groups is refused.
void lay_out_hosts(Comm* comm) {
    const std::vector<Card>& cards = comm->impl->meeting.cards;
    std::vector<std::string> ids;
    std::vector<int> counts;
    for (const Card& card : cards) {
        if (ids.empty() || ids.back() != card.host_id) {
            if (std::find(ids.begin(), ids.end(), card.host_id) != ids.end())
                die(kExitUsage, "ranks of host %s are not neighbours: rank %d comes after another host's; start the ranks host by host "
                    "(mpirun --map-by slot, srun --distribution=block)", card.host, card.rank);
            ids.push_back(card.host_id);
            counts.push_back(0);
        }
        counts.back()++;
        if (card.rank == comm->rank) { comm->host = int(ids.size()) - 1; comm->local_rank = counts.back() - 1; }
        comm->peers.push_back({card.host, card.pid});
    }
    for (size_t h = 0; h < counts.size(); h++)
        if (counts[h] != counts[0])
            die(kExitUsage, "ranks per host: got %d on host %zu, want %d as on host 0 (%s); start the same number on each host",
                counts[h], h, counts[0], cards[0].host);
    comm->hosts = int(counts.size());
    comm->local_size = counts[0];
}

// Of the host's memory file, or of this process alone where there is none.
void* map_memory(Comm* comm, size_t offset, size_t bytes, const char* what) {
    const int file = comm->impl->memory, flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, file, off_t(offset));
    if (at == MAP_FAILED)
        die(kExitOther, "shared memory: %s: got %s, want %s bytes", what, std::strerror(errno), with_commas(bytes).c_str());
    madvise(at, bytes, MADV_HUGEPAGE);          // advice only
    comm->impl->maps.push_back({at, bytes});
    return at;
}

void share_host_memory(Comm* comm) {
    Impl* impl = comm->impl;
    const size_t l = size_t(comm->local_size);
    const size_t head = round_up(sizeof(HostMemory) + l * sizeof(Record) + 2 * l * sizeof(Call), size_t(4096));
    const size_t bytes = head + 2 * size_t(comm->size) * kChunk;
    impl->memory = meet_memory(impl->meeting, comm->host * comm->local_size, comm->local_size, bytes);
    impl->memory_bytes = round_up(bytes, kSegmentAlign);
    char* base = static_cast<char*>(map_memory(comm, 0, bytes, "mailbox"));
    impl->host = reinterpret_cast<HostMemory*>(base);           // all zeros is the initial state of everything in it
    impl->records = reinterpret_cast<Record*>(base + sizeof(HostMemory));
    impl->calls = reinterpret_cast<Call*>(impl->records + l);
    impl->mailbox = base + head;
    impl->record = &impl->records[comm->local_rank];
}

void connect_hosts(Comm* comm) {
    Impl* impl = comm->impl;
    std::vector<int> peers;
    for (int h = 0; h < comm->hosts; h++)
        if (h != comm->host) peers.push_back(h * comm->local_size + comm->local_rank);
    impl->data = meet_peers(impl->meeting, Purpose::data, peers);
    if (comm->local_rank == 0) impl->leaders = meet_peers(impl->meeting, Purpose::leaders, peers);
    for (std::vector<int>* fds : {&impl->data, &impl->leaders})
        if (!fds->empty()) fds->insert(fds->begin() + comm->host, -1);
}

// Killing mpirun leaves its children running unless they ask for this. It fires when the launcher's thread that forked us ends.
void die_with_parent() {
    const pid_t parent = getppid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(kExitPeer);
}

void close_all(Comm* comm) {
    Impl* impl = comm->impl;
    for (const Watched& w : impl->watched) if (w.fd >= 0) close(w.fd);
    for (const int fd : impl->data) if (fd >= 0) close(fd);
    for (const int fd : impl->leaders) if (fd >= 0) close(fd);
    for (const int fd : {impl->memory, impl->wake, impl->meeting.listener}) if (fd >= 0) close(fd);
    for (const auto& [at, bytes] : impl->maps) munmap(at, bytes);
    delete impl;
    delete comm;
}

// What the kernel says could be used now, swap included, and what a memory cgroup leaves; UINT64_MAX if neither says.
uint64_t available_memory() {
    const std::string info = read_kernel_file("/proc/meminfo");
    uint64_t sum = 0;
    for (const char* key : {"MemAvailable:", "SwapFree:"})
        if (const size_t at = info.find(key); at != std::string::npos)
            sum += std::strtoull(info.c_str() + at + std::strlen(key), nullptr, 10) << 10;
    uint64_t least = sum ? sum : UINT64_MAX;
    unsigned long long limit;
    for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"})
        if (std::sscanf(read_kernel_file(path).c_str(), "%llu", &limit) == 1)           // "max" does not scan
            least = std::min<uint64_t>(least, limit);
    return least;
}

}  // namespace

Comm* comm_create(const World& world, double timeout) {
    Comm* comm = new Comm;
    comm->impl = new Impl;
    comm->rank = world.rank;
    comm->size = world.size;
    comm->timeout = timeout;
    comm->launcher = world.launcher;
    char name[64] = "";
    gethostname(name, sizeof name - 1);
    if (world.size == 1) {
        comm->peers = {{name, getpid()}};
        return comm;
    }
    if (world.dies_with_parent) die_with_parent();
    try {
        comm->impl->meeting = meet_ranks(world, kStartFactor * timeout);
        lay_out_hosts(comm);
        start_watching(comm);
        share_host_memory(comm);
        if (comm->hosts > 1) connect_hosts(comm);
        comm_barrier(comm);
    } catch (const Error& e) {
        if (comm->impl->watcher.joinable()) comm_abort(comm, e.code, e.message);
        close_all(comm);
        throw;
    }
    if (comm->impl->meeting.listener >= 0) close(comm->impl->meeting.listener);
    comm->impl->meeting.listener = -1;
    return comm;
}

void comm_destroy(Comm* comm) {
    if (!comm) return;
    if (comm->size > 1) {
        comm_barrier(comm);
        while (comm->impl->ending.exchange(true)) pause();      // every rank is here: what happens to a connection now means nothing
        stop_watching(comm);
        send_message(comm, Kind::farewell);
        wait_for_close(comm, 1);
    }
    close_all(comm);
}

void comm_progress(Comm* comm, int64_t step, const char* phase) {
    Impl* impl = comm->impl;
    Record* r = impl->record.load(std::memory_order_relaxed);
    if (step >= 0) {
        if (impl->first_step < 0) impl->first_step = step;
        if (step != impl->first_step) r->steady.store(1, std::memory_order_relaxed);
        r->step.store(step, std::memory_order_relaxed);
    }
    set_phase(r, phase);
    r->count.fetch_add(1, std::memory_order_relaxed);
}

void comm_waits(Comm* comm, bool waits, bool for_gpu) {
    const uint32_t one = for_gpu ? kForGpu : 1;
    comm->impl->record.load(std::memory_order_relaxed)->waiting.fetch_add(waits ? one : 0 - one, std::memory_order_relaxed);
    comm_moved(comm);
}

void comm_moved(Comm* comm) { comm->impl->record.load(std::memory_order_relaxed)->count.fetch_add(1, std::memory_order_relaxed); }

bool comm_abort(Comm* comm, int code, const std::string& message) {
    if (!comm || comm->size == 1) return false;
    while (comm->impl->ending.exchange(true)) pause();          // the watching thread is faster: it ends the process
    stop_watching(comm);
    send_message(comm, Kind::abort, code, format("rank %d: %s", comm->rank, message.c_str()));
    const bool fits = message.size() + sizeof "rank 65535: " <= sizeof Message::text;
    return wait_for_close(comm, comm->rank == 0 ? 0.3 : 1.0) && comm->rank != 0 && fits;
}

void comm_at_end(Comm* comm, std::function<void()> clean_up) {
    const std::lock_guard lock(comm->impl->mutex);
    comm->impl->clean_up = std::move(clean_up);
}

void comm_barrier(Comm* comm) {
    if (comm->size > 1) mailbox_rounds(comm, Op::barrier, 0, nullptr, 0, [](const char*, size_t, size_t) {});
}

void comm_allgather(Comm* comm, void* out, const void* in, size_t bytes) {
    if (comm->size == 1 && bytes > 0) std::memmove(out, in, bytes);
    if (comm->size == 1) return;
    mailbox_rounds(comm, Op::allgather, 0, in, bytes, [&](const char* box, size_t at, size_t n) {
        for (size_t r = 0; r < size_t(comm->size); r++) std::memcpy(static_cast<char*>(out) + r * bytes + at, box + r * n, n);
    });
}

void comm_broadcast(Comm* comm, void* data, size_t bytes, int root) {
    CHECK(root >= 0 && root < comm->size, "comm_broadcast: root %d of %d", root, comm->size);
    if (comm->size == 1) return;
    mailbox_rounds(comm, Op::broadcast, root, data, bytes, [&](const char* box, size_t at, size_t n) {
        if (comm->rank != root) std::memcpy(static_cast<char*>(data) + at, box, n);
    });
}

std::vector<std::string> comm_gather_text(Comm* comm, const std::string& text) {
    std::vector<uint64_t> sizes(size_t(comm->size));
    const uint64_t mine = text.size();
    comm_allgather(comm, sizes.data(), &mine, sizeof mine);
    const size_t longest = *std::max_element(sizes.begin(), sizes.end());
    std::string padded = text, all(longest * size_t(comm->size), '\0');
    padded.resize(longest);
    comm_allgather(comm, all.data(), padded.data(), longest);
    std::vector<std::string> texts;
    for (size_t r = 0; r < size_t(comm->size); r++) texts.push_back(all.substr(r * longest, sizes[r]));
    return texts;
}

// The host's one memory file grows; every rank counts its size along, so nothing but the verdict need be passed on.
void* comm_shared(Comm* comm, size_t bytes, const char* what) {
    Impl* impl = comm->impl;
    if (comm->size == 1) return map_memory(comm, 0, std::max(bytes, size_t(1)), what);
    const size_t length = round_up(std::max(bytes, size_t(1)), size_t(4096));
    const size_t offset = impl->memory_bytes;
    mailbox_round(comm, {Op::shared, 0, impl->number++, bytes}, nullptr, 0);
    if (comm->local_rank == 0) {
        // Growing a memory file costs nothing until pages are touched, and then there is only SIGBUS or the OOM killer: ask now.
        const uint64_t available = available_memory();
        const bool fits = bytes <= available && length < size_t(LLONG_MAX) - offset;
        impl->host->available = available;
        impl->host->error = !fits ? ENOMEM : ftruncate(impl->memory, off_t(offset + length)) != 0 ? errno : 0;
    }
    host_barrier(comm, 0);
    if (const int error = impl->host->error)
        die(kExitOther, "shared memory: %s: got %s (%s bytes available), want %s bytes; try fewer ranks per host or a smaller model",
            what, std::strerror(error), with_commas(impl->host->available).c_str(), with_commas(bytes).c_str());
    impl->memory_bytes = round_up(offset + length, kSegmentAlign);
    void* at = map_memory(comm, offset, length, what);
    host_barrier(comm, 0);                      // `error` may be used again
    return at;
}

void comm_local_barrier(Comm* comm, int channel) { host_barrier(comm, channel); }

void comm_hosts_scatter(Comm* comm, const void* data, const size_t* cut, void* room, size_t piece, const Arrived& arrived) {
    if (comm->hosts == 1) return;
    const size_t mine = cut[comm->host + 1] - cut[comm->host];
    const Part out = [&](int h) { return std::pair(static_cast<const char*>(data) + cut[h], cut[h + 1] - cut[h]); };
    const Part in = [&](int h) { return std::pair(static_cast<const char*>(room) + size_t(h) * piece, mine); };
    exchange_hosts(comm, comm->impl->data, {Op::scatter, 0, comm->impl->data_number++, cut[comm->hosts]}, out, in, std::max(piece, size_t(1)), arrived);
}

void comm_hosts_gather(Comm* comm, void* data, const size_t* cut) {
    if (comm->hosts == 1) return;
    const Part part = [&](int h) { return std::pair(static_cast<const char*>(data) + cut[h], cut[h + 1] - cut[h]); };
    exchange_hosts(comm, comm->impl->data, {Op::gather, 0, comm->impl->data_number++, cut[comm->hosts]},
        [&](int) { return part(comm->host); }, part);
}
