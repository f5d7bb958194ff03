// transport_host.cpp -- CPU ranks: shared memory on a host, TCP between hosts. The calling thread
// does all work.
#include <algorithm>
#include "src/ddp/ddp.h"

namespace BACKEND {

// Returns how many elements each host sends at a time, to be added in the cache: 1 MiB, or 32 MiB /
// hosts if less.
static size_t piece_of(const Comm* comm) { return kUnit * std::clamp(2048 / comm->hosts, 1, 64); }

void transport_place(Comm*) {}

void transport_create(Transport* x, const std::vector<Bucket>&) {
    Comm* const comm = x->comm;
    const size_t n = x->n;
    x->transport = comm->hosts > 1 ? "shared memory and TCP" : "shared memory";
    x->weights = comm_shared<floatX>(comm, n, "weights");
    float* const all = comm_shared<float>(comm, comm->local_size * n, "gradients");
    x->gradients = all + comm->local_rank * n;
    x->partials = comm_shared<float>(comm, n / kUnit, "partial norms");
    if (comm->hosts > 1)
        x->received = device<float>(comm->hosts * piece_of(comm), "gradients from other hosts");
}

void transport_destroy(Transport* x) { device_free(x->received); }

void transport_reduce(Transport* x, const Bucket& bucket, Stream stream) {
    Comm* const comm = x->comm;
    if (comm->size == 1) return;
    // This host's ranks have their sums.
    if (comm->local_size > 1) comm_local_barrier(comm);
    const Range slice = bucket.local(comm->local_rank);
    std::vector<const float*> terms;
    for (int l = 0; l < comm->local_size; l++)
        terms.push_back(x->gradients + slice.begin + ptrdiff_t(x->n) * (l - comm->local_rank));
    add_terms(x, Tree::kBalanced, slice, terms, comm->hosts == 1, stream);
    if (comm->hosts == 1) return;
    terms.clear();
    for (int h = 0; h < comm->hosts; h++) terms.push_back(x->received + h * piece_of(comm));
    const auto arrived = [&](size_t at, size_t bytes) {
        const size_t begin = bucket.own(comm->rank).begin + at / sizeof(float);
        terms[comm->host] = x->gradients + begin;
        add_terms(x, Tree::kBalanced, {begin, begin + bytes / sizeof(float)}, terms, true, stream);
    };
    const std::vector<size_t> cuts = bucket.host_cuts(kUnit * sizeof(float));
    comm_hosts_scatter(comm, x->gradients, cuts.data(), x->received,
                       piece_of(comm) * sizeof(float), arrived);
}

void transport_gather(Transport*, void* array, size_t unit_bytes, const Bucket& bucket, Stream) {
    gather_hosts(bucket, array, unit_bytes);
}
void transport_finish(Transport* x) {
    if (x->comm->local_size > 1) comm_local_barrier(x->comm);
}
void transport_check(Transport*) {}

}  // namespace BACKEND
