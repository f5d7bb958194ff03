// ddp.cpp -- a step: the ordered reduction, the sharded update and the all-gather. Read ddp.h
// first; create.cpp has what comes before and between the steps.
#include "src/ddp/ddp.h"
#include <bit>
#include "build/optimizers.h"

namespace BACKEND {

void ddp_begin(Ddp* ddp, bool audited) {
    ddp->steps++;
    ddp->audited = audited;
    std::swap(ddp->now, ddp->before);
}

// Returns how many multiprocessors the kernels of micro-batch i leave to communication: the first
// one runs during the all-gather of the weights, and with overlap the last one during the
// reduction.
static int spared_in(const Ddp* ddp, int i) {
    const bool last = i + 1 == ddp->micro_batches;
    return i == 0 || (last && ddp->overlap) ? ddp->multiprocessors : 0;
}

void ddp_rewind(Ddp* ddp) {
    ddp->next = 0;
    spare_multiprocessors(spared_in(ddp, 0));
}

// Main also needs this before backward: the last update reads the gradients that backward
// overwrites. Comm runs all updates of a step before its first all-gather, so main's wait for a
// bucket's weights covers both.
void ddp_weights_needed(Ddp* ddp, int first, int last) {
    if (first == last) return;
    const size_t begin = ddp->offset[first], end = ddp->offset[last];
    for (size_t b = 0; b < ddp->buckets.size(); b++)
        if (const Range r = ddp->buckets[b].whole(); r.begin < end && begin < r.end)
            stream_wait_event(kMain, ddp->before.gathered[b]);
}

void ddp_settle(Ddp* ddp) {
    stream_wait(kMain, ddp->stream);
    spare_multiprocessors(0);
}

static int batches_of_replica(const Ddp* ddp) { return ddp->micro_batches / ddp->own_replicas; }

// The buffers are a binary counter of replicas; r counts this rank's. Replica r writes buffer
// number popcount(r). Each buffer before that one holds the sum of v earlier replicas, where v is
// the value of a 1 bit of r. For example r = 6 = 4 + 2: [0] holds the sum of 4 replicas, [1] that
// of 2, and r writes [2]. Let c be the number of trailing 1 bits of r: the carries. After replica
// r, the last c + 1 buffers are added into the first of them.
//
//     replica  fills  then holds [0]   [1]  [2]  [3]
//     0 = 000   [0]              0
//     1 = 001   [1]              01                    1 carry:  [0] + [1]
//     2 = 010   [1]              01    2
//     3 = 011   [2]              0123                  2 carries: [0] + ([1] + [2])
//     4 = 100   [1]              0123  4
//     5 = 101   [2]              0123  45              1 carry:  [1] + [2]
//     6 = 110   [2]              0123  45   6
//     7 = 111   [3]              0123  45   6    7     the rank's last: reduce_inside_rank adds
//                                                      [0] + ([1] + ([2] + [3])), by bucket
float* ddp_grads(Ddp* ddp, int i) {
    return ddp->grads[std::popcount(unsigned(i / batches_of_replica(ddp)))];
}

bool ddp_accumulates(const Ddp* ddp, int i) { return i % batches_of_replica(ddp) > 0; }

void ddp_sum_replicas(Ddp* ddp, int i, const StepState* step) {
    const unsigned replica = unsigned(i / batches_of_replica(ddp));
    // These four are for tests, the watchdog (step -1: it stays the same) and NCCL's share of the
    // multiprocessors; no bit depends on them.
    if (i == 0) fault_point("bwd", ddp->comm->rank, current_step(), ddp_grads(ddp, 0), ddp->n);
    event_record(ddp->batch_done[i], kMain);
    spare_multiprocessors(spared_in(ddp, i + 1));
    comm_progress(ddp->comm, -1, "forward and backward");
    // Micro-batch i + 1 belongs to the same replica, so this replica is not complete.
    if (ddp_accumulates(ddp, i + 1)) return;
    ddp_replica_done(ddp, int(replica), step);
    if (int(replica) + 1 == ddp->own_replicas) return;  // the last one is added by bucket
    const int carries = std::countr_one(replica);
    float* const* const terms = &ddp->grads[std::popcount(replica) - carries];
    tree_reduce(terms[0], nullptr, terms, carries + 1, Tree::kNested, ddp->n, kMain);
}

void add_terms(Transport* x, Tree tree, Range to, const std::vector<const float*>& terms, bool last,
               Stream stream) {
    float* const partials = last ? x->partials + to.begin / kUnit : nullptr;
    tree_reduce(x->gradients + to.begin, partials, terms.data(), int(terms.size()), tree, to.size(),
                stream);
}

// Adds, in the whole bucket, the buffer of this rank's last replica and the buffers that
// ddp_sum_replicas has left.
static void reduce_inside_rank(Ddp* ddp, const Bucket& bucket) {
    std::vector<const float*> buffers;
    for (const float* grads : ddp->grads) buffers.push_back(grads + bucket.whole().begin);
    add_terms(ddp, Tree::kNested, bucket.whole(), buffers, ddp->comm->size == 1, ddp->stream);
}

// Leaves the sum over all replicas in this rank's slice of grads[0], and the sums of
// squares of all slices in partials:
//
//     all buffers of this rank  -> grads[0], whole bucket      reduce_inside_rank
//     grads[0] of all ranks     -> grads[0], own slice         transport_reduce
//     partials of own slice     -> partials, whole bucket      transport_gather
static void reduce_bucket(Ddp* ddp, const Bucket& bucket) {
    const Range whole = bucket.whole();
    reduce_inside_rank(ddp, bucket);
    fault_point("meet", ddp->comm->rank, current_step(), ddp->grads[0] + whole.begin, whole.size());
    transport_reduce(ddp, bucket, ddp->stream);
    transport_gather(ddp, ddp->partials, sizeof(float), bucket, ddp->stream);
}

static void run_bucket(Ddp* ddp, size_t b) {
    event_record(ddp->now.begin[b], ddp->stream);
    reduce_bucket(ddp, ddp->buckets[b]);
    event_record(ddp->now.end[b], ddp->stream);
}

// Starts the buckets that begin at `from` or later: on a GPU enqueues their work, on a CPU queues
// calls of run_bucket.
static void start_buckets(Ddp* ddp, size_t from) {
    stream_wait(ddp->stream, kMain);
    const std::vector<Bucket>& all = ddp->buckets;
    for (size_t& b = ddp->next; b < all.size() && all[b].whole().begin >= from; b++) {
        if constexpr (kOnGpu) run_bucket(ddp, b);
        else stream_call(ddp->stream, [ddp, b] { run_bucket(ddp, b); });
    }
}

void ddp_gradients_ready(Ddp* ddp, int first) {
    if (ddp->overlap && !ddp->audited) start_buckets(ddp, ddp->offset[first]);
}

void ddp_reduce_scatter(Ddp* ddp) {
    comm_progress(ddp->comm, -1, "reduction");
    fault_point("reduce", ddp->comm->rank, current_step());
    event_record(ddp->now.computed, kMain);
    start_buckets(ddp, 0);          // even if no bucket is left, the stream waits for backward
    if constexpr (!kOnGpu) {
        stream_sync(ddp->stream);
        transport_finish(ddp);                  // waits for the other ranks' partials
    }
}

// Every rank has the partials of all slices, so all ranks compute the same norm. Tokens are 0: it
// divides by state->tokens.
void ddp_clip_grad_norm(Ddp* ddp, StepState* state, double* norm, double clip) {
    clip_scale(state, norm, ddp->partials, ddp->n / kUnit, clip, ddp->stream);
}

void ddp_update_piece(Ddp* ddp, size_t piece, const StepState* step, int stage) {
    const auto& [tensor, range] = ddp->pieces[piece];
    std::vector<float*> arrays;
    for (const StateArray& array : ddp->state)
        arrays.push_back(array.range[piece].size() ? array.own + array.at[piece] : nullptr);
    const Update u = {.n = range.size(), .param = ddp->weights + range.begin, .master = arrays[0],
                      .state = arrays.data() + 1, .grad = ddp->gradients + range.begin,
                      .rates = ddp->rates + range.begin / kUnit, .step = step};
    if (tensor >= 0 && stage == 0) ddp_update_matrix(ddp, u, tensor, ddp->work);
    else update(find_optimizer(ddp->optimizer->name), stage, u, ddp->stream);
}

void ddp_update(Ddp* ddp, const StepState* state) {
    for (size_t p = 0; p < ddp->pieces.size(); p++) ddp_update_piece(ddp, p, state, 0);
    event_record(ddp->now.updated, ddp->stream);
}

void ddp_all_gather_weights(Ddp* ddp) {
    for (size_t b = ddp->buckets.size(); b-- > 0;) {
        transport_gather(ddp, ddp->weights, kUnit * sizeof(floatX), ddp->buckets[b], ddp->stream);
        if (b == 0) transport_finish(ddp);
        event_record(ddp->now.gathered[b], ddp->stream);
    }
}

}  // namespace BACKEND
