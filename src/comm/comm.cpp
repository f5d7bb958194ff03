// comm.cpp -- how the ranks of a job connect, exchange messages, watch each other and end together.
//
//     meeting   rendezvous.cpp connects the ranks; an Error is thrown to the caller
//     running   every second a thread of each rank sends its record to rank 0 (rank 0: to all) and
//               looks for silent ranks; rank 0 sends the first failure to all ranks, which then end,
//               so no other wait needs a deadline
//     aborting  the main thread stops the watching thread, and sends its Error to the other ranks
//               as the failure
//     leaving   after a last barrier each rank sends a farewell; after that its closed connection
//               is no failure
//
// The thread, main or watching, that sets `ending` first ends the process.
#include "src/comm/comm.h"
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cmath>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <linux/futex.h>
#include <mutex>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include "src/base/common.h"
#include "src/base/cpus.h"
#include "src/comm/rendezvous.h"

namespace {

constexpr size_t kChunk = size_t(1) << 20;          // bytes that a rank sends in one round
                                                    // of a collective
constexpr size_t kHugePage = size_t(2) << 20;
constexpr off_t kMemoryBytes = off_t(1) << 46;      // size of a host's memory file without
                                                    // its tag; sparse
constexpr double kSlowFactor = 5;                   // this many timeouts for start-up, the first
                                                    // step and a checkpoint

// What a rank does now.
struct Record {
    int64_t step = -1;
    uint64_t steps = 0;                     // number of steps that the rank has begun
    uint64_t count = 0;                     // grows whenever the rank makes progress
    uint64_t waiting = 0;                   // number of threads that wait for other ranks
                                            // or for the GPU
    char phase[24] = {};
};

// Precedes bytes between hosts. crc: their checksum.
struct Header { uint64_t bytes, crc; };

enum class Kind : uint32_t { record = 1, failure, farewell };
struct Message { Kind kind; int32_t code; Record record; char text[896]; };

// What the watching thread knows of a rank.
struct Watched {
    Socket socket;                          // empty for this rank itself, and after a close
    bool farewell = false;
    Record record = {};
    // When a record last came, and when its count last changed.
    double heard = now_seconds(), advanced = heard;
};

}  // namespace

struct Comm::Impl {
    Meeting meeting;
    std::vector<Socket> mesh;               // connections to this rank's partners, by host
    size_t gathers = 0;                     // number of rounds of all-gathers that this
                                            // rank has begun
    Socket memory;                          // the host's memory file; empty if there is one rank
    size_t mapped = 0;                      // bytes of that file that are in use
    std::atomic<uint64_t>* arrived = nullptr;   // number of arrivals at the host's barrier
                                                // since the start
    size_t* sizes = nullptr;                // (2, local_size): bytes of each rank in this round and
                                            // in the one before
    char* mailbox = nullptr;                // (2, size, kChunk): two halves, which alternate
    std::mutex recording;                   // guards record
    Record record;                          // of this rank
    Descriptor launcher;                    // a pidfd of World::starter, or empty
    std::vector<Watched> watched;           // on rank 0: by rank; elsewhere: rank 0
    std::jthread watcher;
    std::atomic<bool> ending{false};
    std::mutex mutex;                       // guards clean_up
    std::function<void()> clean_up = [] {};
};

