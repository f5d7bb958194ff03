// create.cpp -- what comes before and between the steps (ddp.h): the cuts of buckets, slices and
// pieces, memory and events; and state: fp32 masters, the optimizer's arrays and those of each
// replica, where a rank's pieces of them lie, and how they become complete for checkpoints.
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <type_traits>
#include "build/optimizers.h"
#include "src/base/arena.h"
#include "src/base/common.h"
#include "src/ddp/ddp.h"
#include "src/ddp/reductions/reduction.h"

namespace BACKEND {

// ---------------------------------------------------------------------------------------- the cuts

static bool is_whole(const Ddp* ddp, size_t tensor) {
    return ddp->optimizer->whole && ddp->optimizer->whole(ddp->arena->tensors[tensor]);
}

// Returns the offsets at which the arena may be cut: every unit, but none inside a tensor that the
// matrix rule updates.
static std::vector<size_t> possible_cuts(const Ddp* ddp) {
    std::vector<size_t> cuts;
    for (size_t t = 0; t < ddp->arena->tensors.size(); t++) {
        const size_t begin = ddp->arena->offset[t], end = ddp->arena->offset[t + 1];
        for (size_t at = begin; at < end; at += is_whole(ddp, t) ? end - begin : kUnit)
            cuts.push_back(at);
    }
    cuts.push_back(ddp->n);
    return cuts;
}

// Cuts the range from cuts[first] to cuts[last] into one slice per rank. load[i] counts the
// elements of slice i in all buckets so far. Each slice takes elements until its load is nearest to
// the average load.
static std::vector<size_t> cut_slices(const std::vector<size_t>& cuts, size_t first, size_t last,
                                      std::vector<size_t>* load) {
    const size_t share = (cuts.back() - cuts[first]) / load->size();
    std::vector<size_t> slices = {cuts[first]};
    for (size_t& owned : *load) {
        const bool is_last = &owned == &load->back();
        for (; first < last; first++) {
            const size_t size = cuts[first + 1] - cuts[first];
            if (!is_last && owned + size / 2 > share) break;
            owned += size;
        }
        slices.push_back(cuts[first]);
    }
    return slices;
}

// Cuts buckets from the arena's end: first a small one, so that communication starts early, then
// full ones.
static void cut_buckets(Ddp* ddp) {
    const char* const units = std::getenv("LOCKSTEP_BUCKET_UNITS");    // for tests
    const std::vector<size_t> cuts = possible_cuts(ddp);
    std::vector<size_t> load(ddp->comm->size);
    for (size_t begin, end = cuts.size() - 1; end > 0; end = begin) {
        size_t want = (ddp->buckets.empty() ? 1 << 20 : kBucketBytes) / sizeof(float);
        if (units) want = std::atoi(units) * kUnit;
        for (begin = end - 1; begin > 0 && cuts[end] - cuts[begin - 1] <= want;) begin--;
        ddp->buckets.push_back({ddp->comm, cut_slices(cuts, begin, end, &load)});
    }
}

static void list_pieces(Ddp* ddp) {
    std::vector<Piece>& pieces = ddp->pieces;
    for (size_t b = ddp->buckets.size(); b-- > 0;)
        for (size_t t = 0; t < ddp->arena->tensors.size(); t++) {
            const Range own = ddp->buckets[b].own(ddp->comm->rank);
            const Range r = {std::max(own.begin, ddp->arena->offset[t]),
                             std::min(own.end, ddp->arena->offset[t + 1])};
            if (r.begin >= r.end) continue;
            const int tensor = is_whole(ddp, t) ? int(t) : -1;
            const bool goes_on = !pieces.empty() && pieces.back().tensor < 0 &&
                                 pieces.back().range.end == r.begin;
            if (tensor < 0 && goes_on) pieces.back().range.end = r.end;
            else pieces.push_back({tensor, r});
        }
}

// ------------------------------------------------------------------------------------- the updates

// OPTIMIZERS(X), of build/optimizers.h, is X(adamw) X(sgd) X(muon).
#define X(name) name##_matrix,
static MatrixRule* const kMatrixRules[] = {OPTIMIZERS(X)};
#undef X

size_t ddp_update_matrix(const Ddp* ddp, const Update& u, int tensor, void* work) {
    const int rule = find_optimizer(ddp->optimizer->name);
    return kMatrixRules[rule]({u, rule, ddp->arena->tensors[tensor], work}, ddp->stream);
}

static size_t work_bytes(const Ddp* ddp) {
    size_t bytes = 1;
    for (const Piece& p : ddp->pieces) {
        Update u = {};
        u.n = p.range.size();
        if (p.tensor >= 0) bytes = std::max(bytes, ddp_update_matrix(ddp, u, p.tensor, nullptr));
    }
    return bytes;
}

void ddp_exchange_weights(Ddp* ddp) {
    if (ddp->optimizer->exchange == 0) return;
    stream_wait(ddp->stream, kMain);
    comm_barrier(ddp->comm);            // on a CPU ranks share the weights, and may still read them
    for (size_t p = 0; p < ddp->pieces.size(); p++)
        ddp_update_piece(ddp, p, ddp->still, ddp->optimizer->exchange);
    event_record(ddp->now.updated, ddp->stream);
    ddp_all_gather_weights(ddp);
    ddp_settle(ddp);
}

// ------------------------------------------------------------------------------------------- state

constexpr bool kMastersAreWeights = std::is_same_v<floatX, float>;

// Returns the offset in `arena` that corresponds to offset `at` in the weights' arena. `at` must be
// where a tensor begins, or inside a tensor that `arena` has with as many elements or without any.
static size_t place_of(const Ddp* ddp, const Arena& arena, size_t at) {
    const size_t* const offset = ddp->offset;
    const size_t t = std::upper_bound(offset, offset + ddp->arena->tensors.size(), at) - offset - 1;
    return std::min(arena.offset[t] + (at - offset[t]), arena.offset[t + 1]);
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

static StateArray state_array(Ddp* ddp, const std::string& name, const Arena& arena) {
    const char* const what = name.empty() ? "fp32 weights" : name.c_str();
    StateArray array = {name, std::make_shared<Arena>(arena), nullptr, nullptr, {}, {}};
    size_t own = 0;
    for (const Piece& p : ddp->pieces) {
        const Range r = {place_of(ddp, arena, p.range.begin), place_of(ddp, arena, p.range.end)};
        array.range.push_back(r);
        array.at.push_back(kOnGpu ? own : r.begin);
        own += r.size();
    }
    array.host = name.empty() && kMastersAreWeights ? reinterpret_cast<float*>(ddp->weights)
        : comm_shared<float>(ddp->comm, arena.n, what);
    // One unit more, so that it is not 0 bytes if there is no piece.
    array.own = kOnGpu ? device<float>(own + kUnit, what) : array.host;
    return array;
}

static void create_state(Ddp* ddp) {
    ddp->state.push_back(state_array(ddp, "", *ddp->arena));
    for (const StateSpec& array : ddp->optimizer->state)
        ddp->state.push_back(
            state_array(ddp, array.name, state_layout(*ddp->optimizer, array, *ddp->arena)));
    for (const char* name : find_row(kReductions, ddp->reduce).state)
        ddp->replica_state.push_back(comm_shared<float>(ddp->comm, ddp->replicas * ddp->n, name));
}

// ------------------------------------------------------------------------------------------ set up

void ddp_create(Ddp* ddp, Comm* comm, const Arena* arena, const OptimizerInfo* optimizer,
                const DdpSettings& settings) {
    *ddp = Ddp{};
    static_cast<DdpSettings&>(*ddp) = settings;
    ddp->comm = comm;
    ddp->n = arena->n;
    ddp->nccl_sums = find_row(kReductions, settings.reduce).by_library;
    ddp->arena = arena;
    ddp->offset = arena->offset.data();
    ddp->optimizer = optimizer;
    CHECK(!optimizer->whole == !kMatrixRules[find_optimizer(optimizer->name)],
          "optimizers/%s.h: got one of `whole` and a matrix rule, want both or none",
          optimizer->name);
    ddp->own_replicas = settings.replicas / comm->size;
#define X(name) if (settings.reduce == #name) ddp->rule = &name##_rule;
    REDUCTIONS(X)
#undef X
    ddp->overlap &= !ddp->rule->on_replica;
    cut_buckets(ddp);
    list_pieces(ddp);
    transport_create(ddp, ddp->buckets);
    ddp->grads.push_back(ddp->gradients);
    for (int k = 1; k < ddp->own_replicas; k *= 2)
        ddp->grads.push_back(device<float>(ddp->n, "a replica's gradients"));
    create_state(ddp);
    const std::vector<Rates> rates = arena_rates(*arena);
    ddp->rates = device<Rates>(rates.size(), "rates of the tensors");
    copy_to_device(ddp->rates, rates.data(), rates.size() * sizeof(Rates), kMain);
    ddp->work = device<char>(work_bytes(ddp), "work space of the optimizer");
    ddp->still = device<StepState>(1, "step");
    stream_sync(kMain);
    ddp->stream = stream_create();
    const auto events = [&](size_t count) {
        std::vector<Event> made(count);
        for (Event& event : made) ddp->events.push_back(event = event_create());
        return made;
    };
    const size_t buckets = ddp->buckets.size();
    ddp->batch_done = events(ddp->micro_batches);
    for (Ddp::Events* step : {&ddp->now, &ddp->before})
        *step = {events(1)[0], events(1)[0], events(buckets), events(buckets), events(buckets)};
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
    transport_destroy(ddp);
}

// --------------------------------------------------------------- between ranks and for checkpoints

// With `gather`, sends the state of each host's replicas to the other hosts; else sends
// that of all from rank 0's host.
static void move_replicas(Ddp* ddp, bool gather) {
    Comm* const comm = ddp->comm;
    const size_t bytes = ddp->replicas * ddp->n * sizeof(float);
    std::vector<size_t> cuts(comm->hosts + 1);
    for (size_t h = 0; h < cuts.size() && comm->local_rank == 0; h++)
        cuts[h] = bytes / comm->hosts * h;
    for (float* array : ddp->replica_state) {
        if (gather) comm_hosts_gather(comm, array, cuts.data());
        else comm_hosts_broadcast(comm, array, bytes);
    }
}

void ddp_broadcast_state(Ddp* ddp, bool fresh) {
    Comm* const comm = ddp->comm;
    const size_t n = ddp->n;
    for (size_t k = 0; fresh && comm->rank == 0 && k < ddp->optimizer->state.size(); k++)
        if (ddp->optimizer->state[k].from_weights)
            std::copy_n(ddp->state[0].host, n, ddp->state[k + 1].host);
    if (!fresh) move_replicas(ddp, false);
    for (const StateArray& array : ddp->state)
        comm_hosts_broadcast(comm, array.host, array.arena->n * sizeof(float));
    comm_barrier(comm);
    if constexpr (kOnGpu) {
        std::vector<floatX> weights(n);
        store_floats(weights.data(), ddp->state[0].host, n);
        copy_to_device(ddp->weights, weights.data(), n * sizeof(floatX), kMain);
        for (const StateArray& array : ddp->state)
            for (size_t p = 0; p < ddp->pieces.size(); p++)
                copy_to_device(array.own + array.at[p], array.host + array.range[p].begin,
                               array.range[p].size() * sizeof(float), kMain);
        stream_sync(kMain);
    } else if (!kMastersAreWeights && comm->local_rank == 0) {
        store_floats(ddp->weights, ddp->state[0].host, n);
    }
    comm_barrier(comm);
}

void ddp_gather_state(Ddp* ddp) {
    for (const StateArray& array : ddp->state) {
        for (size_t p = 0; p < ddp->pieces.size() && kOnGpu; p++)
            copy_to_host(array.host + array.range[p].begin, array.own + array.at[p],
                         array.range[p].size() * sizeof(float), ddp->stream);
        for (Bucket bucket : ddp->buckets) {
            // The weights are gathered in every step.
            if (static_cast<void*>(array.host) == ddp->weights) break;
            for (size_t& cut : bucket.cut) cut = place_of(ddp, *array.arena, cut);
            gather_hosts(bucket, array.host, kUnit * sizeof(float));
        }
    }
    move_replicas(ddp, true);
    comm_barrier(ddp->comm);
}

std::vector<NamedArray> ddp_named_state(const Ddp* ddp) {
    std::vector<NamedArray> arrays;
    for (const StateArray& array : ddp->state)
        arrays.push_back({array.name, array.host, array.arena.get()});
    if (ddp->optimizer->exchange) std::swap(arrays[0].name, arrays[1].name);
    for (size_t k = 0; k < ddp->replica_state.size(); k++)
        for (int r = 0; r < ddp->replicas; r++)
            arrays.push_back({format("%s.replica%d", find_row(kReductions, ddp->reduce).state[k], r),
                              ddp->replica_state[k] + r * ddp->n});
    return arrays;
}

void ddp_replica_done(Ddp* ddp, int replica, const StepState* step) {
    float* const grads = ddp->grads[std::popcount(unsigned(replica))];
    if (ddp->rule->on_replica) {
        const int number = ddp->comm->rank * ddp->own_replicas + replica;
        std::vector<float*> state;
        for (float* array : ddp->replica_state) state.push_back(array + number * ddp->n);
        ddp->rule->on_replica({number, grads, {0, ddp->n}, state.data(), step, ddp});
    }
    // The rest is for an audit of the sum, which is not possible where NCCL adds in its own order.
    if (!ddp->audited || (ddp->nccl_sums && ddp->comm->size > 1)) return;
    const Range bucket = ddp->buckets[0].whole();
    const size_t before = ddp->kept.size();
    ddp->kept.resize(before + bucket.size());
    copy_to_host(&ddp->kept[before], grads + bucket.begin, bucket.size() * sizeof(float));
}

DdpTimes ddp_times(Ddp* ddp) {
    DdpTimes times = {};
    const Ddp::Events& now = ddp->now;
    for (size_t b = 0; b < ddp->buckets.size(); b++)
        times.comm += event_seconds(now.begin[b], now.end[b]);
    times.exposed = std::max(0.0, event_seconds(now.computed, now.end.back()));
    if (ddp->comm->size == 1 || (kOnGpu && ddp->steps == 1)) return times;
    const Ddp::Events& last = kOnGpu ? ddp->before : ddp->now;
    const double gather = event_seconds(last.updated, last.gathered[0]);
    return {times.comm + gather, times.exposed + gather};
}

}  // namespace BACKEND
