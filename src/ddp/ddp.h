// ddp.h -- data parallelism: the gradients of all replicas are added in one fixed tree, each rank updates its slices of
// the weights, and an all-gather gives all weights to all ranks.
//
// A step's micro-batches belong to R replicas; W ranks run R / W replicas each. The sum over replicas is one binary
// tree in fp32, whatever W is: first inside a rank, then across the ranks of a host, then across hosts.
//
//     replicas            0   1   2   3   4   5   6   7        R = 8
//     inside a rank        \ /     \ /     \ /     \ /         W = 2: levels 1 and 2 are sums of whole buffers
//                            \     /         \     /
//     across ranks              \_________/                    level 3: each rank reduces its slice of every bucket
//
// The arena is cut into buckets from its end to its start, the order in which backward finishes gradients. Every rank
// reduces them in this order on its communication stream; with `overlap`, each as soon as its last gradient is written:
//
//     compute   ...  backward of block 3 | block 2        | block 1        | ...
//     comm                                 [ bucket 0    ]  [ bucket 1    ]
//
// The update is between reduction and all-gather (ZeRO-1): the rank that owns a slice updates its state. Elementwise
// sums and rules give the same bits wherever buckets, slices or threads are cut, and a tensor with a rule for whole
// matrices is never cut: overlap and bucket sizes cannot change a bit. On a GPU the step's functions do not wait.
#pragma once
#include <map>
#include <string>
#include <vector>
#include "kernels/kernels.h"
#include "optimizers/optimizer.h"
#include "src/base/arena.h"
#include "src/comm/comm.h"
#include "src/ddp/transport.h"

struct ReductionInfo;           // src/ddp/reductions/reduction.h

