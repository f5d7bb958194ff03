// ddp.cpp -- the ordered reduction, the sharded update and the gather. Read ddp.h first.
#include "ddp.h"
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <type_traits>
#include "common.h"

namespace BACKEND {

static Range own(const Ddp* ddp, Range bucket) { return own_slice(bucket, ddp->comm, ddp->comm->local_rank, ddp->comm->host); }

// From the arena's end: a small bucket, so that communication starts early; then full ones. LOCKSTEP_BUCKET_UNITS=N makes all of them
// N units, for tests: the bits do not depend on it.
static std::vector<Range> cut_buckets(size_t n) {
    const char* const units = std::getenv("LOCKSTEP_BUCKET_UNITS");
    const size_t small = units ? size_t(std::max(1, std::atoi(units))) * kUnit : 0;
    std::vector<Range> buckets;
    for (size_t end = n; end > 0;) {
        const size_t want = small ? small : (buckets.empty() ? kFirstBucketBytes : kBucketBytes) / sizeof(float);
        const size_t begin = end > want ? end - want : 0;
        buckets.push_back({begin, end});
        end = begin;
    }
    return buckets;
}

// On the communication stream. Afterwards this rank's slice of grads[0] holds the sum over all lanes, and partials the squares.
static void reduce_bucket(Ddp* ddp, size_t b, Ddp::Marks* marks) {
    const Comm* const comm = ddp->comm;
    const Range bucket = ddp->buckets[b], slice = host_slice(bucket, comm, comm->local_rank);
    const auto sum = [&](Range to, const std::vector<const float*>& terms, Tree tree, bool last) {      // the last sum takes the squares along
        fold(ddp->grads[0] + to.begin, last ? ddp->partials + to.begin / kUnit : nullptr, terms.data(), int(terms.size()), tree, to.size(), ddp->stream);
    };
    mark_set(marks->begin[b], ddp->stream);
    std::vector<const float*> lanes;                                // the tree inside this rank: the last lane's buffer joins the others
    for (const float* grads : ddp->grads) lanes.push_back(grads + bucket.begin);
    sum(bucket, lanes, Tree::kStack, comm->size == 1);
    if (comm->size > 1) sum(slice, exchange_local(ddp->exchange, bucket, ddp->stream), Tree::kHalves, comm->hosts == 1);
    if (comm->hosts > 1)
        exchange_hosts(ddp->exchange, bucket, ddp->stream,
                       [&](Range piece, const std::vector<const float*>& terms) { sum(piece, terms, Tree::kHalves, true); });
    exchange_gather_partials(ddp->exchange, bucket, ddp->stream);
    mark_set(marks->end[b], ddp->stream);
}

static void run_job(void* job) {
    Ddp* ddp = static_cast<Ddp::Job*>(job)->ddp;
    reduce_bucket(ddp, static_cast<Ddp::Job*>(job)->bucket, &ddp->marks[0]);
}

// A GPU's stream is fed from here; a CPU's is a thread that does the work.
static void start_bucket(Ddp* ddp) {
    if constexpr (kOnGpu) run_job(&ddp->jobs[ddp->next]);
    else stream_call(ddp->stream, run_job, &ddp->jobs[ddp->next]);
    ddp->next++;
}

void ddp_create(Ddp* ddp, Comm* comm, const Arena* arena, int R, bool overlap, bool nccl_sums, bool check) {
    *ddp = Ddp{};
    ddp->comm = comm; ddp->arena = arena; ddp->R = R; ddp->overlap = overlap;
    ddp->lanes = R / comm->size;
    CHECK(ddp->lanes * comm->size == R && std::has_single_bit(unsigned(R)), "ddp_create: %d lanes on %d ranks", R, comm->size);
    const size_t n = arena->n;
    ddp->buckets = cut_buckets(n);
    size_t largest = 0, own_n = 0;
    for (size_t b = 0; b < ddp->buckets.size(); b++) {
        ddp->jobs.push_back({ddp, b});
        largest = std::max(largest, ddp->buckets[b].size());
        ddp->own_at.push_back(kOnGpu ? own_n : own(ddp, ddp->buckets[b]).begin);
        own_n += own(ddp, ddp->buckets[b]).size();
    }
    ddp->own_n = kOnGpu ? own_n : n;
    ddp->exchange = exchange_create(comm, n, largest, nccl_sums);
    ddp->weights = exchange_weights(ddp->exchange);
    ddp->partials = exchange_partials(ddp->exchange);
    ddp->grads.push_back(exchange_gradients(ddp->exchange));
    for (int k = 1; k < ddp->lanes; k *= 2) ddp->grads.push_back(static_cast<float*>(device_alloc(n * sizeof(float), "gradients of a lane")));
    const auto state = [&](const char* what) { return static_cast<float*>(comm_shared(comm, n * sizeof(float), what)); };
    if constexpr (std::is_same_v<floatX, float>) ddp->master = reinterpret_cast<float*>(ddp->weights);
    else ddp->master = state("fp32 weights");
    ddp->m = state("first moments");
    ddp->v = state("second moments");
    if (check) {
        ddp->sums = static_cast<uint32_t*>(comm_shared(comm, n / kUnit * sizeof(uint32_t), "sums of the optimizer's state"));
        ddp->changed = static_cast<uint32_t*>(device_alloc(ddp->buckets.size() * sizeof(uint32_t), "whether the state changed"));
        ddp->host_changed = kOnGpu ? static_cast<uint32_t*>(host_alloc(ddp->buckets.size() * sizeof(uint32_t), "whether the state changed")) : ddp->changed;
        ddp->own_sums = kOnGpu ? static_cast<uint32_t*>(device_alloc(std::max(own_n / kUnit, size_t(1)) * sizeof(uint32_t), "sums of the optimizer's state")) : ddp->sums;
    }
    if constexpr (kOnGpu) {
        float** const slices[] = {&ddp->own_master, &ddp->own_m, &ddp->own_v};
        for (float** slice : slices) *slice = static_cast<float*>(device_alloc(std::max(ddp->own_n, kUnit) * sizeof(float), "this rank's part of the optimizer's state"));
        ddp->decay = static_cast<uint8_t*>(device_alloc(arena->decay.size(), "which tensors decay"));
        copy_to_device(ddp->decay, arena->decay.data(), arena->decay.size(), nullptr);
        stream_sync(nullptr);
    } else {
        ddp->own_master = ddp->master; ddp->own_m = ddp->m; ddp->own_v = ddp->v;
        ddp->decay = const_cast<uint8_t*>(arena->decay.data());
    }
    ddp->stream = stream_create();
    for (Ddp::Marks& marks : ddp->marks) {
        marks.computed = mark_create(); marks.updated = mark_create();
        for (std::vector<Mark>* each : {&marks.begin, &marks.end, &marks.gathered})
            for (size_t b = 0; b < ddp->buckets.size(); b++) each->push_back(mark_create());
    }
}

void ddp_destroy(Ddp* ddp) {
    if (!ddp->exchange) return;
    stream_destroy(ddp->stream);
    for (Ddp::Marks& marks : ddp->marks) {
        for (const Mark mark : {marks.computed, marks.updated}) mark_destroy(mark);
        for (const std::vector<Mark>* each : {&marks.begin, &marks.end, &marks.gathered})
            for (const Mark mark : *each) mark_destroy(mark);
    }
    for (size_t k = 1; k < ddp->grads.size(); k++) device_free(ddp->grads[k]);
    if constexpr (kOnGpu)
        for (void* memory : {static_cast<void*>(ddp->own_master), static_cast<void*>(ddp->own_m), static_cast<void*>(ddp->own_v), static_cast<void*>(ddp->decay)}) device_free(memory);
    if (ddp->changed != ddp->host_changed) host_free(ddp->host_changed);
    device_free(ddp->changed);
    if (ddp->own_sums != ddp->sums) device_free(ddp->own_sums);
    exchange_destroy(ddp->exchange);
    *ddp = Ddp{};
}

// ----------------------------------------------------------------------------------------- the state, for checkpoints

void ddp_broadcast_state(Ddp* ddp) {
    Comm* comm = ddp->comm;
    const size_t n = ddp->arena->n;
    comm_barrier(comm);
    if (comm->hosts > 1)
        for (float* state : {ddp->master, ddp->m, ddp->v}) comm_broadcast(comm, state, n * sizeof(float), 0);
    comm_barrier(comm);
    if constexpr (kOnGpu) {
        std::vector<floatX> weights(n);
        store_floats(weights.data(), ddp->master, n);
        copy_to_device(ddp->weights, weights.data(), n * sizeof(floatX), nullptr);
        for (size_t b = 0; b < ddp->buckets.size(); b++) {
            const Range r = own(ddp, ddp->buckets[b]);
            const auto up = [&](float* to, const float* from) { copy_to_device(to + ddp->own_at[b], from + r.begin, r.size() * sizeof(float), nullptr); };
            up(ddp->own_master, ddp->master); up(ddp->own_m, ddp->m); up(ddp->own_v, ddp->v);
        }
        stream_sync(nullptr);
    } else if constexpr (!std::is_same_v<floatX, float>) {
        if (comm->local_rank == 0) store_floats(ddp->weights, ddp->master, n);
    }
    for (size_t b = 0; b < ddp->buckets.size() && ddp->sums; b++) {
        const Range r = own(ddp, ddp->buckets[b]);
        for (size_t i = r.begin; i < r.end; i += kUnit) ddp->sums[i / kUnit] = state_sum(ddp->master + i, ddp->m + i, ddp->v + i);
        if constexpr (kOnGpu) copy_to_device(ddp->own_sums + ddp->own_at[b] / kUnit, ddp->sums + r.begin / kUnit, r.size() / kUnit * sizeof(uint32_t), nullptr);
    }
    stream_sync(nullptr);
    comm_barrier(comm);
}

void ddp_gather_state(Ddp* ddp) {
    for (size_t b = 0; b < ddp->buckets.size(); b++) {
        const Range r = own(ddp, ddp->buckets[b]);
        const auto down = [&](float* to, const float* from) { copy_to_host_later(to + r.begin, from + ddp->own_at[b], r.size() * sizeof(float), ddp->stream); };
        if constexpr (kOnGpu) { down(ddp->master, ddp->own_master); down(ddp->m, ddp->own_m); down(ddp->v, ddp->own_v); }
        if (kOnGpu && ddp->sums) copy_to_host_later(ddp->sums + r.begin / kUnit, ddp->own_sums + ddp->own_at[b] / kUnit, r.size() / kUnit * sizeof(uint32_t), ddp->stream);
    }
    stream_sync(ddp->stream);
    ddp_require_unchanged(ddp, ddp->comm->rank, ddp_changed(ddp));      // on a GPU the step did not wait for its update, which makes new sums
    for (const Range& bucket : ddp->buckets) {
        for (float* const array : {ddp->m, ddp->v}) gather_hosts(ddp->comm, array, kUnit * sizeof(float), bucket);
        if constexpr (!std::is_same_v<floatX, float>) gather_hosts(ddp->comm, ddp->master, kUnit * sizeof(float), bucket);
        if (ddp->sums) gather_hosts(ddp->comm, ddp->sums, sizeof(uint32_t), bucket);
    }
    comm_barrier(ddp->comm);
}

// ------------------------------------------------------------------------------------------------------------ the step

void ddp_begin(Ddp* ddp) {
    ddp->next = 0;
    std::swap(ddp->marks[0], ddp->marks[1]);
    ddp->marks[0].set = false;
}

// The gather of the last step goes from the arena's start to its end, behind all of its updates: whoever has waited for one of its
// buckets may also write gradients again.
void ddp_weights_needed(Ddp* ddp, int first, int last) {
    const Arena& arena = *ddp->arena;
    const size_t begin = arena.offset[size_t(first)], end = size_t(last) < arena.offset.size() ? arena.offset[size_t(last)] : arena.n;
    for (size_t b = 0; b < ddp->buckets.size() && ddp->marks[1].set; b++)
        if (ddp->buckets[b].begin < end && begin < ddp->buckets[b].end) stream_wait_mark(nullptr, ddp->marks[1].gathered[b]);
}

void ddp_settle(Ddp* ddp) { stream_wait(nullptr, ddp->stream); }

// Lane i of this rank waits, as a block of the tree, beside one block per set bit of i: its buffer is the next one.
float* ddp_lane_buffer(Ddp* ddp, int lane) { return ddp->grads[size_t(std::popcount(unsigned(lane)))]; }

// Like carrying in a binary counter: each trailing 1 bit of `lane` is a block of the same size that waits for this one. The last
// lane's carries are left to reduce_bucket, a bucket at a time.
void ddp_lane_done(Ddp* ddp, int lane) {
    if (lane + 1 == ddp->lanes) return;
    const int last = std::popcount(unsigned(lane)), first = last - std::countr_one(unsigned(lane));
    if (first == last) return;
    const std::vector<const float*> terms(ddp->grads.begin() + first, ddp->grads.begin() + last + 1);
    fold(ddp->grads[size_t(first)], nullptr, terms.data(), int(terms.size()), Tree::kStack, ddp->arena->n, nullptr);
}

void ddp_gradients_ready(Ddp* ddp, int first) {
    if (!ddp->overlap || ddp->next == ddp->buckets.size() || ddp->buckets[ddp->next].begin < ddp->arena->offset[size_t(first)]) return;
    stream_wait(ddp->stream, nullptr);
    while (ddp->next < ddp->buckets.size() && ddp->buckets[ddp->next].begin >= ddp->arena->offset[size_t(first)]) start_bucket(ddp);
}

void ddp_reduce_finish(Ddp* ddp) {
    mark_set(ddp->marks[0].computed, nullptr);
    stream_wait(ddp->stream, nullptr);
    while (ddp->next < ddp->buckets.size()) start_bucket(ddp);
    if constexpr (!kOnGpu) {
        stream_sync(ddp->stream);
        exchange_finish(ddp->exchange, nullptr);        // the other ranks' partials are there
    }
}

void ddp_clip(Ddp* ddp, StepState* state, double* norm, double clip, double tokens) {
    clip_scale(state, norm, ddp->partials, ddp->arena->n / kUnit, clip, tokens, ddp->stream);
}

// From the arena's start: what the next forward needs first.
void ddp_update(Ddp* ddp, const AdamW& adamw, const StepState* state) {
    for (size_t b = ddp->buckets.size(); b-- > 0;) {
        const Range r = own(ddp, ddp->buckets[b]);
        const size_t at = ddp->own_at[b];
        adamw_update(ddp->weights + r.begin, ddp->own_master + at, ddp->own_m + at, ddp->own_v + at, ddp->grads[0] + r.begin,
                     ddp->decay + r.begin / kUnit, r.size(), adamw, state,
                     ddp->sums ? StateSums{ddp->own_sums + at / kUnit, ddp->changed + b} : StateSums{}, ddp->stream);
    }
    if (kOnGpu && ddp->sums) copy_to_host_later(ddp->host_changed, ddp->changed, ddp->buckets.size() * sizeof(uint32_t), ddp->stream);
    mark_set(ddp->marks[0].updated, ddp->stream);
}

void ddp_gather_weights(Ddp* ddp) {
    for (size_t b = ddp->buckets.size(); b-- > 0;) {
        exchange_gather_weights(ddp->exchange, ddp->buckets[b], ddp->stream);
        if (b == 0) exchange_finish(ddp->exchange, ddp->stream);
        mark_set(ddp->marks[0].gathered[b], ddp->stream);
    }
    ddp->marks[0].set = true;
}

size_t ddp_changed(const Ddp* ddp) {
    for (size_t b = 0; b < ddp->buckets.size() && ddp->sums; b++)
        if (ddp->host_changed[b]) return own(ddp, ddp->buckets[b]).begin + (ddp->host_changed[b] - 1) * kUnit;
    return ddp->arena->n;
}

void ddp_require_unchanged(const Ddp* ddp, int rank, size_t changed) {
    if (changed >= ddp->arena->n) return;
    die(kExitDisagree, "replicas disagree: rank %d (host %s): %s: between two updates its weights or moments changed; that machine's memory is at "
        "fault; nothing of it was saved", rank, ddp->comm->peers[size_t(rank)].host.c_str(), ddp->arena->tensors[tensor_at(*ddp->arena, changed)].name.c_str());
}

DdpTimes ddp_times(Ddp* ddp) {
    DdpTimes times = {};
    const Ddp::Marks& now = ddp->marks[0];
    for (size_t b = 0; b < ddp->buckets.size(); b++) times.comm += mark_seconds(now.begin[b], now.end[b]);
    times.exposed = std::max(0.0, mark_seconds(now.computed, now.end.back()));
    const Ddp::Marks& gathered = ddp->marks[kOnGpu ? 1 : 0];
    if (gathered.set && ddp->comm->size > 1) {
        const double gather = mark_seconds(gathered.updated, gathered.gathered[0]);
        times.comm += gather;
        times.exposed += gather;
    }
    return times;
}

// Of their bits, which do not all stand for floats.
uint64_t ddp_hash_weights(const Ddp* ddp) {
    return hash_floats(reinterpret_cast<const float*>(ddp->weights), ddp->arena->n * sizeof(floatX) / sizeof(float), ddp->stream);
}

}  // namespace BACKEND
