// ddp.h -- data parallelism: the gradients of all replicas meet in one fixed tree, each rank updates its slices, all
// get the weights.
//
// A step's micro-batches belong to R replicas; W ranks run R / W replicas each. The sum over replicas is one binary
// tree in fp32, whatever W is: first inside a rank, then across the ranks of a host, then across hosts.
//
//     replicas            0   1   2   3   4   5   6   7        R = 8
//     inside a rank        \ /     \ /     \ /     \ /         W = 2: levels 1 and 2 are sums of whole buffers
//                            \     /         \     /
//     across ranks              \_________/                    level 3: each rank reduces its slice of every bucket
//
// The arena is cut into buckets from its end, the order in which backward finishes. On the communication stream buckets
// are reduced in this order on every rank; with `overlap` each as soon as its last gradient is written:
//
//     compute   ...  backward of block 3 | block 2        | block 1        | ...
//     comm                                 [ bucket 0    ]  [ bucket 1    ]
//
// The update is between reduction and all-gather (ZeRO-1): a slice's owner has its state. Elementwise sums and rules
// give the same bits wherever buckets, slices or threads are cut, and a tensor with a rule for whole matrices is never
// cut: overlap and bucket sizes cannot change a bit. On a GPU the step's functions do not wait.
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

// With floatX = float the masters are the weights.
struct StateArray {
    std::string name;           // "" are the fp32 masters, the others are as OptimizerInfo::state
    Arena arena;                // the masters' is that of the weights; see state_layout
    float* host;                // all arena.n values, shared by the host's ranks, for checkpoints
    float* own;                 // what this rank updates: on a CPU the same memory, on a GPU its pieces, packed
    std::vector<Range> range;   // by piece: where it is in `host`
    std::vector<size_t> at;     // by piece: where it begins in `own`
};
// A part of this rank's slices: a tensor of the matrix rule, or a range without such a tensor.
struct Piece {
    int tensor;                 // -1: by the elementwise rule
    Range range;
};

struct DdpSettings {
    int replicas;                           // of the run, a power of two and a multiple of Comm::size
    int micro_batches;                      // of this rank in a step
    bool overlap;                           // reduce during backward
    std::string reduce;                     // how replicas meet: a name of src/ddp/reductions/list
    std::map<std::string, double> hyper;    // the reduction's options, by name
    double grad_clip;                       // for replicas that take steps of their own
    int64_t steps;                          // of the run: such replicas meet after the last one
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
    bool meets;                             // in this step; false only with replicas that take steps of their own
    std::vector<Ddp> replicas;              // this rank's, if they do
    double norm;                            // largest norm of their gradients in this step
    std::vector<Bucket> buckets;            // from the arena's end to its start
    std::vector<Piece> pieces;              // from its start to its end
    Transport transport;
    floatX* weights;                        // (n)  the transport's
    std::vector<float*> grads;              // log2(own_replicas) + 1 buffers of (n), the transport's first
    std::vector<float*> kept;               // by own replica: bucket 0 before it was added; empty: no audit is due
    std::vector<StateArray> state;          // masters first
    std::vector<StateArray> replica_state;  // host: (replicas, arena.n), of which a host has those of its replicas
    Rates* rates;                           // (n / kUnit)  by unit, where kernels can read it
    void* work;                             // of the matrix rule
    StepState* still;                       // zeros, for a stage that belongs to no step
    Stream stream;                          // communication
    int64_t steps;                          // begun
    size_t next;                            // first bucket of this step that is not on the stream yet
    struct Events {                         // [0]: of this step; [1]: of the last one, whose all-gather may end in this
        Event computed, updated;            // after this rank's backward, after its update
        std::vector<Event> begin, end, gathered;        // by bucket: reduction begins, ends; gather ends
    } marks[2];
    std::vector<Event> batch_done;          // of each micro-batch: a GPU's progress, while the host waits
    std::vector<Event> events;              // all of them
};

