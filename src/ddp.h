// ddp.h -- data parallelism: the gradients of all replicas meet in one fixed tree, each rank updates its slice, all get the weights.
//
// A step's G leaves belong to R lanes (logical replicas), W ranks run R/W lanes each. The sum over lanes is one binary tree in
// fp32, whatever W is: first inside a rank, then across the ranks of a host, then across hosts.
//
//     lanes            0   1   2   3   4   5   6   7        R = 8
//     inside a rank     \ /     \ /     \ /     \ /         W = 2: levels 1 and 2 are sums of whole buffers on one rank
//                         \     /         \     /
//     across ranks           \_________/                    level 3: rank r folds its slice of every bucket
//
// The gradient arena is cut into buckets from its end, the order in which backward finishes. A bucket is reduced on the
// communication stream as soon as its last gradient is written, in the same order on every rank, while backward goes on:
//
//     compute   ...  backward of block 3 | block 2        | block 1        | ...
//     comm                                 [ bucket 0    ]  [ bucket 1    ]
//
// Between the reduce-scatter and the all-gather stands the update (ZeRO-1): masters and moments of a slice live on its owner.
// On one host "gather" costs nothing: its ranks share the memory of the weights. Elementwise sums do not see where buckets,
// slices or threads cut, so overlap and bucket sizes cannot change a bit.
#pragma once
#include <vector>
#include "arena.h"
#include "comm.h"
#include "kernels.h"

namespace BACKEND {

constexpr size_t kBucketBytes = 25 << 20, kFirstBucketBytes = 1 << 20;

struct Bucket { size_t begin, end; };       // elements, multiples of kUnit; buckets go from the arena's end to its start

struct Ddp {
    Comm* comm;
    const Arena* arena;
    int R, lanes;                           // lanes of the run, and of this rank: R / W
    bool overlap;
    floatX* weights;                        // (n)  shared by the ranks of a host
    float *master, *m, *v;                  // (n)  fp32 weights (the same memory as weights where floatX is float) and moments
    std::vector<float*> grads;              // buffers of the tree: log2(lanes) + 1 of (n); grads[0] is readable by the host's ranks
    std::vector<float*> peers;              // grads[0] of each local rank
    float* partials;                        // (n / kUnit)  squares of the reduced gradient, shared by the ranks of a host
    float* received;                        // what other hosts send: (hosts x a bucket's part)
    std::vector<Bucket> buckets;
    Stream stream;                          // communication
    // of the step under way
    size_t next;                            // first bucket not yet handed to the stream
    double comm_seconds, exposed_seconds;   // time the reduction took, and how much of it nothing else hid
    struct Job { Ddp* ddp; size_t bucket; };
    std::vector<Job> jobs;
};

// Weights, moments and grads[0] lie in comm's shared memory. R is a multiple of comm->size, both powers of two.
void ddp_create(Ddp* ddp, Comm* comm, const Arena* arena, int R, bool overlap);
void ddp_destroy(Ddp* ddp);

// Rank 0's weights and moments become everybody's: after initialisation or a resume. Compares nothing; see check_agreement.
void ddp_broadcast_state(Ddp* ddp);
// Hosts that do not own a slice get its moments: before rank 0 writes a checkpoint.
void ddp_gather_state(Ddp* ddp);

// The step, in this order:
void ddp_begin(Ddp* ddp);
float* ddp_lane_buffer(Ddp* ddp, int lane);              // where the gradients of this rank's lane 0, 1, ... go
void ddp_lane_done(Ddp* ddp, int lane);                  // folds what is complete inside the rank
void ddp_gradients_ready(void* ddp, int first, int last);// the model's callback in the last leaf of the last lane: starts buckets
void ddp_reduce_finish(Ddp* ddp);                        // returns when every bucket is reduced
double ddp_grad_norm(const Ddp* ddp);                    // of the summed gradient; after a collective that follows ddp_reduce_finish
void ddp_update(Ddp* ddp, const AdamW& adamw, const StepState* state);   // this rank's slices, then the gather of the weights

uint64_t ddp_hash_weights(const Ddp* ddp);

}  // namespace BACKEND
