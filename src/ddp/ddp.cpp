// ddp.cpp -- the ordered reduction, the sharded update and the all-gather. Read ddp.h first; create.cpp runs before
// the first step.
#include "src/ddp/ddp.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include "build/optimizers.h"
#include "src/ddp/reductions/reduction.h"
#include "src/base/common.h"

namespace BACKEND {

// OPTIMIZERS(X), of build/optimizers.h, is X(adamw) X(sgd) X(muon).
#define X(name) name##_matrix,
static MatrixRule* const kMatrixRules[] = {OPTIMIZERS(X)};
#undef X

// Updates a piece by a stage of the optimizer; stage 0 uses the matrix rule for its tensors. Returns the bytes of work
// space that the matrix rule needs, else 0. step = null: updates nothing.
static size_t update_piece(const Ddp* ddp, size_t piece, const StepState* step, int stage = 0) {
    const Piece& p = ddp->pieces[piece];
    const int rule = find_optimizer(ddp->optimizer->name);
    std::vector<float*> arrays;
    for (const StateArray& array : ddp->state) arrays.push_back(array.own + array.at[piece]);
    const Update u = {.n = p.range.size(), .param = ddp->weights + p.range.begin, .master = arrays[0],
                      .state = arrays.data() + 1, .grad = ddp->grads[0] + p.range.begin,
                      .rates = ddp->rates + p.range.begin / kUnit, .step = step};
    if (p.tensor >= 0 && stage == 0) {
        const TensorSpec& tensor = ddp->arena->tensors[p.tensor];
        CHECK(kMatrixRules[rule], "an optimizer with `whole` and no matrix rule");
        return kMatrixRules[rule]({u, rule, tensor.rows, tensor.cols, tensor.file_rows, step ? ddp->work : nullptr},
                                  ddp->stream);
    }
    if (step) update(rule, stage, u, ddp->stream);
    return 0;
}

size_t ddp_work_bytes(const Ddp* ddp) {
    size_t bytes = 1;
    for (size_t p = 0; p < ddp->pieces.size(); p++) bytes = std::max(bytes, update_piece(ddp, p, nullptr));
    return bytes;
}

// ---------------------------------------------------------------------------------------------------------- the step

void ddp_begin(Ddp* ddp, bool audited) {
    ddp->steps++;
    ddp->audited = audited;
    std::swap(ddp->marks[0], ddp->marks[1]);
}

void ddp_rewind(Ddp* ddp) {
    ddp->next = 0;
    spare_multiprocessors(ddp_spare_multiprocessors(ddp, 0));
}

int ddp_spare_multiprocessors(const Ddp* ddp, int i) {
    const bool last = i + 1 == ddp->micro_batches;
    return i == 0 || (last && ddp->overlap) ? ddp->transport.multiprocessors : 0;
}

// The communication stream runs all updates of a step before its first all-gather, and updates read the gradients. So
// backward may overwrite gradients once a bucket's weights have arrived.
void ddp_weights_needed(Ddp* ddp, int first, int last) {
    if (first == last) return;
    const std::vector<size_t>& offset = ddp->arena->offset;
    const size_t begin = offset[first], end = size_t(last) < offset.size() ? offset[last] : ddp->arena->n;
    for (size_t b = 0; b < ddp->buckets.size(); b++)
        if (const Range r = ddp->buckets[b].whole(); r.begin < end && begin < r.end)
            stream_wait_event(nullptr, ddp->marks[1].gathered[b]);
}

void ddp_settle(Ddp* ddp) {
    stream_wait(nullptr, ddp->stream);
    spare_multiprocessors(0);
}

static int batches_of_replica(const Ddp* ddp) { return ddp->micro_batches / ddp->own_replicas; }

// The buffers are a binary counter of replicas. Replica r writes buffer number popcount(r); each buffer before that
// one holds the sum of v earlier replicas, where v is the value of a 1 bit of r. Let c be the number of trailing 1
// bits of r: the carries. After replica r, the last c + 1 buffers are added into the first of them.
//
//     replica  fills  then holds [0]   [1]  [2]  [3]
//     0 = 000   [0]              0
//     1 = 001   [1]              01                    1 carry:  [0] + [1]
//     2 = 010   [1]              01    2
//     3 = 011   [2]              0123                  2 carries: [0] + ([1] + [2])
//     4 = 100   [1]              0123  4
//     5 = 101   [2]              0123  45              1 carry:  [1] + [2]
//     6 = 110   [2]              0123  45   6
//     7 = 111   [3]              0123  45   6    7     the last: reduce_bucket adds [0] + ([1] + ([2] + [3]))
float* ddp_grads(Ddp* ddp, int i) {
    return ddp->grads[std::popcount(unsigned(i / batches_of_replica(ddp)))];
}

bool ddp_accumulates(const Ddp* ddp, int i) { return i % batches_of_replica(ddp) > 0; }

// Calls the reduction's rule with the complete gradient of one of this rank's replicas, before anything is added to it.
static void apply_rule(Ddp* ddp, int replica, const StepState* step) {
    if (!ddp->rule->on_replica) return;
    const int number = ddp->comm->rank * ddp->own_replicas + replica;
    float* const grads = ddp->grads[std::popcount(unsigned(replica))];
    std::vector<float*> state;
    for (const StateArray& array : ddp->replica_state) state.push_back(array.host + number * array.arena.n);
    ddp->rule->on_replica({number, grads, {0, ddp->arena->n}, state.data(), step, ddp});
}

// Copies bucket 0 of a replica's complete gradient, for an audit of the sum. NCCL adds in its own order.
static void keep_replica(Ddp* ddp, const float* grads) {
    if (!ddp->audited || (ddp->transport.nccl_sums && ddp->comm->size > 1)) return;
    const Range bucket = ddp->buckets[0].whole();
    const size_t before = ddp->kept.size();
    ddp->kept.resize(before + bucket.size());
    copy_to_host(&ddp->kept[before], grads + bucket.begin, bucket.size() * sizeof(float));
}

void ddp_sum_replicas(Ddp* ddp, int i, const StepState* step) {
    const unsigned replica = unsigned(i / batches_of_replica(ddp));
    if (i == 0) fault_point("bwd", ddp->comm->rank, current_step(), ddp_grads(ddp, 0), ddp->arena->n);
    event_record(ddp->batch_done[i], nullptr);
    spare_multiprocessors(ddp_spare_multiprocessors(ddp, i + 1));
    comm_progress(ddp->comm, -1, "forward and backward");
    if (ddp_accumulates(ddp, i + 1)) return;
    apply_rule(ddp, int(replica), step);
    keep_replica(ddp, ddp_grads(ddp, i));
    if (int(replica) + 1 == ddp->own_replicas) return;
    const int carries = std::countr_one(replica);
    float* const* const terms = &ddp->grads[std::popcount(replica) - carries];
    tree_reduce(terms[0], nullptr, terms, carries + 1, Tree::kNested, ddp->arena->n, nullptr);
}

// Writes the sum of terms to this rank's gradients. last: it is over all replicas, and its squares go to partials.
static void add_terms(Ddp* ddp, Tree tree, Range to, const std::vector<const float*>& terms, bool last) {
    Transport* const x = &ddp->transport;
    float* const partials = last ? x->partials + to.begin / kUnit : nullptr;
    tree_reduce(x->gradients + to.begin, partials, terms.data(), int(terms.size()), tree, to.size(), ddp->stream);
}

// Adds, in the whole bucket, the last replica's buffer and the buffers that ddp_sum_replicas has left.
static void reduce_inside_rank(Ddp* ddp, const Bucket& bucket) {
    std::vector<const float*> buffers;
    for (const float* grads : ddp->grads) buffers.push_back(grads + bucket.whole().begin);
    add_terms(ddp, Tree::kNested, bucket.whole(), buffers, ddp->comm->size == 1);
}

// Adds the ranks' sums, in this rank's slices of the bucket.
static void reduce_across_ranks(Ddp* ddp, const Bucket& bucket) {
    transport_reduce(&ddp->transport, bucket, ddp->stream,
                     [ddp](Range to, const std::vector<const float*>& terms, bool last) {
                         add_terms(ddp, Tree::kBalanced, to, terms, last);
                     });
}

// Leaves the sum over all replicas in this rank's slice of grads[0], and the sums of squares of all slices in partials:
//
//     all buffers of this rank  -> grads[0], whole bucket      reduce_inside_rank
//     grads[0] of all ranks     -> grads[0], own slice         reduce_across_ranks
//     partials of own slice     -> partials, whole bucket      transport_gather
static void reduce_bucket(Ddp* ddp, const Bucket& bucket) {
    const Range whole = bucket.whole();
    reduce_inside_rank(ddp, bucket);
    fault_point("meet", ddp->comm->rank, current_step(), ddp->grads[0] + whole.begin, whole.size());
    reduce_across_ranks(ddp, bucket);
    transport_gather(&ddp->transport, ddp->transport.partials, sizeof(float), bucket, ddp->stream);
}

static void run_bucket(Ddp* ddp, size_t b) {
    event_record(ddp->marks[0].begin[b], ddp->stream);
    reduce_bucket(ddp, ddp->buckets[b]);
    event_record(ddp->marks[0].end[b], ddp->stream);
}

// Starts the buckets that begin at `from` or later: on a GPU enqueues their work, on a CPU queues calls of run_bucket.
static void start_buckets(Ddp* ddp, size_t from) {
    stream_wait(ddp->stream, nullptr);
    for (size_t& b = ddp->next; b < ddp->buckets.size() && ddp->buckets[b].whole().begin >= from; b++) {
        if constexpr (kOnGpu) run_bucket(ddp, b);
        else stream_call(ddp->stream, [ddp, b] { run_bucket(ddp, b); });
    }
}

void ddp_gradients_ready(Ddp* ddp, int first) {
    const bool overlaps = ddp->overlap && !ddp->audited;
    if (overlaps && size_t(first) < ddp->arena->offset.size()) start_buckets(ddp, ddp->arena->offset[first]);
}

void ddp_reduce_scatter(Ddp* ddp) {
    comm_progress(ddp->comm, -1, "reduction");
    fault_point("reduce", ddp->comm->rank, current_step());
    event_record(ddp->marks[0].computed, nullptr);
    start_buckets(ddp, 0);                      // even if no bucket is left, the stream waits for backward
    if constexpr (!kOnGpu) {
        stream_sync(ddp->stream);
        transport_finish(&ddp->transport);      // waits for the other ranks' partials
    }
}

void ddp_clip_grad_norm(Ddp* ddp, StepState* state, double* norm, double clip) {
    clip_scale(state, norm, ddp->transport.partials, ddp->arena->n / kUnit, clip, 0, ddp->stream);
}

void ddp_update(Ddp* ddp, const StepState* state) {
    for (size_t p = 0; p < ddp->pieces.size(); p++) update_piece(ddp, p, state);
    event_record(ddp->marks[0].updated, ddp->stream);
}

void ddp_exchange_weights(Ddp* ddp) {
    if (ddp->optimizer->exchange == 0) return;
    stream_wait(ddp->stream, nullptr);
    comm_barrier(ddp->comm);                    // on a CPU ranks share the weights, and may still read them
    for (size_t p = 0; p < ddp->pieces.size(); p++) update_piece(ddp, p, ddp->still, ddp->optimizer->exchange);
    event_record(ddp->marks[0].updated, ddp->stream);
    ddp_all_gather_weights(ddp);
    ddp_settle(ddp);
}

void ddp_all_gather_weights(Ddp* ddp) {
    for (size_t b = ddp->buckets.size(); b-- > 0;) {
        transport_gather(&ddp->transport, ddp->weights, kUnit * sizeof(floatX), ddp->buckets[b], ddp->stream);
        if (b == 0) transport_finish(&ddp->transport);
        event_record(ddp->marks[0].gathered[b], ddp->stream);
    }
}

DdpTimes ddp_times(Ddp* ddp) {
    DdpTimes times = {};
    const Ddp::Events& now = ddp->marks[0];
    for (size_t b = 0; b < ddp->buckets.size(); b++) times.comm += event_seconds(now.begin[b], now.end[b]);
    times.exposed = std::max(0.0, event_seconds(now.computed, now.end.back()));
    if (ddp->comm->size == 1 || (kOnGpu && ddp->steps == 1)) return times;
    const Ddp::Events& last = ddp->marks[kOnGpu ? 1 : 0];
    const double gather = event_seconds(last.updated, last.gathered[0]);
    return {times.comm + gather, times.exposed + gather};
}

}  // namespace BACKEND
