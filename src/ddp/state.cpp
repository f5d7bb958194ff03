// state.cpp -- the arrays of the optimizer's state: who has them, and how checkpoints get them (ddp.h).
#include <type_traits>
#include "src/base/common.h"
#include "src/ddp/ddp.h"

namespace BACKEND {

constexpr bool kMastersAreWeights = std::is_same_v<floatX, float>;

StateArray ddp_create_state(Ddp* ddp, const std::string& name) {
    const char* const what = name.empty() ? "fp32 weights" : name.c_str();
    size_t own = kUnit;                         // more than 0, for a rank without a piece
    for (const Piece& p : ddp->pieces) own += p.range.size();
    float* const host = name.empty() && kMastersAreWeights ? reinterpret_cast<float*>(ddp->weights)
        : comm_shared<float>(ddp->comm, ddp->arena->n, what);
    return {name, host, kOnGpu ? device<float>(own, what) : host};
}

std::vector<NamedArray> ddp_arrays(const Ddp* ddp) {
    std::vector<NamedArray> arrays;
    for (const StateArray& array : ddp->state) arrays.push_back({array.name, array.host});
    for (const NamedArray& array : ddp->replica_state)
        for (int r = 0; r < ddp->settings.replicas; r++)
            arrays.push_back({format("%s.replica%d", array.name.c_str(), r), array.data + r * ddp->arena->n});
    return arrays;
}

// Sends the state of each host's replicas to the other hosts, or all of it from rank 0's host to them.
static void move_replicas(Ddp* ddp, bool gather) {
    Comm* const comm = ddp->comm;
    const size_t bytes = size_t(ddp->settings.replicas) * ddp->arena->n * sizeof(float);
    std::vector<size_t> cuts(size_t(comm->hosts) + 1);
    for (size_t h = 0; h < cuts.size() && comm->local_rank == 0; h++) cuts[h] = bytes / size_t(comm->hosts) * h;
    for (const NamedArray& array : ddp->replica_state)
        if (comm->hosts > 1 && gather) comm_hosts_gather(comm, array.data, cuts.data());
        else if (comm->hosts > 1) comm_broadcast(comm, array.data, bytes, 0);
}

void ddp_broadcast_state(Ddp* ddp) {
    Comm* const comm = ddp->comm;
    const size_t n = ddp->arena->n;
    move_replicas(ddp, false);
    for (const StateArray& array : ddp->state)
        if (comm->hosts > 1) comm_broadcast(comm, array.host, n * sizeof(float), 0);
    comm_barrier(comm);
    if constexpr (kOnGpu) {
        std::vector<floatX> weights(n);
        store_floats(weights.data(), ddp->state[0].host, n);
        copy_to_device(ddp->weights, weights.data(), n * sizeof(floatX), nullptr);
        for (const StateArray& array : ddp->state)
            for (const Piece& p : ddp->pieces)
                copy_to_device(array.own + p.at, array.host + p.range.begin, p.range.size() * sizeof(float), nullptr);
        stream_sync(nullptr);
    } else if (!kMastersAreWeights && comm->local_rank == 0) store_floats(ddp->weights, ddp->state[0].host, n);
    comm_barrier(comm);
}

void ddp_gather_state(Ddp* ddp) {
    for (const StateArray& array : ddp->state) {
        for (const Piece& p : ddp->pieces)
            if (kOnGpu)
                copy_to_host(array.host + p.range.begin, array.own + p.at, p.range.size() * sizeof(float), ddp->stream);
        for (const Bucket& bucket : ddp->buckets)
            if (static_cast<void*>(array.host) != ddp->weights)         // weights are gathered in every step
                gather_hosts(bucket, array.host, kUnit * sizeof(float));
    }
    move_replicas(ddp, true);
    comm_barrier(ddp->comm);
}

}  // namespace BACKEND
