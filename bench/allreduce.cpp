// allreduce.cpp -- Lockstep's reduce-scatter and all-gather by themselves, 4 KiB to 100 MiB. bench/allreduce.sh sets it
// beside others.
//
//     build/bench/allreduce RANKS shm             ranks of one host: shared memory
//     build/bench/allreduce RANKS tcp             each rank a host of its own, over loopback
//     build/bench/allreduce 2 raw                 no sum, no checksum: as many bytes each way as tcp moves, through one
//     plain connection
//
// Prints "kind ranks bytes seconds" per size: the mean of calls in a row, of the slowest rank. The transports and the
// tree_reduce are the trainer's (src/ddp/ddp.h), in its buckets of 25 MiB; where the update writes weights, the
// sum is copied: all ranks read it there.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "src/base/common.h"
#include "src/base/file.h"
#include "src/base/words.h"
#include "src/ddp/ddp.h"

namespace BACKEND {

static Bucket cut_evenly(Range whole, Comm* comm) {
    std::vector<size_t> cut;
    const size_t ranks = size_t(comm->size), units = whole.size() / kUnit;
    for (size_t r = 0; r <= ranks; r++) cut.push_back(whole.begin + units * r / ranks * kUnit);
    return {comm, cut};
}

static void all_reduce(Transport* x, Comm* comm, Range whole) {
    for (size_t begin = whole.begin; begin < whole.end; begin += kBucketBytes / sizeof(float)) {
        const Bucket bucket = cut_evenly({begin, std::min(whole.end, begin + kBucketBytes / sizeof(float))}, comm);
        transport_reduce(x, bucket, nullptr);
        const Range own = bucket.own(comm->rank);
        std::copy_n(x->gradients + own.begin, own.size(), x->weights + own.begin);
        transport_gather(x, x->weights, kUnit * sizeof(floatX), bucket, nullptr);
    }
    transport_finish(x);
}

// Element i of rank r is (r + 1) (i mod 7 + 1): sums of whole numbers are exact, and a part of another rank or place
// shows.
static void check(Transport* x, Comm* comm, Range whole) {
    for (size_t i = 0; i < whole.end; i++) x->gradients[i] = float(comm->rank + 1) * float(i % 7 + 1);
    all_reduce(x, comm, whole);
    const float ranks = float(comm->size * (comm->size + 1) / 2);
    for (size_t i = 0; i < whole.end; i++)
        if (x->weights[i] != ranks * float(i % 7 + 1))
            die(kExitDisagree, "all-reduce: element %zu of %zu: got %g, want %g", i, whole.end,
                double(x->weights[i]), double(ranks * float(i % 7 + 1)));
}

// ---------------------------------------------------------------------------------------------------- a plain
// connection

static int connect_pair(Comm* comm) {
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (comm->rank == 0 && (bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof at) || listen(fd, 1) ||
                            getsockname(fd, reinterpret_cast<sockaddr*>(&at), &length)))
        die(kExitOther, "listen: %s", std::strerror(errno));
    at = comm_gather(comm, at)[0];
    if (comm->rank == 0) {
        const int listener = fd;
        fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
        close(listener);
    } else if (connect(fd, reinterpret_cast<sockaddr*>(&at), sizeof at))
        die(kExitOther, "connect: %s", std::strerror(errno));
    const int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

// n bytes there and n bytes back at the same time, by one thread per rank as in comm.cpp.
static void swap_bytes(int fd, const char* out, char* in, size_t n) {
    constexpr size_t kPiece = size_t(256) << 10;
    for (size_t sent = 0, got = 0; sent < n || got < n;) {
        const ssize_t s = sent < n ? send(fd, out + sent, std::min(kPiece, n - sent), MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
        const ssize_t r = got < n ? recv(fd, in + got, std::min(kPiece, n - got), MSG_DONTWAIT) : 0;
        sent += size_t(std::max<ssize_t>(s, 0));
        got += size_t(std::max<ssize_t>(r, 0));
        if ((sent < n && s == 0) || (got < n && r == 0)) die(kExitPeer, "the other rank is gone");
        pollfd p = {fd, short((sent < n ? POLLOUT : 0) | (got < n ? POLLIN : 0)), 0};
        if (s <= 0 && r <= 0 && p.events) poll(&p, 1, 1000);
    }
}

// -------------------------------------------------------------------------------------------------------------- the
// ranks

template <class F>
static double slowest(Comm* comm, int calls, const F& f) {
    f();
    comm_barrier(comm);
    const double start = now_seconds();
    for (int i = 0; i < calls; i++) f();
    const double mine = (now_seconds() - start) / calls;
    const std::vector<double> all = comm_gather(comm, mine);
    return *std::max_element(all.begin(), all.end());
}

static void measure(Comm* comm, const std::string& kind) {
    const bool raw = kind == "raw";
    constexpr size_t kLargest = (size_t(100) << 20) / sizeof(float);
    Transport transport = {comm, kLargest}, *const x = &transport;
    transport_create(x, {});
    set_threads(1);
    const int fd = raw ? connect_pair(comm) : -1;
    for (const size_t kib : {4, 16, 64, 256, 1024, 4096, 16384, 25 * 1024, 100 * 1024}) {
        const size_t bytes = kib << 10;
        const Range whole = {0, round_up(bytes / sizeof(float), kUnit)};  // 4 KiB travels as one unit, 16 KiB
        if (!raw) check(x, comm, whole);
        comm_progress(comm, -1, "all-reduce");
        const double seconds = slowest(comm, int(std::clamp<size_t>((size_t(64) << 20) / bytes, 2, 100)), [&] {
            if (raw)
                swap_bytes(fd, reinterpret_cast<const char*>(x->gradients),
                           reinterpret_cast<char*>(x->weights), bytes);
            else
                all_reduce(x, comm, whole);
        });
        if (comm->rank == 0) std::printf("%s %d %zu %.9f\n", kind.c_str(), comm->size, bytes, seconds);
    }
    if (raw) close(fd);
    transport_destroy(x);
}

}  // namespace BACKEND

int main(int argc, char** argv) {
    set_program("allreduce");
    const std::string kind = argc > 2 ? argv[2] : "";
    Comm* comm = nullptr;
    try {
        if (kind != "shm" && kind != "tcp" && kind != "raw")
            die(kExitUsage, "usage: build/bench/allreduce RANKS shm|tcp|raw");
        World world = find_world([](const char* name) -> const char* { return std::getenv(name); });
        if (world.size == 1) {
            setenv("LOCKSTEP_BENCH_PORT", std::to_string(20000 + getpid() % 20000).c_str(), 1);
            hand_over("--np", parent_folder(program_path()) + "/../launch",
                      {format("--np=%s", argv[1]), "--max-restarts=0", program_path(), argv[1], kind});
        }
        if (kind == "tcp") {
            setenv("LOCKSTEP_HOST_ID", format("host %d", world.rank).c_str(), 1);
            world.master_addr = "127.0.0.1";
            world.master_port = std::atoi(std::getenv("LOCKSTEP_BENCH_PORT"));
        }
        comm = comm_create(world, 60);
        BACKEND::measure(comm, kind);
        comm_destroy(comm);
        return 0;
    } catch (const Error& e) {
        if (!comm || !comm_abort(comm, e.code, e.message)) print_error(e);
        _exit(e.code);
    }
}
