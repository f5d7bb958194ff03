// nccl.cpp -- a stand-in for NCCL between software GPUs: what src/ddp/transport_gpu.cpp loads, over Unix sockets
// between the ranks' processes.
//
// Like the library it only puts work on the stream: a group is one host function there, which moves all its sends and
// receives at once, so that no order of them can lock. A group of a capture is run by every launch of the graph. Sums
// are added in order of rank, which is not the order of the trainer's tree.
#include <cerrno>
#include <random>
#include <thread>
#include <utility>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "tests/gpu/runtime.h"

struct NcclId { char bytes[128]; };
struct NcclCommTag {
    int rank, size;
    std::vector<int> sockets;       // by peer
};
using NcclComm = NcclCommTag*;
constexpr int kNcclFloat = 7;       // tests/long/test_nccl_abi.sh compares the trainer's value with NCCL's

namespace {

struct Transfer { char* data; size_t bytes; };
struct Sum {                        // on the root; the other ranks send
    const float* own;
    float* to;
    std::vector<std::vector<float>> terms;      // one per rank
};
struct Group {
    NcclComm comm;
    cudaStream_t stream;
    std::vector<std::vector<Transfer>> out, in; // by peer, in order
    std::deque<Sum> sums = {};
};
// Groups live as long as the process: a graph may run them again.
std::deque<Group> groups;
thread_local Group* open_group = nullptr;
thread_local int depth = 0;

int get_version(int* version) { return *version = 20000, 0; }
int get_unique_id(NcclId* id) {
    std::random_device random;
    std::snprintf(id->bytes, sizeof id->bytes, "%08x%08x%08x", random(), random(), random());
    return 0;
}

// Returns an abstract address, which leaves nothing in a folder: its first byte is 0.
sockaddr_un address_of(const NcclId& id, int rank, socklen_t* length) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    char* const name = address.sun_path + 1;
    const int n = std::snprintf(name, sizeof address.sun_path - 1, "lockstep-nccl-%s-%d", id.bytes, rank);
    *length = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + size_t(n));
    return address;
}
// Returns a connection to a peer, which may not listen yet; -1 after half a minute.
int connect_to(const NcclId& id, int peer) {
    socklen_t length;
    const sockaddr_un address = address_of(id, peer, &length);
    for (int attempt = 0; attempt < 3000; attempt++) {
        const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, reinterpret_cast<const sockaddr*>(&address), length) == 0) return fd;
        close(fd);
        usleep(10000);
    }
    return -1;
}
int comm_init_rank(NcclComm* comm, int size, NcclId id, int rank) {
    NcclCommTag* const c = new NcclCommTag{rank, size, std::vector<int>(size_t(size), -1)};
    socklen_t length;
    const sockaddr_un mine = address_of(id, rank, &length);
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, reinterpret_cast<const sockaddr*>(&mine), length) || listen(listener, size)) return 1;
    for (int peer = 0; peer < rank; peer++) {
        const int fd = c->sockets[size_t(peer)] = connect_to(id, peer);
        if (fd < 0 || write(fd, &rank, sizeof rank) != sizeof rank) return 1;
    }
    for (int left = size - rank - 1; left > 0; left--) {
        const int fd = accept(listener, nullptr, nullptr);
        int peer;
        if (fd < 0 || read(fd, &peer, sizeof peer) != sizeof peer) return 1;
        c->sockets[size_t(peer)] = fd;
    }
    close(listener);
    *comm = c;
    return 0;
}
int comm_destroy(NcclComm comm) {
    for (const int fd : comm->sockets)
        if (fd >= 0) close(fd);
    delete comm;
    return 0;
}

