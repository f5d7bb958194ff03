// checks.cpp -- measures and checks of a step (ddp.h): times, hashes, and a second sum of a bucket by plain loops.
#include <algorithm>
#include <bit>
#include <cmath>
#include "src/base/common.h"
#include "src/ddp/ddp.h"

namespace BACKEND {

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

uint64_t ddp_hash_weights(const Ddp* ddp) {
    const size_t floats = ddp->arena->n * sizeof(floatX) / sizeof(float);
    return hash_floats(reinterpret_cast<const float*>(ddp->weights), floats, ddp->stream);
}

void ddp_fault(Ddp* ddp, const char* point, float* numbers, size_t n) {
    const Damage damage = fault_point(point, ddp->comm->rank, current_step(), n);
    if (damage.kind == Damage::none) return;
    uint32_t bits;
    stream_sync(nullptr);
    copy_to_host(&bits, numbers + damage.index, sizeof bits, nullptr);
    if (damage.kind == Damage::flip) bits ^= 1u << 20;
    else bits = damage.kind == Damage::nan ? 0x7fc00000 : std::bit_cast<uint32_t>(1e6f);
    copy_to_device(numbers + damage.index, &bits, sizeof bits, nullptr);
    stream_sync(nullptr);
}

void ddp_keep_replicas(Ddp* ddp) {
    if (!ddp->kept.empty() || (ddp->transport.nccl_sums && ddp->comm->size > 1)) return;
    for (int r = 0; r < ddp->own_replicas; r++)
        ddp->kept.push_back(device<float>(ddp->buckets[0].whole().size(), "a replica's gradients, for an audit"));
}

// Returns the copies of bucket 0 of all replicas of the run, (replicas, n), and frees this rank's copies. Collective.
static std::vector<float> take_kept(Ddp* ddp, size_t n) {
    std::vector<float> mine, all;
    for (float* const kept : ddp->kept) {
        mine.resize(mine.size() + n);
        copy_to_host(&mine[mine.size() - n], kept, n * sizeof(float), ddp->stream);
        device_free(kept);
    }
    ddp->kept.clear();
    all.resize(mine.size() * size_t(ddp->comm->size));
    comm_allgather(ddp->comm, all.data(), mine.data(), mine.size() * sizeof(float));
    return all;
}

// Adds x[0], x[stride], ... in a balanced binary tree. count: number of terms, a power of two.
static float fold(const float* x, size_t stride, size_t count) {
    if (count == 1) return *x;
    return fold(x, stride, count / 2) + fold(x + stride * (count / 2), stride, count / 2);
}

// The host flushes subnormal numbers (below 1.2e-38) to 0 and a GPU does not, so tiny sums may differ.
static bool same(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) < 1e-36f; }

std::string ddp_wrong_sum(Ddp* ddp) {
    if (ddp->kept.empty()) return "";
    const Range whole = ddp->buckets[0].whole(), own = ddp->buckets[0].own(ddp->comm->rank);
    const size_t n = whole.size();
    const std::vector<float> replicas = take_kept(ddp, n);
    std::vector<float> used(own.size());
    copy_to_host(used.data(), ddp->grads[0] + own.begin, used.size() * sizeof(float), ddp->stream);
    for (size_t i = own.begin; i < own.end; i++) {
        const float want = fold(&replicas[i - whole.begin], n, replicas.size() / n), got = used[i - own.begin];
        if (same(got, want)) continue;
        return format("rank %d: the sum of the replicas' gradients of %s: element %zu of the arena is %.9g, want %.9g",
                      ddp->comm->rank, tensor_at(*ddp->arena, i).name.c_str(), i, plain(got), plain(want));
    }
    return "";
}

}  // namespace BACKEND
