// transport.h -- moves slices of gradients and weights between ranks. ddp.cpp says which and when.
//
//     transport_host.cpp   CPUs: shared memory between the ranks of a host, TCP between hosts
//     transport_gpu.cpp    GPUs: NCCL
//
// Both add by tree_reduce, so bits are equal (except --reduce nccl). Every rank makes the same calls in the same order.
#pragma once
#include <functional>
#include <string>
#include <vector>
#include "kernels/kernels.h"
#include "src/comm/comm.h"

namespace BACKEND {

struct Range { size_t begin, end; size_t size() const { return end - begin; } };       // elements, multiples of kUnit

// A part of the arena that is reduced at once, cut into one slice per rank; some slices may be empty. They lie in the
// order (local rank 0: host 0, host 1, ...), (local rank 1: host 0, host 1, ...), ...; with 2 hosts of 4 ranks each:
//
//     own(rank)      0       4       1       5       2       6       3       7         ranks 0 to 3 are on host 0
//                |-------|-------|-------|-------|-------|-------|-------|-------|
//     local(l)           0               1               2               3
//
// Local rank l of each host first sums local(l) over its host's ranks, then its own slice over the hosts: ranks 1 and 5
// both sum slices 1 and 5 over their hosts; then rank 1 sends its sum of slice 5 to rank 5 and gets that of slice 1.
struct Bucket {
    Comm* comm;
    std::vector<size_t> cut;            // (ranks + 1)  where slices begin and end, in elements of the arena
    Range whole() const { return {cut.front(), cut.back()}; }
    Range local(int l) const { return {cut[l * comm->hosts], cut[(l + 1) * comm->hosts]}; }
    Range own(int rank) const {
        const int i = rank % comm->local_size * comm->hosts + rank / comm->local_size;
        return {cut[i], cut[i + 1]};
    }
    // Returns the (hosts + 1) byte offsets in an array between which the slices in local(local_rank) lie, host by host.
    std::vector<size_t> host_cuts(size_t unit_bytes) const;
};
// Exchanges the bucket's slices with other hosts, in an array that a host's ranks share. unit_bytes: of kUnit elements.
void gather_hosts(const Bucket& bucket, void* array, size_t unit_bytes);

template <class T> T* device(size_t n, const char* what) { return static_cast<T*>(device_alloc(n * sizeof(T), what)); }

struct Transport {
    Comm* comm;
    std::string name;           // "shared memory", "NCCL 2.28.3"
    size_t n;                   // number of elements in the arena
    bool nccl_sums = false;     // --reduce nccl: NCCL adds, in its own order
    float* gradients = nullptr; // (n)          this rank's sums over its replicas; on CPUs other ranks read them
    floatX* weights = nullptr;  // (n)          on CPUs one array per host, which its ranks share
    float* partials = nullptr;  // (n / kUnit)  sum of squares of each unit of the reduced gradient; shared like weights
    float* received = nullptr;  // room for the gradients from other ranks
    int multiprocessors = 0;    // number of this GPU's multiprocessors that NCCL uses while it moves data
    struct NcclCommTag* ranks = nullptr;    // NCCL's communicator, or null
};

// Selects this rank's GPU (local_rank modulo the number of GPUs) and binds threads to CPUs near it. Call it before
// anything uses a GPU. kExitUsage if ranks would share a GPU, unless LOCKSTEP_SHARE_GPU is set, for tests. Collective.
void transport_place(Comm* comm);
void transport_create(Transport* x, Comm* comm, size_t n, const std::vector<Bucket>& buckets, bool nccl_sums);
void transport_destroy(Transport* x);

// Adds the bucket's gradients of all ranks. Calls sum(to, terms, last), which must write the sum of terms, a balanced
// tree, to the range `to` of this rank's gradients: first local(local_rank) over the host's ranks, then own(rank) over
// the hosts. terms[i] points to the first element of `to` in term i. last: the sum covers all ranks.
using Sum = std::function<void(Range to, const std::vector<const float*>& terms, bool last)>;
void transport_reduce(Transport* x, const Bucket& bucket, Stream stream, const Sum& sum);
// Gives every rank's own slice of `array` to all ranks; on CPUs these have it after transport_finish.
void transport_gather(Transport* x, void* array, size_t unit_bytes, const Bucket& bucket, Stream stream);
void transport_finish(Transport* x);        // after the last bucket: a CPU waits for its host's ranks
void transport_check(Transport* x);         // kExitPeer if NCCL reports an asynchronous error. Local

}  // namespace BACKEND