namespace BACKEND {

struct ReductionRule;

constexpr size_t kBucketBytes = 25 << 20, kFirstBucketBytes = 1 << 20;  // as PyTorch's

// The fp32 masters or one array of state. With floatX = float the masters are the weights themselves.
struct StateArray {
    std::string name;           // "": the masters; others are named in OptimizerInfo::state or in ReductionInfo
    Arena arena;                // where tensors lie in the array: for masters as in the weights; see state_layout
    float* host;                // (arena.n)  all values, shared by the host's ranks; checkpoints use this array
    float* own;                 // what this rank updates: on a CPU `host` itself, on a GPU its pieces, packed
    std::vector<Range> range;   // by piece: where it is in `host`
    std::vector<size_t> at;     // by piece: where it begins in `own`
};
// A part of this rank's slices: a tensor that the matrix rule updates, or a range without such a tensor.
struct Piece {
    int tensor;                 // its number in the arena; -1: the elementwise rule updates the range
    Range range;
};

struct DdpSettings {
    int replicas;                           // of the run, a power of two and a multiple of Comm::size
    int micro_batches;                      // of this rank in a step
    bool overlap;                           // reduce during backward
    std::string reduce;                     // how replicas are added: a name of src/ddp/reductions/list
    std::map<std::string, double> hyper;    // the reduction's options, by name
};

struct Ddp {
    Comm* comm;
    const Arena* arena;
    const OptimizerInfo* optimizer;
    DdpSettings settings;
    const ReductionInfo* reduction;
    const ReductionRule* rule;
    int own_replicas, micro_batches;        // of this rank
    bool overlap;
    std::vector<Bucket> buckets;            // from the arena's end to its start
    std::vector<Piece> pieces;              // from the arena's start to its end
    Transport transport;
    floatX* weights;                        // (n)  the transport's array
    std::vector<float*> grads;              // log2(own_replicas) + 1 buffers of (n), the transport's first
    bool audited;                           // this step keeps the next array; reductions do not overlap with backward
    std::vector<float> kept;                // on the host: bucket 0 of each of this rank's replicas
    std::vector<StateArray> state;          // masters first
    std::vector<StateArray> replica_state;  // host: (replicas, arena.n); a host updates the rows of its own replicas
    Rates* rates;                           // (n / kUnit)  by unit, where kernels can read it
    void* work;                             // work space of the matrix rule
    StepState* still;                       // zeros, for a stage that belongs to no step
    Stream stream;                          // the communication stream
    int64_t steps;                          // number of steps that this process has begun
    size_t next;                            // first bucket of this step that is not on the stream yet
    struct Events {                         // [0]: of this step; [1]: of the previous one: its all-gather may still run
        Event computed, updated;            // after this rank's backward, after its update
        std::vector<Event> begin, end, gathered;        // by bucket: reduction begins, ends; all-gather ends
    } marks[2];
    std::vector<Event> batch_done;          // by micro-batch: backward has ended; the waiting host sees progress by it
    std::vector<Event> events;              // all events above, for ddp_destroy
};

void ddp_create(Ddp* ddp, Comm* comm, const Arena* arena, const OptimizerInfo* optimizer, const DdpSettings& settings);
void ddp_destroy(Ddp* ddp);
size_t ddp_work_bytes(const Ddp* ddp);      // bytes of work space that the optimizer needs for the pieces

// ---- the state of masters, optimizer and replicas: state.cpp
void ddp_create_state(Ddp* ddp);
void ddp_first_state(Ddp* ddp);             // copies state[0].host, the weights, to arrays that start from the weights
// Gives rank 0's state to every rank, and sets the weights. fresh: the replicas' state is zeros and need not be sent.
void ddp_broadcast_state(Ddp* ddp, bool fresh);
void ddp_gather_state(Ddp* ddp);            // makes all arrays complete in the memory of every host
// Returns the arrays of a checkpoint, in host memory; "" is the weights that a user gets (OptimizerInfo::exchange).
std::vector<NamedArray> ddp_named_state(const Ddp* ddp);
// Exchanges, between steps, the weights that are trained with those that a user gets; a second call undoes it. Does
// nothing if the optimizer has only one kind of weights. Collective.
void ddp_exchange_weights(Ddp* ddp);

// The functions of a step, in the order of their calls; src/app/executor.cpp calls ddp_rewind. i is the number of a
// micro-batch of this rank.
void ddp_begin(Ddp* ddp, bool audited);     // audited: an audit will compare what this step adds
void ddp_rewind(Ddp* ddp);      // makes bucket 0 the next one: before each try to enqueue or capture the step's work
// Returns how many multiprocessors the kernels of micro-batch i leave to communication: the first one runs during the
// all-gather of the weights, and with overlap the last one during the reduction.
int ddp_spare_multiprocessors(const Ddp* ddp, int i);
void ddp_weights_needed(Ddp* ddp, int first, int last);     // the main stream waits for tensors [first, last)
float* ddp_grads(Ddp* ddp, int i);                          // (n)  gradient buffer of micro-batch i's replica
bool ddp_accumulates(const Ddp* ddp, int i);                // true if i is not its replica's first: "+=", not "="
void ddp_gradients_ready(Ddp* ddp, int first);              // tensors from `first` on are final; may start buckets
void ddp_sum_replicas(Ddp* ddp, int i, const StepState* step);      // after micro-batch i: adds complete replicas
void ddp_reduce_scatter(Ddp* ddp);                          // starts the other buckets; on a CPU waits for all buckets
void ddp_clip_grad_norm(Ddp* ddp, StepState* state, double* norm, double clip);     // see clip_scale
void ddp_update(Ddp* ddp, const StepState* state);          // updates this rank's slices
void ddp_all_gather_weights(Ddp* ddp);                      // gives all ranks all weights; see ddp_weights_needed

void ddp_settle(Ddp* ddp);      // the main stream waits for the communication stream

// Returns the seconds of this step's reduction and all-gather. exposed: those of the reduction after backward, and all
// of the all-gather. Call it once the host has the norm. A GPU reports the previous step's all-gather.
struct DdpTimes { double comm, exposed; };
DdpTimes ddp_times(Ddp* ddp);

}  // namespace BACKEND
