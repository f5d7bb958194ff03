// 5_tree.cpp -- step 5: the order of the sum belongs to the run and not to the ranks, so the bits are always the same.
//
//     g++ -std=c++20 -O2 -pthread learn/ddp/5_tree.cpp -o 5_tree && for n in 1 2 4 8; do ./5_tree $n; done
//     diff learn/ddp/4_sharded.cpp learn/ddp/5_tree.cpp
//
// Until now a rank added its samples in order and then the ranks were added, so that the order depended on their
// number. Here a run has 8 replicas, however many ranks compute them. Each replica has a gradient of its own, and these
// meet in one binary tree: ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)). With two ranks each computes four replicas and
// adds them: that is one half of the tree. With eight ranks each has one replica, and all additions are made where the
// ranks meet. Every addition has the same two operands in all cases, and so the same result.
//
// It costs gradient buffers: a rank with 4 replicas needs 4 here. Sums of 2, 4, ... replicas can be made as soon as
// they are complete, so that log2(replicas of a rank) + 1 buffers are enough; train_gpt does that.
#include "mlp.h"

constexpr size_t kReplicas = 8, kMicro = kBatch / kReplicas;            // a replica has one micro-batch here
constexpr size_t kBuckets = kLayers, kBucket = kWeights / kBuckets;     // bucket b is layer kLayers - 1 - b

struct Shared {
    size_t ranks;
    Floats grads = Floats(ranks * kWeights);            // (ranks, kWeights): sums of each rank's replicas
    Floats weights = Floats(kWeights);
    std::vector<double> losses = std::vector<double>(kReplicas);
    std::barrier<> meeting = std::barrier(ranks), updated = std::barrier(ranks);
};

// Returns element i of the sum of count gradients (count, kWeights): that of the first half plus that of the second.
static float tree(const float* grads, size_t count, size_t i) {
    if (count == 1) return grads[i];
    return tree(grads, count / 2, i) + tree(grads + count / 2 * kWeights, count / 2, i);
}

static void train(Shared& s, size_t rank) {
    const size_t slice = kBucket / s.ranks;             // of a bucket; this rank's slices lie at its own places in g
    Floats w = random_weights(0), v(kBuckets * slice), g(kWeights);
    const size_t own = kReplicas / s.ranks;             // replicas of this rank
    Floats grads(own * kWeights);                       // (own, kWeights): of each of them
    size_t floats = 0;
    std::atomic<size_t> complete = 0, reduced = 0;      // buckets since the first step
    std::thread communication([&] {
        for (size_t bucket = 0; bucket < kSteps * kBuckets; bucket++) {
            while (complete <= bucket) usleep(1);
            const size_t begin = (kBuckets - 1 - bucket % kBuckets) * kBucket;
            for (size_t i = begin; i < begin + kBucket; i++) s.grads[rank * kWeights + i] = tree(grads.data(), own, i);
            s.meeting.arrive_and_wait();                // all ranks' parts are there
            for (size_t i = begin + rank * slice; i < begin + (rank + 1) * slice; i++)
                g[i] = tree(s.grads.data(), s.ranks, i);
            floats += (s.ranks - 1) * slice;
            reduced++;
        }
    });
    for (size_t step = 0; step < kSteps; step++) {
        std::fill(grads.begin(), grads.end(), 0.0f);
        for (size_t k = 0; k < own; k++) {              // the last one completes the buckets
            const size_t replica = rank * own + k;
            s.losses[replica] = backward(&grads[k * kWeights], w.data(), step * kBatch + replica * kMicro, kMicro,
                                         [&](size_t) { if (k + 1 == own) complete++; });
        }
        while (reduced < (step + 1) * kBuckets) usleep(1);
        for (size_t k = 0; k < v.size(); k++) {         // SGD with momentum, of this rank's slices
            const size_t i = k / slice * kBucket + rank * slice + k % slice;
            v[k] = kMomentum * v[k] + g[i] / float(kBatch);
            s.weights[i] = w[i] - kRate * v[k];
        }
        s.updated.arrive_and_wait();                    // all slices are there: the all-gather
        w = s.weights;
        floats += kWeights - v.size();
        s.updated.arrive_and_wait();                    // all have read weights and gradients: they may be overwritten
    }
    communication.join();
    s.meeting.arrive_and_wait();                        // all losses are there
    if (rank == 0) report(s.ranks, s.losses, w, floats, v.size());
}

int main(int argc, char** argv) { return run<Shared>(argc, argv, train); }

// The same in train_gpt, in src/ddp and train_gpt.cu:
//
//     here                                there
//     backward of own replicas            enqueue_step calls model_forward_backward; ddp_grads says into which buffer
//     complete++                          ddp_gradients_ready, called as Pass::ready
//     tree of a rank's own gradients      ddp_sum_replicas, reduce_inside_rank
//     s.grads, s.meeting                  Transport: shared memory on a host, sockets or NCCL between hosts and GPUs
//     tree of the ranks' sums             transport_reduce
//     division by kBatch                  ddp_clip_grad_norm: by the step's tokens, and by the clipped norm
//     the update of v and s.weights       ddp_update: ddp_update_piece
//     s.updated, the copy to w            ddp_all_gather_weights; the next step waits for it, tensor by tensor