namespace {

// ---- watching

Record read_record(Comm* comm) {
    const std::lock_guard lock(comm->impl->recording);
    return comm->impl->record;
}

std::string describe(const Comm* comm, int rank) {
    const Comm::Peer& p = comm->peers[rank];
    return format("rank %d (host %s, pid %d)", rank, p.host.c_str(), p.pid);
}

// Sends a message to rank 0, or from rank 0 to all ranks; gives up on a rank after 0.1 s.
// read_messages, not this, notices closed connections. Sending a record must not wait: a rank whose
// socket is full, because the rank is stopped or cut off, gets none.
void send_message(Comm* comm, Kind kind, int code = 0, const std::string& text = "") {
    Message m = {kind, code, read_record(comm), {}};
    std::snprintf(m.text, sizeof m.text, "%s", text.c_str());
    for (const Watched& w : comm->impl->watched) {
        pollfd room = {w.socket.fd, POLLOUT, 0};
        if (w.socket.fd < 0 || (kind == Kind::record && poll(&room, 1, 0) == 0)) continue;
        send_all(w.socket.fd, &m, sizeof m, 0.1);
    }
}

// Reads until the other ranks close their connections, for at most `seconds`: closing a socket with
// unread bytes would discard what was sent last. Returns true if all closed.
bool wait_for_close(Comm* comm, double seconds) {
    const double deadline = now_seconds() + seconds;
    char discarded;
    for (const Watched& w : comm->impl->watched) {
        if (w.socket.fd < 0) continue;
        shutdown(w.socket.fd, SHUT_WR);
        while (receive_all(w.socket.fd, &discarded, 1, deadline - now_seconds())) {}
    }
    return now_seconds() < deadline;
}

// Ends the process, unless the main thread does so already. Every rank prints that a rank is lost
// or stuck, since its output may be the only one that survives. Rank 0 alone prints any other
// failure, before it tells the others: a launcher ends all ranks at once when the first has ended.
void end_job(Comm* comm, int code, const std::string& text) {
    if (comm->impl->ending.exchange(true)) return;
    if (comm->rank == 0 || code == kExitPeer) print_error({code, text});
    if (comm->rank == 0) send_message(comm, Kind::failure, code, text);
    if (comm->rank == 0) wait_for_close(comm, 0.3);
    const std::lock_guard lock(comm->impl->mutex);
    comm->impl->clean_up();
    _exit(code);
}

// Ends the process because a rank is lost or stuck. The error says what that rank did when it was
// last heard.
void end_lost(Comm* comm, int rank, const std::string& what) {
    const Record& r = comm->impl->watched[rank].record;
    const std::string seen =
        r.phase[0] ? format("last step %jd, phase %s", intmax_t(r.step), r.phase)
                   : "not yet at its first step";
    end_job(comm, kExitPeer, what + " " + seen + "; run again with --resume to go on");
}

void note_record(Watched* w, const Record& record, double now) {
    if (record.count != w->record.count) w->advanced = now;
    w->record = record;
}

// Reads and handles all messages that have come from a rank.
void read_messages(Comm* comm, int rank) {
    Watched& w = comm->impl->watched[rank];
    Message m;
    while (w.socket.fd >= 0) {
        const int got = receive_message(w.socket.fd, &m, sizeof m);
        if (got == 0) return;
        if (got < 0) {
            w.socket = Socket();
            if (w.farewell) return;
            return end_lost(comm, rank, "peer lost: " + describe(comm, rank) + ": connection closed;");
        }
        w.heard = now_seconds();
        m.text[sizeof m.text - 1] = m.record.phase[sizeof m.record.phase - 1] = 0;
        w.farewell |= m.kind == Kind::farewell;
        if (m.kind == Kind::failure) end_job(comm, m.code, m.text);
        note_record(&w, m.record, w.heard);
    }
}

// Ends the process because a rank is stuck. rank -1: all ranks wait for each other.
void end_stuck(Comm* comm, int rank, double seconds) {
    const std::string subject = rank >= 0 ? describe(comm, rank)
        : "all ranks, waiting for each other (collectives differ, or GPUs do not: NCCL_DEBUG=INFO)";
    end_lost(comm, std::max(rank, 0),
             format("peer stuck: %s: no progress for %.0f s,", subject.c_str(), seconds));
}

// Ends the job if a rank is silent (stopped, or cut off). Rank 0 also ends it if a rank for which
// others wait makes no progress, or if all wait. now: when the last messages were read.
void judge(Comm* comm, double now) {
    std::vector<Watched>& all = comm->impl->watched;
    for (int r = 0; r < int(all.size()); r++)
        if (all[r].socket.fd >= 0 && now - all[r].heard > comm->timeout)
            end_stuck(comm, r, comm->timeout);
    if (comm->rank != 0) return;
    note_record(&all[0], read_record(comm), now);
    // When the stillest rank of a kind, and any, made progress.
    double busy = INFINITY, waiting = INFINITY, last = 0;
    // The stillest of the ranks that do not wait.
    int culprit = -1;
    bool steady = true;
    for (int r = 0; r < comm->size; r++) {
        const Watched& w = all[r];
        if (w.farewell) return;                             // the job is at its end
        last = std::max(last, w.advanced);
        steady &= w.record.steps >= 2;
        if (w.record.waiting) waiting = std::min(waiting, w.advanced);
        else if (w.advanced < busy) busy = w.advanced, culprit = r;
    }
    // One fsync of a checkpoint may block for longer than a step takes.
    const bool saving = culprit >= 0 && std::strcmp(all[culprit].record.phase, "checkpoint") == 0;
    const double limit = steady && !saving ? comm->timeout : kSlowFactor * comm->timeout;
    if (now - (culprit < 0 ? last : std::max(busy, waiting)) > limit)
        end_stuck(comm, culprit, limit);
}

// The watching thread runs this. Its loop allocates no memory before a failure, because there may
// be none left.
void watch(Comm* comm) {
    sigset_t signals;                                       // signals go to the main thread
    sigfillset(&signals);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    std::vector<Watched>& all = comm->impl->watched;
    const double interval = std::min(1.0, comm->timeout / 5);
    double next = now_seconds();
    for (double last = next; !comm->impl->ending;) {
        usleep(50000);
        for (size_t r = 0; r < all.size(); r++) read_messages(comm, int(r));
        const double now = now_seconds();
        // This process was stopped: others were not silent.
        if (now - last > 2 * interval)
            for (Watched& w : all) w.heard = w.advanced = now;
        last = now;
        if (now < next) continue;
        next = now + interval;
        // Readable once the launcher has ended.
        pollfd ended = {comm->impl->launcher.fd, POLLIN, 0};
        if (poll(&ended, 1, 0) == 1)
            end_job(comm, kExitPeer, "launcher lost: it has ended and left this rank");
        send_message(comm, Kind::record);
        judge(comm, now);
    }
}

// Stops the watching thread, so that only this thread can end the process. Does not return if the
// watching thread is already ending the process.
void take_end(Comm* comm) {
    while (comm->impl->ending.exchange(true)) pause();
    if (comm->impl->watcher.joinable()) comm->impl->watcher.join();
}

// ---- between hosts

// Compares how many bytes two ranks move in one call: if they differ, the ranks have called
// different collectives.
void check_same(Comm* comm, int rank, size_t got, size_t want) {
    if (got != want)
        die(kExitDisagree, "collectives differ: %s: got %zu bytes, want %zu",
            describe(comm, rank).c_str(), got, want);
}

// Returns the rank on another host with which this rank exchanges data: it has the same local rank.
int partner(const Comm* comm, int host) { return host * comm->local_size + comm->local_rank; }

// Sends `out` to one host while it receives `in` from another. All ranks do both at once: if each
// sent first, all could wait for a reader.
void send_and_receive(Comm* comm, int to, Bytes out, int from, Bytes in) {
    const int out_fd = comm->impl->mesh[to].fd, in_fd = comm->impl->mesh[from].fd;
    while (out.size + in.size > 0) {
        const int sent = move_some(out_fd, true, &out), got = move_some(in_fd, false, &in);
        if (sent < 0 || got < 0) {
            // The watching thread may know more and end the process.
            usleep(2000000);
            die(kExitPeer, "peer lost: %s: data connection closed",
                describe(comm, partner(comm, sent < 0 ? to : from)).c_str());
        }
        pollfd polls[] = {{out.size ? out_fd : -1, POLLOUT, 0}, {in.size ? in_fd : -1, POLLIN, 0}};
        if (sent || got) comm_still_works(comm);
        else poll(polls, 2, 1000);
    }
}

// Sends out(h) to every other host h and receives in(h) from it. A Header precedes the bytes and is
// compared.
template <class Out, class In>
void exchange(Comm* comm, const Out& out, const In& in) {
    comm_waiting(comm, true);
    for (int distance = 1, n = comm->hosts; distance < n; distance++) {
        const int to = (comm->host + distance) % n, from = (comm->host + n - distance) % n;
        const Bytes sent = out(to), room = in(from);
        const Header mine = {sent.size, crc32c(0, sent.data, sent.size)};
        Header theirs;
        send_and_receive(comm, to, {&mine, sizeof mine}, from, {&theirs, sizeof theirs});
        check_same(comm, partner(comm, from), theirs.bytes, room.size);
        send_and_receive(comm, to, sent, from, room);
        if (crc32c(0, room.data, room.size) != theirs.crc)
            die(kExitDisagree, "damaged on the wire: %s: %zu bytes have another checksum; check the network",
                describe(comm, partner(comm, from)).c_str(), room.size);
    }
    comm_waiting(comm, false);
}

size_t longest_part(const Comm* comm, const size_t* cut) {
    size_t longest = 0;
    for (int h = 0; h < comm->hosts; h++) longest = std::max(longest, cut[h + 1] - cut[h]);
    return longest;
}

// Returns part h of data from byte `at` of the part on, at most `piece` bytes.
Bytes piece_of(const void* data, const size_t* cut, int h, size_t at, size_t piece) {
    const size_t begin = std::min(cut[h] + at, cut[h + 1]);
    return {static_cast<const char*>(data) + begin, std::min(piece, cut[h + 1] - begin)};
}

// ---- the start

// Sets host, hosts, local_rank, local_size and peers. kExitUsage unless all hosts have
// equally many, consecutive ranks.
void lay_out_hosts(Comm* comm) {
    const std::vector<PeerInfo>& peers = comm->impl->meeting.peers;
    std::vector<std::string> hosts;                 // by rank
    for (const PeerInfo& p : peers) {
        hosts.push_back(p.host_id);
        comm->peers.push_back({p.host, p.pid});
    }
    const int local = comm->local_size = int(std::ranges::count(hosts, hosts[0]));
    for (int r = 0; r < comm->size; r++) {
        const int first = r / local * local;        // the host's first rank, if all is well
        if (std::ranges::find(hosts, hosts[r]) - hosts.begin() != first || first + local > comm->size)
            die(kExitUsage, "ranks per host: got rank %d on %s, want %d consecutive ranks on each host, as on %s "
                "(mpirun --map-by slot, srun --distribution=block)", r, peers[r].host, local, peers[0].host);
    }
    comm->hosts = comm->size / local;
    comm->host = comm->rank / local;
    comm->local_rank = comm->rank % local;
}

// Opens the memory file of the host's first rank, which all ranks of the host map, and
// makes the Comm's arrays in it.
void share_host_memory(Comm* comm) {
    auto* impl = comm->impl;
    const PeerInfo& leader = impl->meeting.peers[comm->host * comm->local_size];
    if (comm->local_rank > 0)
        impl->memory = Socket(
            open(format("/proc/%d/fd/%d", leader.pid, leader.memory).c_str(), O_RDWR | O_CLOEXEC));
    uint64_t tag = 0;               // the pid may be that of another process, in another container
    const bool read = pread(impl->memory.fd, &tag, sizeof tag, kMemoryBytes) == ssize_t(sizeof tag);
    if (comm->size > 1 && (!read || tag != impl->meeting.job_hash + uint64_t(leader.rank)))
        die(kExitOther, "shared memory: /proc/%d/fd/%d: got another file or none, want that of rank %d; if "
            "LOCKSTEP_HOST_ID is set, give each host another", leader.pid, leader.memory, leader.rank);
    impl->arrived = comm_shared<std::atomic<uint64_t>>(comm, 1, "barrier");
    impl->sizes = comm_shared<size_t>(comm, 2 * comm->local_size, "sizes");
    impl->mailbox = comm_shared<char>(comm, 2 * comm->size * kChunk, "mailbox");
}

// Starts the watching thread, and connects this rank to its partners, the ranks of equal local rank
// on other hosts.
void connect_ranks(Comm* comm) {
    auto* impl = comm->impl;
    impl->watcher = start_thread("the watching one", [comm] { watch(comm); });
    std::vector<int> partners;
    for (int h = 0; h < comm->hosts; h++) partners.push_back(partner(comm, h));
    impl->mesh = meet_peers(impl->meeting, partners);
    impl->meeting.listeners.clear();
    comm_barrier(comm);
}

}  // namespace

