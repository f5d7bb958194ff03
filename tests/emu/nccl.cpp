// nccl.cpp -- a stand-in for NCCL between emulated GPUs: what src/ddp/nccl.h declares, over Unix sockets between the
// ranks' processes.
//
// Like the library it only puts work on the stream: a group is one host function there, which moves all its sends and
// receives at once, so that no order of them can lock. A group of a capture is run by every launch of the graph. Sums
// are added in order of rank, which is not the order of the trainer's tree.
#include "src/ddp/nccl.h"
#include <cerrno>
#include <cstring>
#include <memory>
#include <poll.h>
#include <random>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <vector>
#include "src/base/common.h"
#include "tests/emu/emu.h"

namespace {

struct Transfer {
    char* data;
    size_t bytes;
};
struct Sum {
    float* to;
    std::vector<std::vector<float>> terms;
};  // one per rank

struct Group {
    NcclComm comm = nullptr;
    void* stream = nullptr;
    std::vector<std::vector<Transfer>> out, in;  // by peer, in order
    std::vector<Sum> sums;
    bool kept = false;  // in a graph
};

// What is in a graph lives on, and is not lost.
std::vector<std::shared_ptr<void>>& graphed() {
    static std::vector<std::shared_ptr<void>>* const all = new std::vector<std::shared_ptr<void>>;
    return *all;
}
bool is_captured(void* stream) {
    emu::cudaStreamCaptureStatus status;
    return emu::cudaStreamIsCapturing(static_cast<emu::cudaStream_t>(stream), &status) == emu::cudaSuccess &&
           status == emu::cudaStreamCaptureStatusActive;
}

}  // namespace

struct NcclCommTag {
    int rank, size;
    std::vector<int> sockets;
};

namespace {

thread_local Group* open_group = nullptr;
thread_local int depth = 0;

int get_version(int* version) {
    *version = 20000;
    return 0;
}

int get_unique_id(NcclId* id) {
    *id = {};
    std::random_device random;
    std::snprintf(id->bytes, sizeof id->bytes, "%08x%08x%08x", random(), random(), random());
    return 0;
}

sockaddr_un address_of(const NcclId& id, int rank, socklen_t* length) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;  // abstract: the first byte is 0, and nothing is left in a folder
    const int n =
        std::snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "lockstep-nccl-%s-%d", id.bytes, rank);
    *length = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + size_t(n));
    return address;
}

