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
// exchange.h moves the bytes. Elementwise sums do not see where buckets, slices or threads cut, so overlap and bucket sizes cannot
// change a bit. On a GPU nothing here waits: the step is put on two streams, and the host goes on.
#pragma once
#include <vector>
#include "arena.h"
#include "comm.h"
#include "exchange.h"
#include "kernels.h"

namespace BACKEND {

constexpr size_t kBucketBytes = 25 << 20, kFirstBucketBytes = 1 << 20;

struct Ddp {
    Comm* comm;
    const Arena* arena;
    Exchange* exchange;
    int R, lanes;                           // lanes of the run, and of this rank: R / W
    bool overlap;
    floatX* weights;                        // (n)  of the device; one for all ranks of a CPU host
    std::vector<float*> grads;              // buffers of the tree: log2(lanes) + 1 of (n)
    float* partials;                        // (n / kUnit)  squares of the reduced gradient
    // The optimizer's state: whole on the host, shared by its ranks, for reading and writing checkpoints. A CPU updates it there (and with
    // floatX = float the master is the weights); a GPU holds its own slices, packed, and the host's copy is filled when asked for.
    float *master, *m, *v;                  // (n)
    float *own_master, *own_m, *own_v;      // (own elements), the slice of bucket b at own_at[b]
    std::vector<size_t> own_at;
    size_t own_n;                           // elements of the three
    // What the last update left, to be found so by the next (kernels.h, adamw_update), in the same two ways; null: not checked.
    uint32_t *sums, *own_sums;              // (n / kUnit), (own units)
    uint32_t *changed, *host_changed;       // (buckets)  of the device; of the host, when the update is over
    uint8_t* decay;                         // (n / kUnit)  the arena's, where kernels can read it
    std::vector<Range> buckets;             // from the arena's end to its start
    Stream stream;                          // communication
    // of the step under way
    size_t next;                            // first bucket not yet handed to the stream
    struct Job { Ddp* ddp; size_t bucket; };
    std::vector<Job> jobs;
    // Points of a step, to measure it; of two steps, since the gather of one ends in the next.
    struct Marks {
        Mark computed;                      // this rank's backward is done
        std::vector<Mark> begin, end;       // of each bucket's reduction
        Mark updated;
        std::vector<Mark> gathered;         // of each bucket
        bool set;                           // the last two
    } marks[2];
};

// The state and grads[0] come from comm's shared memory on a CPU. R is a multiple of comm->size, both powers of two.
// check: the state is summed and compared from update to update.
void ddp_create(Ddp* ddp, Comm* comm, const Arena* arena, int R, bool overlap, bool nccl_sums, bool check);
void ddp_destroy(Ddp* ddp);

// Rank 0's master, m and v become everybody's, and the weights: after initialisation or a resume. Compares nothing; see check_agreement.
void ddp_broadcast_state(Ddp* ddp);
// Rank 0's master, m and v become whole, and sums: before it writes a checkpoint.
void ddp_gather_state(Ddp* ddp);

// The step, in this order:
void ddp_begin(Ddp* ddp);
void ddp_weights_needed(Ddp* ddp, int first, int last);  // what is put on the main stream next sees tensors [first, last) as updated
float* ddp_lane_buffer(Ddp* ddp, int lane);              // where the gradients of this rank's lane 0, 1, ... go
void ddp_lane_done(Ddp* ddp, int lane);                  // folds what is complete inside the rank
void ddp_gradients_ready(Ddp* ddp, int first);           // tensors from `first` of the table on are final: starts their buckets
void ddp_reduce_finish(Ddp* ddp);                        // the remaining buckets; a CPU returns when they are reduced on all ranks
void ddp_clip(Ddp* ddp, StepState* state, double* norm, double clip, double tokens);   // clip_scale over the whole gradient, on ddp->stream
void ddp_update(Ddp* ddp, const AdamW& adamw, const StepState* state);   // this rank's slices
void ddp_gather_weights(Ddp* ddp);                       // to all ranks; the next step's forward waits for them, tensor by tensor

// An element of the first unit that this rank's last update did not find as the one before had left it; arena->n: all were. On a GPU of
// the last update that is over.
size_t ddp_changed(const Ddp* ddp);
void ddp_require_unchanged(const Ddp* ddp, int rank, size_t changed);      // else Error 80 that names the rank and the tensor

// What is put on the main stream next sees all weights as updated: before anything but a step reads them.
void ddp_settle(Ddp* ddp);

// Seconds the reduction and the gather took, and how much of them no computation hid. Of the step that the last ddp_begin began, when
// the host has waited for its norm; a GPU reports the gather of the step before.
struct DdpTimes { double comm, exposed; };
DdpTimes ddp_times(Ddp* ddp);

uint64_t ddp_hash_weights(const Ddp* ddp);

}  // namespace BACKEND
