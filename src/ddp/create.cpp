// create.cpp -- what comes before and between the steps (ddp.h): the cuts of buckets, slices and pieces, memory and
// events; and state: fp32 masters, the optimizer's arrays and those of each replica, where a rank's pieces of them lie,
// and how they become complete for checkpoints.
#include <algorithm>
#include <cstdlib>
#include <type_traits>
#include "src/ddp/reductions/reduction.h"
#include "src/base/common.h"
#include "src/ddp/ddp.h"

namespace BACKEND {

// ---------------------------------------------------------------------------------------------------------- the cuts

static Range span(const Arena& arena, size_t tensor) {
    return {arena.offset[tensor], tensor + 1 < arena.offset.size() ? arena.offset[tensor + 1] : arena.n};
}
static bool is_whole(const Ddp* ddp, size_t tensor) {
    return ddp->optimizer->whole && ddp->optimizer->whole(ddp->arena->tensors[tensor]);
}

// Returns the offsets at which the arena may be cut: every unit, but none inside a tensor that the matrix rule updates.
static std::vector<size_t> possible_cuts(const Ddp* ddp) {
    std::vector<size_t> cuts;
    for (size_t t = 0; t < ddp->arena->tensors.size(); t++) {
        const Range r = span(*ddp->arena, t);
        for (size_t at = r.begin; at < r.end; at += is_whole(ddp, t) ? r.size() : kUnit) cuts.push_back(at);
    }
    cuts.push_back(ddp->arena->n);
    return cuts;
}

// Cuts the range from cuts[first] to cuts[last] into one slice per rank. load[i] counts the elements of slice i in all
// buckets so far. Each slice takes elements until its load is nearest to the average load.
static std::vector<size_t> cut_slices(const std::vector<size_t>& cuts, size_t first, size_t last,
                                      std::vector<size_t>* load) {
    const size_t share = (cuts.back() - cuts[first]) / load->size();
    std::vector<size_t> slices = {cuts[first]};
    for (size_t& owned : *load) {
        const bool is_last = &owned == &load->back();
        for (; first < last && (is_last || owned + (cuts[first + 1] - cuts[first]) / 2 <= share); first++)
            owned += cuts[first + 1] - cuts[first];
        slices.push_back(cuts[first]);
    }
    return slices;
}

// Cuts buckets from the arena's end: first a small one, so that communication starts early, then full ones.
static void cut_buckets(Ddp* ddp) {
    const char* const units = std::getenv("LOCKSTEP_BUCKET_UNITS");    // for tests
    const std::vector<size_t> cuts = possible_cuts(ddp);
    std::vector<size_t> load(ddp->comm->size);
    for (size_t begin, end = cuts.size() - 1; end > 0; end = begin) {
        size_t want = (ddp->buckets.empty() ? kFirstBucketBytes : kBucketBytes) / sizeof(float);
        if (units) want = std::atoi(units) * kUnit;
        for (begin = end - 1; begin > 0 && cuts[end] - cuts[begin - 1] <= want;) begin--;
        ddp->buckets.push_back({ddp->comm, cut_slices(cuts, begin, end, &load)});
    }
}

static void list_pieces(Ddp* ddp) {
    std::vector<Piece>& pieces = ddp->pieces;
    for (size_t b = ddp->buckets.size(); b-- > 0;)
        for (size_t t = 0; t < ddp->arena->tensors.size(); t++) {
            const Range own = ddp->buckets[b].own(ddp->comm->rank), all = span(*ddp->arena, t);
            const Range r = {std::max(own.begin, all.begin), std::min(own.end, all.end)};
            if (r.begin >= r.end) continue;
            const int tensor = is_whole(ddp, t) ? int(t) : -1;
            const bool goes_on = !pieces.empty() && pieces.back().tensor < 0 && pieces.back().range.end == r.begin;
            if (tensor < 0 && goes_on) pieces.back().range.end = r.end;
            else pieces.push_back({tensor, r});
        }
}

// ------------------------------------------------------------------------------------------------------------ set up

void ddp_create(Ddp* ddp, Comm* comm, const Arena* arena, const OptimizerInfo* optimizer,
                const DdpSettings& settings) {
    *ddp = Ddp{};
    ddp->comm = comm;
    ddp->arena = arena;
    ddp->optimizer = optimizer;
    ddp->settings = settings;
    ddp->reduction = &find_reduction(settings.reduce);
#define X(name) if (settings.reduce == #name) ddp->rule = &name##_rule;
    REDUCTIONS(X)
#undef X
    ddp->own_replicas = settings.replicas / comm->size;
    ddp->micro_batches = settings.micro_batches;
    ddp->overlap = settings.overlap && !ddp->rule->on_replica;
    cut_buckets(ddp);
    list_pieces(ddp);
    transport_create(&ddp->transport, comm, arena->n, ddp->buckets, ddp->reduction->by_library);
    ddp->weights = ddp->transport.weights;
    ddp->grads.push_back(ddp->transport.gradients);
    for (int k = 1; k < ddp->own_replicas; k *= 2)
        ddp->grads.push_back(device<float>(arena->n, "a replica's gradients"));
    ddp_create_state(ddp);
    const std::vector<Rates> rates = arena_rates(*arena);
    ddp->rates = device<Rates>(rates.size(), "rates of the tensors");
    copy_to_device(ddp->rates, rates.data(), rates.size() * sizeof(Rates), nullptr);
    ddp->work = device<char>(ddp_work_bytes(ddp), "work space of the optimizer");
    ddp->still = device<StepState>(1, "step");
    stream_sync(nullptr);
    ddp->stream = stream_create();
    const auto events = [&](size_t count) {
        std::vector<Event> made(count);
        for (Event& event : made) ddp->events.push_back(event = event_create());
        return made;
    };
    const size_t buckets = ddp->buckets.size();
    ddp->batch_done = events(ddp->micro_batches);
    for (Ddp::Events& marks : ddp->marks)
        marks = {events(1)[0], events(1)[0], events(buckets), events(buckets), events(buckets)};
}

void ddp_destroy(Ddp* ddp) {
    stream_destroy(ddp->stream);
    for (const Event event : ddp->events) event_destroy(event);
    for (size_t k = 1; k < ddp->grads.size(); k++) device_free(ddp->grads[k]);
    for (const StateArray& array : ddp->state)
        if (kOnGpu) device_free(array.own);
    device_free(ddp->rates);
    device_free(ddp->work);
    device_free(ddp->still);
    transport_destroy(&ddp->transport);
}

// ------------------------------------------------------------------------------------------------------------- state

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
