// exchange_host.cpp -- the road between CPU ranks: shared memory on a host, TCP between hosts.
//
// Called on the thread that does the work: the reduction's while backward runs, else the main one.
#include <algorithm>
#include "exchange.h"

namespace BACKEND {

constexpr size_t kPiece = 64 * kUnit;       // elements, 1 MiB, that are received and folded while they are in the cache

struct Exchange {
    Comm* comm;
    std::vector<float*> gradients;          // of each local rank
    floatX* weights;
    float* partials;
    float* received;                        // what other hosts send: (hosts x kPiece)
};

void exchange_place(Comm*) {}

Exchange* exchange_create(Comm* comm, size_t n, size_t, bool) {
    Exchange* x = new Exchange{};
    x->comm = comm;
    x->weights = static_cast<floatX*>(comm_shared(comm, n * sizeof(floatX), "weights"));
    float* gradients = static_cast<float*>(comm_shared(comm, size_t(comm->local_size) * n * sizeof(float), "gradients"));
    for (int l = 0; l < comm->local_size; l++) x->gradients.push_back(gradients + size_t(l) * n);
    x->partials = static_cast<float*>(comm_shared(comm, n / kUnit * sizeof(float), "partial norms"));
    if (comm->hosts > 1) x->received = static_cast<float*>(device_alloc(size_t(comm->hosts) * kPiece * sizeof(float), "gradients from other hosts"));
    return x;
}

void exchange_destroy(Exchange* x) {
    if (x) device_free(x->received);
    delete x;
}

const char* exchange_name(const Exchange* x) { return x->comm->hosts > 1 ? "shared memory and TCP" : "shared memory"; }
float* exchange_gradients(Exchange* x) { return x->gradients[size_t(x->comm->local_rank)]; }
floatX* exchange_weights(Exchange* x) { return x->weights; }
float* exchange_partials(Exchange* x) { return x->partials; }

std::vector<const float*> exchange_local(Exchange* x, Range bucket, Stream) {
    const size_t begin = host_slice(bucket, x->comm, x->comm->local_rank).begin;
    if (x->comm->local_size > 1) comm_local_barrier(x->comm, 1);        // every rank of this host has its sums
    std::vector<const float*> terms;
    for (const float* gradients : x->gradients) terms.push_back(gradients + begin);
    return terms;
}

void exchange_hosts(Exchange* x, Range bucket, Stream, const Sum& sum) {
    const Comm* comm = x->comm;
    const Range slice = host_slice(bucket, comm, comm->local_rank), own = own_slice(bucket, comm, comm->local_rank, comm->host);
    const float* mine = exchange_gradients(x);
    if (comm->hosts == 1) return sum(own, {mine + own.begin});
    std::vector<const float*> terms;
    for (int h = 0; h < comm->hosts; h++) terms.push_back(x->received + size_t(h) * kPiece);
    comm_hosts_scatter(x->comm, mine + slice.begin, host_cuts(comm, slice, kUnit * sizeof(float)).data(), x->received, kPiece * sizeof(float),
        [&](size_t at, size_t n) {
            const size_t begin = own.begin + at / sizeof(float);
            terms[size_t(comm->host)] = mine + begin;
            sum({begin, begin + n / sizeof(float)}, terms);
        });
}

void exchange_gather_weights(Exchange* x, Range bucket, Stream) { gather_hosts(x->comm, x->weights, kUnit * sizeof(floatX), bucket); }
void exchange_gather_partials(Exchange* x, Range bucket, Stream) { gather_hosts(x->comm, x->partials, sizeof(float), bucket); }
void exchange_check(Exchange*) {}

bool exchange_pair(Exchange* x, int from, int to, size_t n, Stream) {
    const Comm* comm = x->comm;
    if (from / comm->local_size != to / comm->local_size) return false;
    if (comm->rank == to) std::copy_n(x->gradients[size_t(from % comm->local_size)], n, exchange_gradients(x));
    return true;
}
void exchange_finish(Exchange* x, Stream) {
    if (x->comm->local_size > 1) comm_local_barrier(x->comm, 0);
}

}  // namespace BACKEND