// Makes all transfers of a group, in both directions and with all peers at once.
void run_group(const Group& g) {
    const size_t size = size_t(g.comm->size);
    std::vector<std::jthread> threads;
    const auto start = [&](const std::vector<Transfer>& all, size_t peer, ptx::AccessKind kind) {
        for (const Transfer& t : all) ptx::touched(t.data, t.bytes, kind);
        threads.emplace_back([all, kind, fd = g.comm->sockets[peer]] {
            for (Transfer t : all)
                while (t.bytes) {
                    const ssize_t n = kind == ptx::kReads ? send(fd, t.data, t.bytes, MSG_NOSIGNAL)
                                                          : recv(fd, t.data, t.bytes, 0);
                    if (n == 0 || (n < 0 && errno != EINTR))
                        for (;;) pause();       // a peer is gone: the stream stands still
                    if (n > 0) t.data += n, t.bytes -= size_t(n);
                }
        });
    };
    for (size_t p = 0; p < size; p++) {
        if (!g.out[p].empty()) start(g.out[p], p, ptx::kReads);
        if (!g.in[p].empty()) start(g.in[p], p, ptx::kWrites);
    }
    threads.clear();
    for (const Sum& s : g.sums) {
        ptx::touched(s.own, s.terms[0].size() * sizeof(float), ptx::kReads);
        ptx::touched(s.to, s.terms[0].size() * sizeof(float), ptx::kWrites);
        for (size_t i = 0; i < s.terms[0].size(); i++) {
            float total = 0;
            for (size_t r = 0; r < size; r++) {
                const float term = r == size_t(g.comm->rank) ? s.own[i] : s.terms[r][i];
                total = r ? total + term : term;
            }
            s.to[i] = total;
        }
    }
}

Group& group(NcclComm comm, void* stream) {
    if (open_group) return *open_group;
    const std::vector<std::vector<Transfer>> none(size_t(comm->size));
    open_group = &groups.emplace_back(Group{comm, static_cast<cudaStream_t>(stream), none, none});
    return *open_group;
}
int group_start() { return depth++, 0; }
int group_end() {
    if (--depth > 0 || !open_group) return 0;
    Group* const g = std::exchange(open_group, nullptr);
    return ptx::append_call(g->stream, "a group of NCCL", [g] { run_group(*g); }) == cudaSuccess ? 0 : 1;
}

size_t bytes_of(size_t count, int type) { return type == kNcclFloat ? count * sizeof(float) : count; }
int send_data(const void* data, size_t count, int type, int peer, NcclComm comm, void* stream) {
    group_start();
    char* const from = static_cast<char*>(const_cast<void*>(data));
    group(comm, stream).out[size_t(peer)].push_back({from, bytes_of(count, type)});
    return group_end();
}
int receive_data(void* data, size_t count, int type, int peer, NcclComm comm, void* stream) {
    group_start();
    group(comm, stream).in[size_t(peer)].push_back({static_cast<char*>(data), bytes_of(count, type)});
    return group_end();
}
// Every rank's numbers, added up on the root.
int reduce(const void* from, void* to, size_t count, int type, int, int root, NcclComm comm, void* stream) {
    if (type != kNcclFloat) return 1;
    if (comm->rank != root) return send_data(from, count, type, root, comm, stream);
    group_start();
    Group& g = group(comm, stream);
    const std::vector<std::vector<float>> terms(size_t(comm->size), std::vector<float>(count));
    Sum& sum = g.sums.emplace_back(Sum{static_cast<const float*>(from), static_cast<float*>(to), terms});
    for (size_t r = 0; r < size_t(comm->size); r++)
        if (r != size_t(root)) g.in[r].push_back({reinterpret_cast<char*>(sum.terms[r].data()), bytes_of(count, type)});
    return group_end();
}
const char* error_string(int) { return "a failure in software"; }
int get_async_error(NcclComm, int* error) { return *error = 0; }

}  // namespace

void* ptx::nccl_function(const char* name) {
    const auto at = [](auto* f) { return reinterpret_cast<void*>(f); };
    static const struct { const char* name; void* function; } kAll[] = {
        {"ncclGetVersion", at(get_version)}, {"ncclGetUniqueId", at(get_unique_id)},
        {"ncclCommInitRank", at(comm_init_rank)}, {"ncclCommDestroy", at(comm_destroy)},
        {"ncclGroupStart", at(group_start)}, {"ncclGroupEnd", at(group_end)}, {"ncclSend", at(send_data)},
        {"ncclRecv", at(receive_data)}, {"ncclReduce", at(reduce)}, {"ncclGetErrorString", at(error_string)},
        {"ncclCommGetAsyncError", at(get_async_error)}};
    for (const auto& f : kAll)
        if (!std::strcmp(f.name, name)) return f.function;
    return nullptr;
}
