// exchange_gpu.cpp -- the roads between GPUs. Both are only put on the stream here; nothing waits.
//
//   NCCL     each rank sends every other one its slice of the bucket, in one group: a reduce-scatter whose sums are left to fold, so that
//            their order is ours. Grouped sends and receives carry the same bytes as ncclReduceScatter does.
//   staged   the bucket goes to host memory that the ranks of the host share; a barrier in the stream; the others' parts come back.
//            For ranks that share a GPU (tests), and where NCCL is not installed. TCP between hosts.
//
// LOCKSTEP_TRANSPORT=nccl or staged decides where both would do.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include "common.h"
#include "exchange.h"
#include "gpu_health.h"
#include "nccl.h"

namespace BACKEND {

struct Exchange {
    Comm* comm;
    float* gradients;                       // (n)
    floatX* weights;                        // (n)
    float* partials;                        // (n / kUnit)
    float* received;                        // the others' parts of a bucket
    // NCCL
    const Nccl* nccl;                       // null: staged
    NcclComm ranks;
    bool sums;                              // NCCL adds
    std::string name;
    // staged: host memory shared by the host's ranks, laid out as the device's
    std::vector<float*> host_gradients;     // of each local rank
    char *host_weights, *host_partials;
    float* host_received;                   // from other hosts
    struct HostJob { Exchange* x; Range slice; char* base; size_t unit_bytes; };
    std::vector<HostJob*> jobs;             // the same in every step; the stream reads them later
};

static bool staged(const Exchange* x) { return !x->nccl && x->comm->size > 1; }
static int rank_of(const Comm* comm, int host, int local_rank) { return host * comm->local_size + local_rank; }

// ----------------------------------------------------------------------------------------------------------- set up

static const char* transport() {
    const char* const name = std::getenv("LOCKSTEP_TRANSPORT");
    if (name && std::strcmp(name, "nccl") && std::strcmp(name, "staged")) die(kExitUsage, "LOCKSTEP_TRANSPORT: got %s, want nccl or staged", name);
    return name;
}

// More ranks than GPUs would only take turns on them. But a launcher may show each rank a GPU of its own alone (CUDA_VISIBLE_DEVICES,
// srun --gpus-per-task 1): then what the ranks see is not all there is, and their addresses on the bus tell.
void exchange_place(Comm* comm) {
    const int devices = device_count();
    device_select(comm->local_rank % devices);
    std::vector<std::string> address = comm_gather_text(comm, device_address());
    address = {address.begin() + rank_of(comm, comm->host, 0), address.begin() + rank_of(comm, comm->host, comm->local_size)};
    std::sort(address.begin(), address.end());
    const bool crowded = comm->local_size > devices && (address[0].empty() || std::adjacent_find(address.begin(), address.end()) != address.end());
    if (crowded && !transport())
        die(kExitUsage, "%d ranks on a host with %d GPU%s: got more ranks than GPUs, want one rank per GPU; start %d", comm->local_size, devices,
            devices == 1 ? "" : "s", devices);
    bind_near_gpu(device_address());
    if (crowded)                            // NCCL refuses two ranks on one GPU of one host: let each be a host of its own
        setenv("NCCL_HOSTID", format("%s-%d", comm->peers[size_t(comm->rank)].host.c_str(), comm->rank).c_str(), 0);
}

static void connect_nccl(Exchange* x, bool wanted) {
    const Comm* comm = x->comm;
    std::string why;
    x->nccl = nccl_load(&why);
    const std::vector<std::string> found = comm_gather_text(x->comm, x->nccl ? nccl_version(x->nccl) : "");
    for (int r = 0; r < comm->size; r++) {
        if (found[size_t(r)] == found[0]) continue;
        die(kExitUsage, "NCCL: rank %d on %s has \"%s\", rank 0 \"%s\"; all need the same", r, comm->peers[size_t(r)].host.c_str(), found[size_t(r)].c_str(), found[0].c_str());
    }
    if (!x->nccl) {
        if (wanted) die(kExitNoInput, "NCCL: %s; install libnccl2, name it with LOCKSTEP_NCCL=FILE, or use --reduce ordered", why.c_str());
        if (comm->rank == 0) warn("NCCL not found (%s): gradients go through host memory, slower, the same bits; install libnccl2", why.c_str());
        return;
    }
    NcclId id = {};
    if (comm->rank == 0) nccl_check(x->nccl, x->nccl->get_unique_id(&id), "unique id");
    comm_broadcast(x->comm, &id, sizeof id, 0);
    comm_progress(x->comm, -1, "NCCL start");
    nccl_check(x->nccl, x->nccl->comm_init_rank(&x->ranks, comm->size, id, comm->rank), "joining the ranks");
    x->name = found[0];
}

static void map_host_memory(Exchange* x, size_t n, size_t room) {
    Comm* comm = x->comm;
    const size_t bytes = n * sizeof(float);
    char* gradients = static_cast<char*>(comm_shared(comm, size_t(comm->local_size) * bytes, "gradients on their way through host memory"));
    for (int l = 0; l < comm->local_size; l++) x->host_gradients.push_back(reinterpret_cast<float*>(gradients + size_t(l) * bytes));
    x->host_weights = static_cast<char*>(comm_shared(comm, n * sizeof(floatX), "weights on their way through host memory"));
    x->host_partials = static_cast<char*>(comm_shared(comm, n / kUnit * sizeof(float), "partial norms on their way through host memory"));
    host_register(gradients, size_t(comm->local_size) * bytes);
    host_register(x->host_weights, n * sizeof(floatX));
    host_register(x->host_partials, n / kUnit * sizeof(float));
    if (comm->hosts > 1) x->host_received = static_cast<float*>(host_alloc(room * sizeof(float), "gradients from other hosts"));
    x->name = "host memory";
}

Exchange* exchange_create(Comm* comm, size_t n, size_t largest, bool nccl_sums) {
    if (!nccl_sums && (comm->hosts > kGpuTerms || comm->local_size > kGpuTerms))
        die(kExitUsage, "--reduce ordered: got %d hosts of %d ranks, want at most %d of %d; start fewer ranks, or take --reduce nccl", comm->hosts, comm->local_size,
            kGpuTerms, kGpuTerms);
    Exchange* x = new Exchange{};
    x->comm = comm;
    x->sums = nccl_sums;
    x->name = "one GPU";
    const size_t room = round_up(largest, kUnit) + size_t(comm->size) * kUnit;
    const auto array = [&](size_t bytes, const char* what) { return device_alloc(bytes, what); };
    x->gradients = static_cast<float*>(array(n * sizeof(float), "gradients"));
    x->weights = static_cast<floatX*>(array(n * sizeof(floatX), "weights"));
    x->partials = static_cast<float*>(array(n / kUnit * sizeof(float), "partial norms"));
    if (comm->size == 1) return x;
    if (!transport() || !std::strcmp(transport(), "nccl")) connect_nccl(x, nccl_sums);
    if (!x->nccl) map_host_memory(x, n, room);
    if (!x->nccl && nccl_sums) die(kExitUsage, "--reduce nccl: got LOCKSTEP_TRANSPORT=staged, want NCCL; leave one of them out");
    x->received = static_cast<float*>(array(room * sizeof(float), "gradients from other ranks"));
    return x;
}

void exchange_destroy(Exchange* x) {
    if (!x) return;
    if (x->ranks) x->nccl->comm_destroy(x->ranks);
    for (Exchange::HostJob* job : x->jobs) delete job;
    for (void* memory : {static_cast<void*>(x->gradients), static_cast<void*>(x->weights), static_cast<void*>(x->partials), static_cast<void*>(x->received)}) device_free(memory);
    host_free(x->host_received);
    delete x;
}

const char* exchange_name(const Exchange* x) { return x->name.c_str(); }
bool exchange_on_device(const Exchange* x) { return !staged(x); }
float* exchange_gradients(Exchange* x) { return x->gradients; }
floatX* exchange_weights(Exchange* x) { return x->weights; }
float* exchange_partials(Exchange* x) { return x->partials; }

// ---------------------------------------------------------------------------------------------------- host jobs of the staged road

static void barrier_job(void* job) { comm_local_barrier(static_cast<Exchange::HostJob*>(job)->x->comm, 1); }

static std::vector<size_t> host_cuts(const Exchange::HostJob* job) { return host_cuts(job->x->comm, job->slice, job->unit_bytes); }
static void scatter_job(void* p) {
    const Exchange::HostJob* job = static_cast<Exchange::HostJob*>(p);
    const std::vector<size_t> cut = host_cuts(job);
    const int host = job->x->comm->host;
    comm_hosts_scatter(job->x->comm, job->base, cut.data(), job->x->host_received, cut[size_t(host) + 1] - cut[size_t(host)], nullptr);
}
static void gather_job(void* p) {
    const Exchange::HostJob* job = static_cast<Exchange::HostJob*>(p);
    comm_hosts_gather(job->x->comm, job->base, host_cuts(job).data());
}
// base: the slice's first byte in host memory.
static void put_job(Exchange* x, Stream stream, void (*function)(void*), Range slice = {}, void* base = nullptr, size_t unit_bytes = 0) {
    const Exchange::HostJob wanted = {x, slice, static_cast<char*>(base), unit_bytes};
    for (Exchange::HostJob* job : x->jobs)
        if (std::memcmp(job, &wanted, sizeof wanted) == 0) return stream_call(stream, function, job);
    x->jobs.push_back(new Exchange::HostJob(wanted));
    stream_call(stream, function, x->jobs.back());
}

// ------------------------------------------------------------------------------------------------------------ the reduction

// NCCL: to each of `peers` goes the part of `gradients` it is to sum, from each comes its part of `mine`, into x->received.
static std::vector<const float*> swap_parts(Exchange* x, Range mine, const std::vector<std::pair<int, Range>>& peers, Stream stream) {
    const Nccl* nccl = x->nccl;
    std::vector<const float*> terms;
    float* to = x->received;
    nccl_check(nccl, nccl->group_start(), "group");
    for (const auto& [rank, theirs] : peers) {
        if (rank == x->comm->rank) {
            terms.push_back(x->gradients + mine.begin);
            continue;
        }
        if (theirs.size()) nccl_check(nccl, nccl->send(x->gradients + theirs.begin, theirs.size(), kNcclFloat, rank, x->ranks, stream_native(stream)), "send");
        if (mine.size()) nccl_check(nccl, nccl->recv(to, mine.size(), kNcclFloat, rank, x->ranks, stream_native(stream)), "receive");
        terms.push_back(to);
        to += mine.size();
    }
    nccl_check(nccl, nccl->group_end(), "group");
    return terms;
}

// --reduce nccl: the library sums every rank's own slice.
static std::vector<const float*> sum_by_nccl(Exchange* x, Range bucket, Stream stream) {
    const Comm* comm = x->comm;
    nccl_check(x->nccl, x->nccl->group_start(), "group");
    for (int h = 0; h < comm->hosts; h++)
        for (int l = 0; l < comm->local_size; l++) {
            const Range r = own_slice(bucket, comm, l, h);
            if (r.size()) nccl_check(x->nccl, x->nccl->reduce(x->gradients + r.begin, x->gradients + r.begin, r.size(), kNcclFloat, kNcclSum, rank_of(comm, h, l), x->ranks, stream_native(stream)), "reduce");
        }
    nccl_check(x->nccl, x->nccl->group_end(), "group");
    return {x->gradients + host_slice(bucket, comm, comm->local_rank).begin};
}

std::vector<const float*> exchange_local(Exchange* x, Range bucket, Stream stream) {
    const Comm* comm = x->comm;
    const Range slice = host_slice(bucket, comm, comm->local_rank);
    if (x->nccl && x->sums) return sum_by_nccl(x, bucket, stream);
    if (comm->local_size == 1) return {x->gradients + slice.begin};
    if (x->nccl) {
        std::vector<std::pair<int, Range>> peers;
        for (int l = 0; l < comm->local_size; l++) peers.push_back({rank_of(comm, comm->host, l), host_slice(bucket, comm, l)});
        return swap_parts(x, slice, peers, stream);
    }
    copy_to_host_later(x->host_gradients[size_t(comm->local_rank)] + bucket.begin, x->gradients + bucket.begin, bucket.size() * sizeof(float), stream);
    put_job(x, stream, barrier_job);
    std::vector<const float*> terms;
    for (int l = 0; l < comm->local_size; l++) {
        float* to = l == comm->local_rank ? x->gradients + slice.begin : x->received + size_t(l) * slice.size();
        if (l != comm->local_rank) copy_to_device(to, x->host_gradients[size_t(l)] + slice.begin, slice.size() * sizeof(float), stream);
        terms.push_back(to);
    }
    return terms;
}

void exchange_hosts(Exchange* x, Range bucket, Stream stream, const Sum& sum) {
    const Comm* comm = x->comm;
    const Range slice = host_slice(bucket, comm, comm->local_rank), own = own_slice(bucket, comm, comm->local_rank, comm->host);
    if (comm->hosts == 1 || (x->nccl && x->sums)) return sum(own, {x->gradients + own.begin});
    if (x->nccl) {
        std::vector<std::pair<int, Range>> peers;
        for (int h = 0; h < comm->hosts; h++) peers.push_back({rank_of(comm, h, comm->local_rank), own_slice(bucket, comm, comm->local_rank, h)});
        return sum(own, swap_parts(x, own, peers, stream));
    }
    float* const host = x->host_gradients[size_t(comm->local_rank)] + slice.begin;
    copy_to_host_later(host, x->gradients + slice.begin, slice.size() * sizeof(float), stream);
    put_job(x, stream, scatter_job, slice, host, kUnit * sizeof(float));
    std::vector<const float*> terms;
    for (int h = 0; h < comm->hosts; h++) {
        float* to = h == comm->host ? x->gradients + own.begin : x->received + size_t(h) * own.size();
        if (h != comm->host) copy_to_device(to, x->host_received + size_t(h) * own.size(), own.size() * sizeof(float), stream);
        terms.push_back(to);
    }
    sum(own, terms);
}

// --------------------------------------------------------------------------------------------------------------- the gather

static void gather(Exchange* x, void* device, char* host, size_t unit_bytes, Range bucket, Stream stream) {
    const Comm* comm = x->comm;
    if (comm->size == 1) return;
    const auto bytes = [&](Range r) { return r.size() / kUnit * unit_bytes; };
    const auto on_device = [&](Range r) { return static_cast<char*>(device) + r.begin / kUnit * unit_bytes; };
    const auto on_host = [&](Range r) { return host + r.begin / kUnit * unit_bytes; };
    const Range own = own_slice(bucket, comm, comm->local_rank, comm->host), slice = host_slice(bucket, comm, comm->local_rank);
    if (staged(x)) {
        copy_to_host_later(on_host(own), on_device(own), bytes(own), stream);
        if (comm->hosts > 1) put_job(x, stream, gather_job, slice, on_host(slice), unit_bytes);
        if (comm->local_size > 1) put_job(x, stream, barrier_job);
        copy_to_device(on_device(bucket), on_host(bucket), bytes(bucket), stream);
        return;
    }
    nccl_check(x->nccl, x->nccl->group_start(), "group");
    for (int h = 0; h < comm->hosts; h++)
        for (int l = 0; l < comm->local_size; l++) {
            const int rank = rank_of(comm, h, l);
            const Range theirs = own_slice(bucket, comm, l, h);
            if (rank == comm->rank) continue;
            if (own.size()) nccl_check(x->nccl, x->nccl->send(on_device(own), bytes(own), kNcclBytes, rank, x->ranks, stream_native(stream)), "send");
            if (theirs.size()) nccl_check(x->nccl, x->nccl->recv(on_device(theirs), bytes(theirs), kNcclBytes, rank, x->ranks, stream_native(stream)), "receive");
        }
    nccl_check(x->nccl, x->nccl->group_end(), "group");
}

void exchange_gather_weights(Exchange* x, Range bucket, Stream stream) { gather(x, x->weights, x->host_weights, kUnit * sizeof(floatX), bucket, stream); }
void exchange_gather_partials(Exchange* x, Range bucket, Stream stream) { gather(x, x->partials, x->host_partials, sizeof(float), bucket, stream); }

void exchange_check(Exchange* x) {
    int error = 0;
    if (!x->ranks || !x->nccl->get_async_error || x->nccl->get_async_error(x->ranks, &error) != 0) return;
    if (error != 0 && error != kNcclInProgress) nccl_check(x->nccl, error, "the network between the ranks");
}

bool exchange_pair(Exchange* x, int from, int to, size_t n, Stream stream) {
    const Comm* comm = x->comm;
    if (x->nccl) {
        if (comm->rank == from) nccl_check(x->nccl, x->nccl->send(x->gradients, n, kNcclFloat, to, x->ranks, stream_native(stream)), "send");
        if (comm->rank == to) nccl_check(x->nccl, x->nccl->recv(x->gradients, n, kNcclFloat, from, x->ranks, stream_native(stream)), "receive");
        return true;
    }
    if (from / comm->local_size != to / comm->local_size) return false;
    float* const host = x->host_gradients[size_t(from % comm->local_size)];
    if (comm->rank == from) copy_to_host_later(host, x->gradients, n * sizeof(float), stream);
    if (comm->host == from / comm->local_size) put_job(x, stream, barrier_job);
    if (comm->rank == to) copy_to_device(x->gradients, host, n * sizeof(float), stream);
    return true;
}
void exchange_finish(Exchange*, Stream) {}

}  // namespace BACKEND
