// state.cpp -- fp32 masters, the optimizer's arrays and those of each replica (ddp.h): where a rank's pieces of them
// lie, and how they become complete for checkpoints.
#include <algorithm>
#include <type_traits>
#include "build/reductions.h"
#include "src/base/common.h"
#include "src/ddp/ddp.h"

namespace BACKEND {

constexpr bool kMastersAreWeights = std::is_same_v<floatX, float>;

// Returns the offset in `arena` that corresponds to offset `at` in the weights' arena. `at` must be where a tensor
// begins, or inside a tensor that has the same number of elements in both arenas.
static size_t place_of(const Ddp* ddp, const Arena& arena, size_t at) {
    const std::vector<size_t>& offset = ddp->arena->offset;
    const size_t t = size_t(std::ranges::upper_bound(offset, at) - offset.begin()) - 1;
    return at == ddp->arena->n ? arena.n : arena.offset[t] + (at - offset[t]);
}

std::vector<size_t> Bucket::host_cuts(size_t unit_bytes) const {
    const auto first = cut.begin() + comm->local_rank * comm->hosts;
    std::vector<size_t> bytes(first, first + comm->hosts + 1);
    for (size_t& at : bytes) at = at / kUnit * unit_bytes;
    return bytes;
}

void gather_hosts(const Bucket& bucket, void* array, size_t unit_bytes) {
    comm_hosts_gather(bucket.comm, array, bucket.host_cuts(unit_bytes).data());
}

static StateArray create_state(Ddp* ddp, const std::string& name, const Arena& arena) {
    const char* const what = name.empty() ? "fp32 weights" : name.c_str();
    StateArray array = {name, arena, nullptr, nullptr, {}, {}};
    size_t own = 0;
    for (const Piece& p : ddp->pieces) {
        const Range r = {place_of(ddp, arena, p.range.begin), place_of(ddp, arena, p.range.end)};
        array.range.push_back(r);
        array.at.push_back(kOnGpu ? own : r.begin);
        own += r.size();
    }
    array.host = name.empty() && kMastersAreWeights ? reinterpret_cast<float*>(ddp->weights)
        : comm_shared<float>(ddp->comm, std::max(arena.n, kUnit), what);
    array.own = kOnGpu ? device<float>(own + kUnit, what) : array.host;     // not 0 bytes if there is no piece
    return array;
}

// Returns an array that each replica has, with shape (replicas, arena.n).
static StateArray create_replica_state(Ddp* ddp, const std::string& name, const Arena& arena) {
    float* const all = comm_shared<float>(ddp->comm, size_t(ddp->settings.replicas) * arena.n, name.c_str());
    return {name, arena, all, all, {}, {}};
}

void ddp_create_state(Ddp* ddp) {
    ddp->state.push_back(create_state(ddp, "", *ddp->arena));
    for (const StateSpec& array : ddp->optimizer->state)
        ddp->state.push_back(create_state(ddp, array.name, state_layout(*ddp->optimizer, array, *ddp->arena)));
    for (const char* name : ddp->reduction->state)
        ddp->replica_state.push_back(create_replica_state(ddp, name, *ddp->arena));
}

// With `gather`, sends the state of each host's replicas to the other hosts; else sends that of all from rank 0's host.
static void move_replicas(Ddp* ddp, bool gather) {
    Comm* const comm = ddp->comm;
    for (const StateArray& array : ddp->replica_state) {
        const size_t bytes = size_t(ddp->settings.replicas) * array.arena.n * sizeof(float);
        std::vector<size_t> cuts(size_t(comm->hosts) + 1);
        for (size_t h = 0; h < cuts.size() && comm->local_rank == 0; h++) cuts[h] = bytes / size_t(comm->hosts) * h;
        if (gather) comm_hosts_gather(comm, array.host, cuts.data());
        else comm_hosts_broadcast(comm, array.host, bytes);
    }
}

void ddp_broadcast_state(Ddp* ddp, bool fresh) {
    Comm* const comm = ddp->comm;
    const size_t n = ddp->arena->n;
    if (!fresh) move_replicas(ddp, false);
    for (const StateArray& array : ddp->state) comm_hosts_broadcast(comm, array.host, array.arena.n * sizeof(float));
    comm_barrier(comm);
    if constexpr (kOnGpu) {
        std::vector<floatX> weights(n);
        store_floats(weights.data(), ddp->state[0].host, n);
        copy_to_device(ddp->weights, weights.data(), n * sizeof(floatX), nullptr);
        for (const StateArray& array : ddp->state)
            for (size_t p = 0; p < ddp->pieces.size(); p++)
                copy_to_device(array.own + array.at[p], array.host + array.range[p].begin,
                               array.range[p].size() * sizeof(float), nullptr);
        stream_sync(nullptr);
    } else if (!kMastersAreWeights && comm->local_rank == 0) store_floats(ddp->weights, ddp->state[0].host, n);
    comm_barrier(comm);
}

void ddp_gather_state(Ddp* ddp) {
    for (const StateArray& array : ddp->state) {
        for (size_t p = 0; p < ddp->pieces.size() && kOnGpu; p++)
            copy_to_host(array.host + array.range[p].begin, array.own + array.at[p],
                         array.range[p].size() * sizeof(float), ddp->stream);
        for (Bucket bucket : ddp->buckets) {
            if (static_cast<void*>(array.host) == ddp->weights) break;  // weights are gathered in every step
            for (size_t& cut : bucket.cut) cut = place_of(ddp, array.arena, cut);
            gather_hosts(bucket, array.host, kUnit * sizeof(float));
        }
    }
    move_replicas(ddp, true);
    comm_barrier(ddp->comm);
}

void ddp_first_state(Ddp* ddp) {
    for (size_t k = 0; k < ddp->optimizer->state.size(); k++)
        if (ddp->optimizer->state[k].from_weights)
            std::copy_n(ddp->state[0].host, ddp->arena->n, ddp->state[k + 1].host);
}

std::vector<NamedArray> ddp_named_state(const Ddp* ddp) {
    std::vector<NamedArray> arrays;
    for (const StateArray& array : ddp->state) arrays.push_back({array.name, array.host, &array.arena});
    if (ddp->optimizer->exchange) std::swap(arrays[0].name, arrays[1].name);
    for (const StateArray& array : ddp->replica_state)
        for (int r = 0; r < ddp->settings.replicas; r++)
            arrays.push_back({format("%s.replica%d", array.name.c_str(), r), array.host + size_t(r) * array.arena.n,
                              &array.arena});
    return arrays;
}

}  // namespace BACKEND
