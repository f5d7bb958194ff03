// exchange.h -- how the slices of gradients and weights travel between ranks. ddp.cpp says which slice and when; this says by which road.
//
//     exchange_host.cpp   CPU: the ranks of a host read each other's gradients where they lie, in shared memory; TCP between hosts
//     exchange_gpu.cpp    GPUs: NCCL, or (where it is not installed, or ranks share a GPU) staged: through host memory
//
// All move the same bytes into the same folds, so the bits do not depend on the road. What is asked for here is put on a stream; every
// rank asks in the same order.
#pragma once
#include <vector>
#include "comm.h"
#include "kernels.h"

namespace BACKEND {

struct Range { size_t begin, end; size_t size() const { return end - begin; } };        // elements, multiples of kUnit

// Part k of n of a range, cut at units.
inline Range part(Range whole, int k, int n) {
    const size_t units = whole.size() / kUnit;
    return {whole.begin + units * size_t(k) / size_t(n) * kUnit, whole.begin + units * size_t(k + 1) / size_t(n) * kUnit};
}
// Of a bucket: what a rank with this number on its host folds among the host's ranks, and the part of it that the one on `host` owns.
inline Range host_slice(Range bucket, const Comm* comm, int local_rank) { return part(bucket, local_rank, comm->local_size); }
inline Range own_slice(Range bucket, const Comm* comm, int local_rank, int host) {
    return part(host_slice(bucket, comm, local_rank), host, comm->hosts);
}
// Byte offsets of the hosts' parts of a slice, counted from its begin, in an array that holds so many bytes per unit.
inline std::vector<size_t> host_cuts(const Comm* comm, Range slice, size_t unit_bytes) {
    std::vector<size_t> cut;
    for (int h = 0; h <= comm->hosts; h++) cut.push_back(slice.size() / kUnit * size_t(h) / size_t(comm->hosts) * unit_bytes);
    return cut;
}
// Of an array in memory that the ranks of a host share: what other hosts own of a bucket comes.
inline void gather_hosts(Comm* comm, void* base, size_t unit_bytes, Range bucket) {
    const Range slice = host_slice(bucket, comm, comm->local_rank);
    if (comm->hosts > 1) comm_hosts_gather(comm, static_cast<char*>(base) + slice.begin / kUnit * unit_bytes, host_cuts(comm, slice, unit_bytes).data());
}

// Gives this rank its device, before anything else touches one: GPU number local_rank. More ranks than GPUs is an Error (2), unless
// LOCKSTEP_TRANSPORT is set, for tests. Collective.
void exchange_place(Comm* comm);

struct Exchange;
// n: elements of the arena; largest: of its largest bucket. nccl_sums: NCCL adds too (--reduce nccl), in its own order.
Exchange* exchange_create(Comm* comm, size_t n, size_t largest, bool nccl_sums);
void exchange_destroy(Exchange* x);
const char* exchange_name(const Exchange* x);           // "shared memory", "NCCL 2.28.3", "host memory"
bool exchange_on_device(const Exchange* x);             // GPUs: no host memory on the road, and so no host function in the streams

// The arrays that travel. On a CPU the ranks of a host share weights and partials, and can read each other's gradients.
float* exchange_gradients(Exchange* x);                 // (n)          this rank's sums over its lanes
floatX* exchange_weights(Exchange* x);                  // (n)
float* exchange_partials(Exchange* x);                  // (n / kUnit)  squares of the reduced gradient

// Where this rank's slice of the bucket lies in the sums of each local rank, once their gradients of the bucket are complete:
// `terms` are for fold. With nccl_sums there is one: the sum over all ranks of the own slice.
std::vector<const float*> exchange_local(Exchange* x, Range bucket, Stream stream);
// The same between hosts, for the part of `slice` this rank owns, after the fold among the host's ranks: `sum` is called for one piece of
// it after the other, on a CPU as they arrive.
using Sum = std::function<void(Range piece, const std::vector<const float*>& terms)>;
void exchange_hosts(Exchange* x, Range bucket, Stream stream, const Sum& sum);
// Every rank gets every rank's own slices of a bucket, in weights or in partials.
void exchange_gather_weights(Exchange* x, Range bucket, Stream stream);
void exchange_gather_partials(Exchange* x, Range bucket, Stream stream);
// n elements of rank `from`'s gradients to rank `to`, for measuring; all ranks ask. False where no road goes from one to the other alone.
bool exchange_pair(Exchange* x, int from, int to, size_t n, Stream stream);
// An Error (69) if the road has broken: for who waits for what was put on it. Local.
void exchange_check(Exchange* x);
// After the last bucket: what was gathered is there for this rank's next work on `stream`.
void exchange_finish(Exchange* x, Stream stream);

}  // namespace BACKEND