Comm* comm_create(const World& world, double timeout) {
    auto* const impl = new Comm::Impl;
    Comm* const comm = new Comm{.rank = world.rank, .size = world.size, .launcher = world.launcher,
                                .timeout = timeout, .impl = impl};
    // A killed mpirun leaves its children.
    if (world.dies_with_parent) prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (world.dies_with_parent)
        impl->launcher = Descriptor(int(syscall(SYS_pidfd_open, world.starter, 0)));
    rlimit files;               // rank 0 has a connection to each rank
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    if (world.size > 1 && files.rlim_max < rlim_t(world.size) + 32)
        die(kExitOther, "ulimit -n: got %ju open files, want %d for %d ranks; raise it",
            uintmax_t(files.rlim_max), world.size + 32, world.size);
    if (world.size > 1) impl->memory = Socket(memfd_create("lockstep", MFD_CLOEXEC));
    const uint64_t tag = hash_bytes(world.job.data(), world.job.size(), 0) + uint64_t(world.rank);
    if (world.size > 1 && pwrite(impl->memory.fd, &tag, sizeof tag, kMemoryBytes) != ssize_t(sizeof tag))
        die(kExitOther, "shared memory: %s; raise ulimit -f and -n", std::strerror(errno));
    impl->meeting = meet_ranks(world, impl->memory.fd, kSlowFactor * timeout);
    for (Socket& s : impl->meeting.control) impl->watched.emplace_back().socket = std::move(s);
    try {
        lay_out_hosts(comm);
        share_host_memory(comm);
        if (world.size > 1) connect_ranks(comm);
    } catch (const Error& e) {
        if (!comm_abort(comm, e.code, e.message)) print_error(e);
        _exit(e.code);
    }
    return comm;
}

