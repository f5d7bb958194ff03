// ddp.cpp -- the ordered reduction, the sharded update and the gather. Read ddp.h first.
#include "ddp.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>
#include "common.h"
#include "file.h"

namespace BACKEND {

namespace {

struct Range { size_t begin, end; size_t size() const { return end - begin; } };

// Part k of n of a range, cut at units.
Range part(Range whole, size_t k, size_t n) {
    const size_t units = whole.size() / kUnit;
    return {whole.begin + units * k / n * kUnit, whole.begin + units * (k + 1) / n * kUnit};
}

// Local rank l's part of a bucket: what it folds among the ranks of its host.
Range host_slice(const Ddp* ddp, const Bucket& b) {
    return part({b.begin, b.end}, size_t(ddp->comm->local_rank), size_t(ddp->comm->local_size));
}
// The part of it that this rank owns: folded over hosts too, updated here.
Range own_slice(const Ddp* ddp, const Bucket& b) {
    return part(host_slice(ddp, b), size_t(ddp->comm->host), size_t(ddp->comm->hosts));
}
// Byte offsets of the hosts' parts of a slice, counted from its begin, in an array that holds so many bytes per unit.
std::vector<size_t> host_cuts(const Ddp* ddp, Range slice, size_t unit_bytes) {
    const size_t hosts = size_t(ddp->comm->hosts);
    std::vector<size_t> cut;
    for (size_t h = 0; h < hosts; h++) cut.push_back((part(slice, h, hosts).begin - slice.begin) / kUnit * unit_bytes);
    cut.push_back(slice.size() / kUnit * unit_bytes);
    return cut;
}

// From the arena's end: a small bucket, so that communication starts early; then full ones.
std::vector<Bucket> cut_buckets(size_t n) {
    std::vector<Bucket> buckets;
    for (size_t end = n; end > 0;) {
        const size_t want = (buckets.empty() ? kFirstBucketBytes : kBucketBytes) / sizeof(float);
        const size_t begin = end > want ? end - want : 0;
        buckets.push_back({begin, end});
        end = begin;
    }
    return buckets;
}

// On the communication stream. Afterwards this rank's slice of grads[0] holds the sum over all lanes, and partials its squares.
void reduce_bucket(Ddp* ddp, const Bucket& bucket) {
    Comm* comm = ddp->comm;
    const double start = now_seconds();
    const size_t n = bucket.end - bucket.begin;
    for (size_t k = ddp->grads.size() - 1; k > 0; k--) {            // the tree inside this rank: the last lane's buffer joins the others
        const float* terms[] = {ddp->grads[k - 1] + bucket.begin, ddp->grads[k] + bucket.begin};
        fold(ddp->grads[k - 1] + bucket.begin, terms, 2, n, ddp->stream);
    }
    if (comm->local_size > 1) comm_local_barrier(comm, 1);          // every rank of this host has its sum in grads[0]
    const Range slice = host_slice(ddp, bucket);
    std::vector<const float*> terms;
    for (const float* peer : ddp->peers) terms.push_back(peer + slice.begin);
    if (comm->local_size > 1) fold(ddp->grads[0] + slice.begin, terms.data(), comm->local_size, slice.size(), ddp->stream);
    const Range own = own_slice(ddp, bucket);
    if (comm->hosts > 1) {
        comm_hosts_scatter(comm, ddp->grads[0] + slice.begin, host_cuts(ddp, slice, kUnit * sizeof(float)).data(), ddp->received);
        terms.clear();
        for (int h = 0; h < comm->hosts; h++) terms.push_back(h == comm->host ? ddp->grads[0] + own.begin : ddp->received + size_t(h) * own.size());
        fold(ddp->grads[0] + own.begin, terms.data(), comm->hosts, own.size(), ddp->stream);
    }
    norm_partials(ddp->partials + own.begin / kUnit, ddp->grads[0] + own.begin, own.size(), ddp->stream);
    if (comm->hosts > 1) comm_hosts_gather(comm, ddp->partials + slice.begin / kUnit, host_cuts(ddp, slice, sizeof(float)).data());
    ddp->comm_seconds += now_seconds() - start;
}

void run_job(void* job) {
    Ddp* ddp = static_cast<Ddp::Job*>(job)->ddp;
    reduce_bucket(ddp, ddp->buckets[static_cast<Ddp::Job*>(job)->bucket]);
}

// Every host's owners send their slices of an arena to the other hosts; the ranks of a host share its memory.
template <class F> void gather_slices(Ddp* ddp, F* base) {
    if (ddp->comm->hosts == 1) return;
    for (const Bucket& b : ddp->buckets) {
        const Range slice = host_slice(ddp, b);
        comm_hosts_gather(ddp->comm, base + slice.begin, host_cuts(ddp, slice, kUnit * sizeof(F)).data());
    }
}

}  // namespace

void ddp_create(Ddp* ddp, Comm* comm, const Arena* arena, int R, bool overlap) {
    *ddp = Ddp{};
    ddp->comm = comm; ddp->arena = arena; ddp->R = R; ddp->overlap = overlap;
    ddp->lanes = R / comm->size;
    CHECK(ddp->lanes * comm->size == R && std::has_single_bit(unsigned(R)), "ddp_create: %d lanes on %d ranks", R, comm->size);
    const size_t n = arena->n;
    ddp->weights = static_cast<floatX*>(comm_shared(comm, n * sizeof(floatX), "weights"));
    ddp->m = static_cast<float*>(comm_shared(comm, n * sizeof(float), "first moments"));
    ddp->v = static_cast<float*>(comm_shared(comm, n * sizeof(float), "second moments"));
    if constexpr (std::is_same_v<floatX, float>) ddp->master = ddp->weights;
    else ddp->master = static_cast<float*>(comm_shared(comm, n * sizeof(float), "fp32 weights"));
    float* shared = static_cast<float*>(comm_shared(comm, size_t(comm->local_size) * n * sizeof(float), "gradients"));
    for (int l = 0; l < comm->local_size; l++) ddp->peers.push_back(shared + size_t(l) * n);
    ddp->grads.push_back(ddp->peers[size_t(comm->local_rank)]);
    for (int k = 1; k < ddp->lanes; k *= 2) ddp->grads.push_back(static_cast<float*>(device_alloc(n * sizeof(float), "gradients of a lane")));
    ddp->partials = static_cast<float*>(comm_shared(comm, n / kUnit * sizeof(float), "partial norms"));
    ddp->buckets = cut_buckets(n);
    for (size_t b = 0; b < ddp->buckets.size(); b++) ddp->jobs.push_back({ddp, b});
    if (comm->hosts > 1) {
        size_t largest = 0;
        for (const Bucket& b : ddp->buckets) largest = std::max(largest, own_slice(ddp, b).size());
        ddp->received = static_cast<float*>(device_alloc(size_t(comm->hosts) * largest * sizeof(float), "gradients from other hosts"));
    }
    ddp->stream = stream_create();
}

void ddp_destroy(Ddp* ddp) {
    stream_destroy(ddp->stream);
    for (size_t k = 1; k < ddp->grads.size(); k++) device_free(ddp->grads[k]);
    device_free(ddp->received);
    *ddp = Ddp{};
}

void ddp_broadcast_state(Ddp* ddp) {
    Comm* comm = ddp->comm;
    comm_barrier(comm);
    if (comm->hosts > 1)
        for (float* state : {ddp->master, ddp->m, ddp->v}) comm_broadcast(comm, state, ddp->arena->n * sizeof(float), 0);
    if constexpr (!std::is_same_v<floatX, float>)
        if (comm->local_rank == 0) store_floats(ddp->weights, ddp->master, ddp->arena->n);
    comm_barrier(comm);
}

void ddp_gather_state(Ddp* ddp) {
    gather_slices(ddp, ddp->m);
    gather_slices(ddp, ddp->v);
    if constexpr (!std::is_same_v<floatX, float>) gather_slices(ddp, ddp->master);
    comm_barrier(ddp->comm);
}

// ------------------------------------------------------------------------------------------------------------ the step

void ddp_begin(Ddp* ddp) {
    ddp->next = 0;
    ddp->comm_seconds = ddp->exposed_seconds = 0;
}

// Lane i of this rank waits, as a block of the tree, beside one block per set bit of i: its buffer is the next one.
float* ddp_lane_buffer(Ddp* ddp, int lane) { return ddp->grads[size_t(std::popcount(unsigned(lane)))]; }

// Like carrying in a binary counter: each trailing 1 bit of `lane` is a block of the same size that waits for this one. The last
// lane's carries are left to reduce_bucket, a bucket at a time.
void ddp_lane_done(Ddp* ddp, int lane) {
    if (lane + 1 == ddp->lanes) return;
    size_t k = size_t(std::popcount(unsigned(lane)));
    for (unsigned bits = unsigned(lane); bits & 1; bits >>= 1, k--) {
        const float* terms[] = {ddp->grads[k - 1], ddp->grads[k]};
        fold(ddp->grads[k - 1], terms, 2, ddp->arena->n, nullptr);
    }
}

void ddp_gradients_ready(void* context, int first, int) {
    Ddp* ddp = static_cast<Ddp*>(context);
    if (!ddp->overlap) return;
    for (; ddp->next < ddp->buckets.size() && ddp->buckets[ddp->next].begin >= ddp->arena->offset[size_t(first)]; ddp->next++) {
        stream_wait(ddp->stream, nullptr);
        stream_call(ddp->stream, run_job, &ddp->jobs[ddp->next]);
    }
}

void ddp_reduce_finish(Ddp* ddp) {
    const double start = now_seconds();
    for (; ddp->next < ddp->buckets.size(); ddp->next++) stream_call(ddp->stream, run_job, &ddp->jobs[ddp->next]);
    stream_sync(ddp->stream);
    ddp->exposed_seconds += now_seconds() - start;
}

double ddp_grad_norm(const Ddp* ddp) {
    double sum = 0;
    for (size_t k = 0; k < ddp->arena->n / kUnit; k++) sum += double(ddp->partials[k]);
    return std::sqrt(sum);
}

void ddp_update(Ddp* ddp, const AdamW& adamw, const StepState* state) {
    for (const Bucket& b : ddp->buckets) {
        const Range own = own_slice(ddp, b);
        adamw_update(ddp->weights + own.begin, ddp->master + own.begin, ddp->m + own.begin, ddp->v + own.begin,
                     ddp->grads[0] + own.begin, ddp->arena->decay.data() + own.begin / kUnit, own.size(), adamw, state, nullptr);
    }
    const double start = now_seconds();
    gather_slices(ddp, ddp->weights);
    if (ddp->comm->local_size > 1) comm_local_barrier(ddp->comm, 0);
    ddp->exposed_seconds += now_seconds() - start;
}

uint64_t ddp_hash_weights(const Ddp* ddp) { return hash_bytes(ddp->weights, ddp->arena->n * sizeof(floatX), 0); }

}  // namespace BACKEND