void ddp_create(Ddp* ddp, Comm* comm, const Arena* arena, const OptimizerInfo* optimizer, const DdpSettings& settings);
void ddp_destroy(Ddp* ddp);
size_t ddp_work_bytes(const Ddp* ddp);      // work space that the optimizer needs for the pieces

// ---- the state, of masters, optimizer and replicas: state.cpp
void ddp_create_state(Ddp* ddp);
StateArray ddp_describe_state(const Ddp* ddp, const std::string& name, const Arena& arena);     // without memory
void ddp_first_state(Ddp* ddp);             // copies the weights, in state[0].host, to arrays that start from them
// Gives every rank rank 0's state, and sets the weights. fresh: that of replicas is zeros on all.
void ddp_broadcast_state(Ddp* ddp, bool fresh);
void ddp_gather_state(Ddp* ddp);            // makes all arrays complete: of replicas on rank 0's host, others on each
// Returns the state as checkpoints have it: "" are the weights that a user gets (OptimizerInfo::exchange).
std::vector<NamedArray> ddp_named_state(const Ddp* ddp);
// Between steps: the weights become those that a user gets, and the next call makes them those that are trained again.
// Does nothing if they are the same. Collective.
void ddp_exchange_weights(Ddp* ddp);

// The step, in this order; src/app/executor.cpp calls the two that prepare a launch. i counts this rank's
// micro-batches.
void ddp_begin(Ddp* ddp, int64_t step);
void ddp_rewind(Ddp* ddp);      // makes bucket 0 the next one: before each try to enqueue or capture the step's work
// Returns how many multiprocessors micro-batch i's kernels leave to communication: the first runs beside the all-gather
// of the weights, the last beside the reduction.
int ddp_spare_multiprocessors(const Ddp* ddp, int i);
void ddp_weights_needed(Ddp* ddp, int first, int last);     // the main stream waits for the weights of [first, last)
float* ddp_grads(Ddp* ddp, int i);                          // (n)  the buffer of micro-batch i's replica
floatX* ddp_weights(Ddp* ddp, int i);                       // (n)  the weights that it trains
bool ddp_accumulates(const Ddp* ddp, int i);                // true if i is not its replica's first: "+=", not "="
void ddp_gradients_ready(Ddp* ddp, int first);              // tensors from `first` on are final: starts their buckets
void ddp_sum_replicas(Ddp* ddp, int i, const StepState* step);      // after micro-batch i: adds complete replicas
void ddp_reduce_scatter(Ddp* ddp);                          // starts the other buckets; a CPU waits for all of them
void ddp_clip_grad_norm(Ddp* ddp, StepState* state, double* norm, double clip);     // see clip_scale
void ddp_update(Ddp* ddp, const StepState* state);          // updates this rank's slices
void ddp_all_gather_weights(Ddp* ddp);                      // gives all ranks all weights; see ddp_weights_needed

void ddp_settle(Ddp* ddp);      // the main stream waits for the communication stream

// ---- measures and checks: checks.cpp

// Returns the seconds of this step's reduction and all-gather, and how many are exposed: the reduction's after backward
// and all of the all-gather's. The norm must be there. A GPU reports the all-gather of the step before.
struct DdpTimes { double comm, exposed; };
DdpTimes ddp_times(Ddp* ddp);

uint64_t ddp_hash_weights(const Ddp* ddp);

// The next reduction keeps bucket 0 of each replica as it enters the tree. After it, ddp_wrong_sum adds them again, by
// plain loops, and compares with what the update has used. It returns the first element of this rank's slice that
// differs; "": none, or nothing was kept. A change of the sum where ranks meet is found so: it depends on the ranks.
// Collective. With --reduce nccl nothing is kept.
void ddp_keep_replicas(Ddp* ddp);
std::string ddp_wrong_sum(Ddp* ddp);
// Tests only: damages one of n numbers in device memory where common.h's fault hook asks for it.
void ddp_fault(Ddp* ddp, const char* point, float* numbers, size_t n);

}  // namespace BACKEND
