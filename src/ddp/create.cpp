// create.cpp -- ddp_create and ddp_destroy: the cuts of buckets, slices and pieces, memory and events (ddp.h).
#include <algorithm>
#include <cstdlib>
#include "build/reductions.h"
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

#define X(name) &name##_rule,
static const ReductionRule* const kReductionRules[] = {REDUCTIONS(X)};      // in the order of all_reductions()
#undef X

void ddp_create(Ddp* ddp, Comm* comm, const Arena* arena, const OptimizerInfo* optimizer,
                const DdpSettings& settings) {
    *ddp = Ddp{};
    ddp->comm = comm;
    ddp->arena = arena;
    ddp->optimizer = optimizer;
    ddp->settings = settings;
    ddp->reduction = &find_reduction(settings.reduce);
    ddp->rule = kReductionRules[std::ranges::find(all_reductions(), ddp->reduction) - all_reductions().begin()];
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

}  // namespace BACKEND