void comm_destroy(Comm* comm) {
    comm_barrier(comm);                 // after this a closed connection is no failure
    take_end(comm);
    send_message(comm, Kind::farewell);
    wait_for_close(comm, 1);
    delete comm->impl;
    delete comm;
}

void comm_progress(Comm* comm, int64_t step, const char* phase) {
    const std::lock_guard lock(comm->impl->recording);
    Record& r = comm->impl->record;
    std::snprintf(r.phase, sizeof r.phase, "%s", phase);
    if (step >= 0 && std::exchange(r.step, step) != step) r.steps++;
    r.count++;
}

void comm_waiting(Comm* comm, bool waits) {
    const std::lock_guard lock(comm->impl->recording);
    comm->impl->record.waiting += waits ? 1 : -1;
    comm->impl->record.count++;
}

void comm_still_works(Comm* comm) {
    const std::lock_guard lock(comm->impl->recording);
    comm->impl->record.count++;
}

bool comm_abort(Comm* comm, int code, const std::string& message) {
    if (comm->size == 1) return false;
    take_end(comm);
    if (comm->rank == 0) print_error({code, message});
    send_message(comm, Kind::failure, code, format("rank %d: %s", comm->rank, message.c_str()));
    // Rank 0 may be slow to print.
    return wait_for_close(comm, comm->rank == 0 ? 0.3 : 4) || comm->rank == 0;
}

