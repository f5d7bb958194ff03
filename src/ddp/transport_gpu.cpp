// transport_gpu.cpp -- GPU ranks: NCCL. Reductions and gathers are put on the stream; the host does
// not wait.
//
// In an exchange each rank sends every partner that partner's slice, in one NCCL group; then
// tree_reduce adds, in the tree's order. The partners are the ranks of a host. With several hosts a
// second exchange follows, in which they are the ranks of equal local rank. Grouped sends and
// receives move as many bytes as ncclReduceScatter.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <set>
#include "src/ddp/ddp.h"

namespace BACKEND {

// ---- NCCL, loaded at run time (libnccl.so.2): a build needs no header of it
//
// Signatures are those of nccl.h, NCCL 2.7 and later. tests/gpu/nccl.cpp is a stand-in that sends
// between GPUs in software.

struct NcclId { char bytes[128]; };
using NcclComm = struct NcclCommTag*;
enum NcclType { kNcclBytes = 1, kNcclFloat = 7 };       // ncclUint8, ncclFloat32
constexpr int kNcclSum = 0, kNcclInProgress = 7;

struct Nccl {                                           // in the order of the names in load_nccl
    int (*get_version)(int* version);                   // 22803 = 2.28.3
    int (*get_unique_id)(NcclId* id);
    int (*comm_init_rank)(NcclComm* comm, int size, NcclId id, int rank);
    int (*comm_destroy)(NcclComm comm);
    int (*group_start)();
    int (*group_end)();
    int (*send)(const void* data, size_t count, int type, int peer, NcclComm comm, void* stream);
    int (*recv)(void* data, size_t count, int type, int peer, NcclComm comm, void* stream);
    int (*reduce)(const void* from, void* to, size_t count, int type, int op, int root,
                  NcclComm comm, void* stream);
    const char* (*error_string)(int result);
    int (*get_async_error)(NcclComm comm, int* error);
};

static Nccl nccl;               // empty with one rank
static void load_nccl();        // at the end of this file

// ---- the transport

static void check(int result, const char* what) {
    if (result != 0)
        die(kExitPeer, "NCCL: %s: %s; NCCL_DEBUG=INFO says more", what, nccl.error_string(result));
}

// A launcher may show only one GPU to each rank (srun --gpus-per-task 1). Then the GPUs' addresses
// on the bus differ.
void transport_place(Comm* comm) {
    const int devices = device_count();
    device_select(comm->local_rank % devices);
    const uint64_t mine = std::hash<std::string>()(format("%d %s", comm->host, device_address()));
    const std::vector<uint64_t> all = comm_gather(comm, mine);
    if (comm->local_size <= devices) return;
    if (std::set(all.begin(), all.end()).size() == all.size()) return;
    if (!std::getenv("LOCKSTEP_SHARE_GPU"))
        die(kExitUsage,
            "ranks: %d on a host with %d GPUs: got more ranks than GPUs, want one rank per GPU; "
            "start %d",
            comm->local_size, devices, devices);
    // NCCL refuses two ranks of one host on one GPU, so each rank gets its own host id.
    const std::string& host = comm->peers[comm->rank].host;
    setenv("NCCL_HOSTID", format("%s-%d", host.c_str(), comm->rank).c_str(), 0);
}

void transport_create(Transport* x, const std::vector<Bucket>& buckets) {
    Comm* const comm = x->comm;
    x->transport = "one GPU";
    x->gradients = device<float>(x->n, "gradients");
    x->weights = device<floatX>(x->n, "weights");
    x->partials = device<float>(x->n / kUnit, "partial norms");
    if (comm->size == 1) return;
    // NCCL may use 16 thread blocks, or as many as the user says. 16 are enough for NVLink and for
    // network cards (docs/kernels.md); 64 are NCCL's own limit.
    setenv("NCCL_MAX_CTAS", "16", 0);
    x->multiprocessors = std::clamp(std::atoi(std::getenv("NCCL_MAX_CTAS")), 0, 64);
    int v = 0;
    load_nccl();
    check(nccl.get_version(&v), "version");
    x->transport = format("NCCL %d.%d.%d", v / 10000, v / 100 % 100, v % 100);
    NcclId id = {};
    if (comm->rank == 0) check(nccl.get_unique_id(&id), "unique id");
    id = comm_gather(comm, id)[0];
    comm_progress(comm, -1, "NCCL start");
    check(nccl.comm_init_rank(&x->ranks, comm->size, id, comm->rank), "joining the ranks");
    size_t room = 0;
    for (const Bucket& b : buckets)
        room = std::max({room, b.local(comm->local_rank).size() * comm->local_size,
                         b.own(comm->rank).size() * comm->hosts});
    x->received = device<float>(room, "gradients from other ranks");
}

void transport_destroy(Transport* x) {
    if (x->ranks) nccl.comm_destroy(x->ranks);
    device_free(x->gradients);
    device_free(x->weights);
    device_free(x->partials);
    device_free(x->received);
}

struct Swap { int rank; const void* out; size_t out_bytes; void* in; size_t in_bytes; };

// Sends slices to ranks and receives slices from them, as one NCCL group.
static void swap_slices(Transport* x, const std::vector<Swap>& swaps, Stream stream) {
    void* const native = stream_native(stream);
    check(nccl.group_start(), "group");
    for (const Swap& s : swaps) {
        if (s.out_bytes)
            check(nccl.send(s.out, s.out_bytes, kNcclBytes, s.rank, x->ranks, native), "send");
        if (s.in_bytes)
            check(nccl.recv(s.in, s.in_bytes, kNcclBytes, s.rank, x->ranks, native), "receive");
    }
    check(nccl.group_end(), "group");
}

// A reduce-scatter among ranks first_rank, first_rank + stride, ...: sends them their slices,
// receives this rank's, and adds these.
static void exchange(Transport* x, const std::vector<Range>& slices, int first_rank, int stride,
                     bool last, Stream stream) {
    std::vector<Swap> swaps;
    std::vector<float*> terms;
    const Range mine = slices[(x->comm->rank - first_rank) / stride];
    int rank = first_rank;
    for (const Range theirs : slices) {
        float* const to = x->received + swaps.size() * mine.size();
        const bool self = rank == x->comm->rank;
        terms.push_back(self ? x->gradients + mine.begin : to);
        if (!self)
            swaps.push_back({rank, x->gradients + theirs.begin, theirs.size() * sizeof(float), to,
                             mine.size() * sizeof(float)});
        rank += stride;
    }
    swap_slices(x, swaps, stream);
    // One kernel adds at most kGpuTerms terms. Sums of kGpuTerms neighbours are nodes of the
    // balanced tree, so adding these next changes no bit.
    for (size_t n = terms.size(); n > kGpuTerms; terms.resize(n)) {
        n /= kGpuTerms;
        for (size_t b = 0; b < n; b++) {
            terms[b] = terms[b * kGpuTerms];
            tree_reduce(terms[b], nullptr, &terms[b * kGpuTerms], kGpuTerms, Tree::kBalanced,
                        mine.size(), stream);
        }
    }
    add_terms(x, Tree::kBalanced, mine, {terms.begin(), terms.end()}, last, stream);
}

void transport_reduce(Transport* x, const Bucket& bucket, Stream stream) {
    const Comm* const comm = x->comm;
    if (comm->size == 1) return;
    if (!x->nccl_sums) {
        std::vector<Range> local, own;
        for (int l = 0; l < comm->local_size; l++) local.push_back(bucket.local(l));
        for (int h = 0; h < comm->hosts; h++)
            own.push_back(bucket.own(h * comm->local_size + comm->local_rank));
        exchange(x, local, comm->host * comm->local_size, 1, comm->hosts == 1, stream);
        if (comm->hosts > 1) exchange(x, own, comm->local_rank, comm->local_size, true, stream);
        return;
    }
    const Range own = bucket.own(comm->rank);
    void* const native = stream_native(stream);
    check(nccl.group_start(), "group");
    for (int r = 0; r < comm->size; r++) {
        float* const data = x->gradients + bucket.own(r).begin;
        const size_t n = bucket.own(r).size();
        if (n)
            check(nccl.reduce(data, data, n, kNcclFloat, kNcclSum, r, x->ranks, native), "reduce");
    }
    check(nccl.group_end(), "group");
    // One term: this adds nothing and only writes the sums of squares.
    add_terms(x, Tree::kBalanced, own, {x->gradients + own.begin}, true, stream);
}

void transport_gather(Transport* x, void* array, size_t unit_bytes, const Bucket& bucket,
                      Stream stream) {
    const auto bytes = [&](int rank) { return bucket.own(rank).size() / kUnit * unit_bytes; };
    const auto at = [&](int rank) {
        return static_cast<char*>(array) + bucket.own(rank).begin / kUnit * unit_bytes;
    };
    std::vector<Swap> swaps;
    const int self = x->comm->rank;
    for (int r = 0; r < x->comm->size; r++)
        if (r != self) swaps.push_back({r, at(self), bytes(self), at(r), bytes(r)});
    if (!swaps.empty()) swap_slices(x, swaps, stream);
}
void transport_finish(Transport*) {}

void transport_check(Transport* x) {
    int error = 0;
    if (!x->ranks || nccl.get_async_error(x->ranks, &error) != 0) return;
    if (error == kNcclInProgress) return;
    check(error, "the network between the ranks");
}

// ---- finds NCCL's functions

// LOCKSTEP_NCCL names the library where the loader does not find it.
// kExitNoInput: it is not there.
static void load_nccl() {
    static const char* const names[] = {"GetVersion", "GetUniqueId", "CommInitRank", "CommDestroy",
        "GroupStart", "GroupEnd", "Send", "Recv", "Reduce", "GetErrorString", "CommGetAsyncError"};
    void* functions[std::size(names)];
    static_assert(sizeof nccl == sizeof functions);
    const char* const file = std::getenv("LOCKSTEP_NCCL");
    void* const library = dlopen(file && *file ? file : "libnccl.so.2", RTLD_NOW | RTLD_GLOBAL);
    for (size_t i = 0; i < std::size(names); i++) {
        functions[i] = library ? dlsym(library, format("nccl%s", names[i]).c_str()) : nullptr;
        if (!functions[i])
            die(kExitNoInput,
                "NCCL: %s; several GPUs need 2.7 or newer: install libnccl2, or name it with "
                "LOCKSTEP_NCCL=FILE",
                dlerror());
    }
    std::memcpy(&nccl, functions, sizeof nccl);
}

}  // namespace BACKEND