int comm_init_rank(NcclComm* comm, int size, NcclId id, int rank) {
    NcclCommTag* c = new NcclCommTag{rank, size, std::vector<int>(size_t(size), -1)};
    socklen_t length;
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_un mine = address_of(id, rank, &length);
    if (bind(listener, reinterpret_cast<const sockaddr*>(&mine), length) || listen(listener, size)) return 1;
    for (int peer = 0; peer < rank; peer++) {
        const sockaddr_un theirs = address_of(id, peer, &length);
        for (int attempt = 0;; attempt++) {
            const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
            if (connect(fd, reinterpret_cast<const sockaddr*>(&theirs), length) == 0) {
                if (write(fd, &rank, sizeof rank) != sizeof rank) return 1;
                c->sockets[size_t(peer)] = fd;
                break;
            }
            close(fd);
            if (attempt > 3000) return 1;
            usleep(10000);
        }
    }
    for (int k = rank + 1; k < size; k++) {
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

// All transfers of the group, in both directions at once.
void run_group(void* pointer) {
    Group* const g = static_cast<Group*>(pointer);
    const size_t size = size_t(g->comm->size);
    std::vector<size_t> sent(size), received(size);  // transfers finished, by peer
    std::vector<std::vector<Transfer>> out = g->out, in = g->in;
    for (;;) {
        std::vector<pollfd> fds;
        std::vector<size_t> peers;
        for (size_t p = 0; p < size; p++) {
            const short events =
                short((sent[p] < out[p].size() ? POLLOUT : 0) | (received[p] < in[p].size() ? POLLIN : 0));
            if (!events) continue;
            fds.push_back({g->comm->sockets[p], events, 0});
            peers.push_back(p);
        }
        if (fds.empty()) break;
        poll(fds.data(), nfds_t(fds.size()), 1000);
        for (size_t i = 0; i < fds.size(); i++) {
            const size_t p = peers[i];
            const auto advance = [](Transfer& t, ssize_t n, size_t* finished) {
                if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
                    for (;;) pause();  // a peer is gone: the stream stands still
                if (n > 0) {
                    t.data += n;
                    t.bytes -= size_t(n);
                }
                if (t.bytes == 0) ++*finished;
            };
            if (fds[i].revents & POLLOUT) {
                Transfer& t = out[p][sent[p]];
                advance(t, send(fds[i].fd, t.data, t.bytes, MSG_DONTWAIT | MSG_NOSIGNAL), &sent[p]);
            }
            if (fds[i].revents & (POLLIN | POLLHUP)) {
                Transfer& t = in[p][received[p]];
                advance(t, recv(fds[i].fd, t.data, t.bytes, MSG_DONTWAIT), &received[p]);
            }
        }
    }
    for (const Sum& s : g->sums)
        for (size_t i = 0; i < s.terms[0].size(); i++) {
            float total = s.terms[0][i];
            for (size_t r = 1; r < size; r++) total += s.terms[r][i];
            s.to[i] = total;
        }
    if (!g->kept) delete g;
}

Group* group(NcclComm comm, void* stream) {
    if (!open_group) {
        open_group = new Group;
        open_group->comm = comm;
        open_group->stream = stream;
        open_group->kept = is_captured(stream);
        if (open_group->kept) graphed().emplace_back(open_group);
        open_group->out.resize(size_t(comm->size));
        open_group->in.resize(size_t(comm->size));
    }
    return open_group;
}
int group_start() {
    depth++;
    return 0;
}
int group_end() {
    if (--depth > 0 || !open_group) return 0;
    Group* const g = std::exchange(open_group, nullptr);
    return emu::cudaLaunchHostFunc(static_cast<emu::cudaStream_t>(g->stream), run_group, g) == emu::cudaSuccess ? 0 : 1;
}

size_t element(int type) { return type == kNcclFloat ? sizeof(float) : 1; }
int send_data(const void* data, size_t count, int type, int peer, NcclComm comm, void* stream) {
    group_start();
    group(comm, stream)
        ->out[size_t(peer)]
        .push_back({static_cast<char*>(const_cast<void*>(data)), count * element(type)});
    return group_end();
}
int receive_data(void* data, size_t count, int type, int peer, NcclComm comm, void* stream) {
    group_start();
    group(comm, stream)->in[size_t(peer)].push_back({static_cast<char*>(data), count * element(type)});
    return group_end();
}

// Every rank's numbers, added up on the root.
int sum(const void* from, void* to, size_t count, int type, NcclComm comm, void* stream, int root) {
    if (type != kNcclFloat) return 1;
    group_start();
    Group* const g = group(comm, stream);
    const auto gets = [&](int rank) { return rank == root; };
    if (gets(comm->rank)) {
        g->sums.push_back(
            {static_cast<float*>(to), std::vector<std::vector<float>>(size_t(comm->size), std::vector<float>(count))});
        for (int r = 0; r < comm->size; r++)
            if (r != comm->rank)
                g->in[size_t(r)].push_back(
                    {reinterpret_cast<char*>(g->sums.back().terms[size_t(r)].data()), count * sizeof(float)});
    }
    // What is there when the stream gets here, not now: a function of its own in front of the group.
    struct Fetch {
        std::vector<float>* to;
        const void* from;
        bool kept;
    };
    if (gets(comm->rank)) {
        Fetch* const fetch = new Fetch{&g->sums.back().terms[size_t(comm->rank)], from, g->kept};
        if (g->kept) graphed().emplace_back(fetch);
        emu::cudaLaunchHostFunc(
            static_cast<emu::cudaStream_t>(stream),
            [](void* p) {
                Fetch* const f = static_cast<Fetch*>(p);
                std::memcpy(f->to->data(), f->from, f->to->size() * sizeof(float));
                if (!f->kept) delete f;
            },
            fetch);
    }
    for (int r = 0; r < comm->size; r++)
        if (r != comm->rank && gets(r))
            g->out[size_t(r)].push_back({static_cast<char*>(const_cast<void*>(from)), count * sizeof(float)});
    return group_end();
}
int reduce(const void* from, void* to, size_t count, int type, int, int root, NcclComm comm, void* stream) {
    return sum(from, to, count, type, comm, stream, root);
}
const char* error_string(int) { return "emulated failure"; }
int get_async_error(NcclComm, int* error) { return *error = 0; }

const Nccl functions = {get_version, get_unique_id, comm_init_rank, comm_destroy, group_start, group_end,
                        send_data,   receive_data,  reduce,         error_string, get_async_error};

}  // namespace

const Nccl* nccl_load() { return &functions; }