void comm_at_end(Comm* comm, std::function<void()> clean_up) {
    const std::lock_guard lock(comm->impl->mutex);
    comm->impl->clean_up = std::move(clean_up);
}

void comm_barrier(Comm* comm) {
    char nothing = 0;
    comm_allgather(comm, &nothing, &nothing, 0);
}

// The ranks of a host exchange the bytes through the mailbox, up to kChunk of each rank in a round.
// One barrier per round is enough, since the mailbox's halves alternate. There is at least one
// round, so that the ranks notice if one of them calls with zero bytes and the others do not.
void comm_allgather(Comm* comm, void* out, const void* in, size_t bytes) {
    auto* impl = comm->impl;
    size_t at = 0;
    do {
        const size_t n = std::min(kChunk, bytes - at);
        const size_t half = impl->gathers++ % 2;
        char* const box = impl->mailbox + half * comm->size * kChunk;
        size_t* const sizes = impl->sizes + half * comm->local_size;
        const auto part = [&](int h) { return Bytes(box + partner(comm, h) * n, n); };
        std::copy_n(static_cast<const char*>(in) + at, n, part(comm->host).data);
        sizes[comm->local_rank] = n;
        exchange(comm, [&](int) { return part(comm->host); }, part);
        comm_local_barrier(comm);
        for (int l = 0; l < comm->local_size; l++)
            check_same(comm, comm->host * comm->local_size + l, sizes[l], n);
        for (int r = 0; r < comm->size; r++)
            std::copy_n(box + r * n, n, static_cast<char*>(out) + r * bytes + at);
        at += n;
    } while (at < bytes);
}

std::string comm_first_text(Comm* comm, std::string text) {
    const std::vector<uint64_t> bytes = comm_gather<uint64_t>(comm, text.size());
    int first = 0;
    while (first + 1 < comm->size && bytes[first] == 0) first++;
    text.resize(std::ranges::max(bytes));
    std::string all(text.size() * comm->size, 0);
    comm_allgather(comm, all.data(), text.data(), text.size());
    return all.substr(text.size() * first, bytes[first]);
}

// Refuses a size above what this process may use. The kernel refuses such a size only for memory
// that is not shared.
void* comm_shared(Comm* comm, size_t bytes, const char* what) {
    auto* impl = comm->impl;
    const Allowance most = allowed_memory();
    const bool fits = double(bytes) <= most.amount;
    const int flags = impl->memory.fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    bytes = std::max(bytes, size_t(1));
    errno = ENOMEM;
    void* at = MAP_FAILED;
    if (fits)
        at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, impl->memory.fd, off_t(impl->mapped));
    if (at == MAP_FAILED)
        die(kExitOther, "shared memory: %s: got %s, want %s bytes, by %s %s are allowed; try fewer ranks per host or a "
            "smaller model", what, std::strerror(errno), with_commas(bytes).c_str(), most.by.c_str(),
            with_commas(uint64_t(most.amount)).c_str());
    madvise(at, bytes, MADV_HUGEPAGE);
    impl->mapped += round_up(bytes, kHugePage);
    return at;
}

void comm_local_barrier(Comm* comm) {
    std::atomic<uint64_t>& arrived = *comm->impl->arrived;
    uint32_t* const futex = reinterpret_cast<uint32_t*>(&arrived);      // its lower 32 bits
    const uint64_t mine = ++arrived, all = round_up(mine, uint64_t(comm->local_size));
    if (mine == all) {
        syscall(SYS_futex, futex, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
        return;
    }
    if (spin_until(50e-6, [&] { return arrived >= all; })) return;
    comm_waiting(comm, true);
    for (uint64_t seen; (seen = arrived) < all;)
        syscall(SYS_futex, futex, FUTEX_WAIT, uint32_t(seen), nullptr, nullptr, 0);
    comm_waiting(comm, false);
}

void comm_hosts_scatter(Comm* comm, const void* data, const size_t* cut, void* room, size_t piece,
                        const Arrived& arrived) {
    for (size_t at = 0, longest = longest_part(comm, cut); at < longest; at += piece) {
        const auto out = [&](int h) { return piece_of(data, cut, h, at, piece); };
        const size_t n = out(comm->host).size;
        const auto in = [&](int h) { return Bytes{static_cast<char*>(room) + h * piece, n}; };
        exchange(comm, out, in);
        if (arrived && n > 0) arrived(at, n);
    }
}

void comm_hosts_gather(Comm* comm, void* data, const size_t* cut) {
    for (size_t at = 0, longest = longest_part(comm, cut); at < longest; at += kChunk) {
        const auto part = [&](int h) { return piece_of(data, cut, h, at, kChunk); };
        exchange(comm, [&](int) { return part(comm->host); }, part);
    }
}

void comm_hosts_broadcast(Comm* comm, void* data, size_t bytes) {
    std::vector<size_t> cut(size_t(comm->hosts) + 1, comm->local_rank == 0 ? bytes : 0);
    cut[0] = 0;
    comm_hosts_gather(comm, data, cut.data());
}
