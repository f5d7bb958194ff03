// ddp.h -- data parallelism: the gradients of all replicas are added in one fixed tree, each rank
// updates its slices of the weights, and an all-gather gives all weights to all ranks.
//
// A step's micro-batches belong to R replicas; W ranks run R / W replicas each. The sum over
// replicas is one binary tree in fp32, whatever W is: first inside a rank, then across the
// ranks of a host, then across hosts.
//
//     replicas            0   1   2   3   4   5   6   7      R = 8, W = 2
//     inside a rank        \ /     \ /     \ /     \ /       levels 1 and 2: each rank adds its own
//                            \     /         \     /
//     across ranks              \_________/                  level 3: each rank adds in its slices
//
// When a replica of a rank is complete, the main stream adds whole buffers, as far as the tree
// allows. The sums that need the rank's last replica are made on the communication stream, bucket
// by bucket.
//
// The arena is cut into buckets from its end to its start, the order in which backward finishes
// gradients. Every rank reduces them in this order on its communication stream; with `overlap`,
// each as soon as its last gradient is written:
//
//     compute   ...  backward of block 3 | block 2        | block 1        | ...
//     comm                                 [ bucket 0    ]  [ bucket 1    ]
//
// The update is between reduction and all-gather (ZeRO-1): the rank that owns a slice updates its
// state. Elementwise sums and rules give the same bits wherever buckets, slices or threads are cut.
// Muon has a rule for whole matrices, the matrix rule; the tensors that it updates are never cut.
// So overlap and bucket sizes cannot change a bit. On a GPU the step's functions do not wait.
#pragma once
#include <map>
#include <memory>
#include "kernels/kernels.h"
#include "src/comm/comm.h"

struct Arena;                   // src/base/arena.h
struct NamedArray;
struct OptimizerInfo;           // optimizers/optimizer.h

namespace BACKEND {

struct ReductionRule;           // src/ddp/reductions/reduction.h

constexpr size_t kBucketBytes = 25 << 20;       // as PyTorch's
constexpr Stream kMain = nullptr;               // the main stream, on which models work

struct Range {                  // elements of the arena; multiples of kUnit
    size_t begin, end;
    size_t size() const { return end - begin; }
};

// A part of the arena that is reduced at once, cut into one slice per rank; some slices may be
// empty. They lie in the order (local rank 0: host 0, host 1, ...), (local rank 1: host 0, host 1,
// ...), ...; with 2 hosts of 4 ranks each:
//
//     own(rank)      0       4       1       5       2       6       3       7
//                |-------|-------|-------|-------|-------|-------|-------|-------|
//     local(l)           0               1               2               3
//
// Ranks 0 to 3 are on host 0. Local rank l of each host first sums local(l) over its host's ranks,
// then its own slice over the hosts. Let slice r be the slice of rank r. Ranks 1 and 5 each sum
// slices 1 and 5 over the ranks of their own host. Then rank 1 sends its sum of slice 5 to rank 5,
// and gets rank 5's sum of slice 1.
struct Bucket {
    Comm* comm;
    // (ranks + 1) where slices begin and end, in elements of the arena.
    std::vector<size_t> cut;
    Range whole() const { return {cut.front(), cut.back()}; }
    Range local(int l) const { return {cut[l * comm->hosts], cut[(l + 1) * comm->hosts]}; }
    Range own(int rank) const {
        const int i = rank % comm->local_size * comm->hosts + rank / comm->local_size;
        return {cut[i], cut[i + 1]};
    }
    // Returns the (hosts + 1) byte offsets in an array between which the slices in
    // local(local_rank) lie, host by host. For arrays in host memory: see gather_hosts.
    std::vector<size_t> host_cuts(size_t unit_bytes) const;
};

template <class T> T* device(size_t n, const char* what) {
    return static_cast<T*>(device_alloc(n * sizeof(T), what));
}

// ---- how slices of gradients and weights move between ranks
//
//     transport_host.cpp   CPUs: shared memory between the ranks of a host, TCP between hosts
//     transport_gpu.cpp    GPUs: NCCL
//
// Both add by tree_reduce, so bits are equal (except --reduce nccl). Every rank makes the same
// calls in the same order.

struct Transport {
    Comm* comm;
    size_t n;                   // number of elements in the arena
    bool nccl_sums = false;     // --reduce nccl: NCCL adds, in its own order
    std::string transport = {}; // "shared memory", "NCCL 2.28.3"
    // (n) the same array as Ddp::grads[0]: first the gradients of this rank's first replica, then
    // the sum over this rank's replicas, then, in its own slices, the sum over all replicas. On
    // CPUs other ranks read it.
    float* gradients = nullptr;
    floatX* weights = nullptr;  // (n)          on CPUs one array per host, which its ranks share
    // (n / kUnit) sum of squares of each unit of the reduced gradient; shared like weights.
    float* partials = nullptr;
    float* received = nullptr;  // room for the gradients from other ranks
    // How many of this GPU's multiprocessors NCCL uses while it moves data.
    int multiprocessors = 0;
    struct NcclCommTag* ranks = nullptr;    // NCCL's communicator, or null
};

// Selects this rank's GPU (local_rank modulo the number of GPUs) and binds threads to CPUs near it.
// Call it before anything uses a GPU. kExitUsage if ranks would share a GPU, unless
// LOCKSTEP_SHARE_GPU is set, for tests. Collective.
void transport_place(Comm* comm);
// Allocates the arrays and connects the ranks. x has comm, n and nccl_sums.
void transport_create(Transport* x, const std::vector<Bucket>& buckets);
void transport_destroy(Transport* x);
// Adds the bucket's gradients of all ranks by add_terms with a balanced tree: first
// local(local_rank) over the host's ranks, then own(rank) over the hosts.
void transport_reduce(Transport* x, const Bucket& bucket, Stream stream);
// Gives every rank's own slice of `array` to all ranks; on CPUs these have it after
// transport_finish.
void transport_gather(Transport* x, void* array, size_t unit_bytes, const Bucket& bucket,
                      Stream stream);
void transport_finish(Transport* x);    // after the last bucket: a CPU waits for its host's ranks
void transport_check(Transport* x);     // kExitPeer if NCCL reports an asynchronous error. Local
// Writes the sum of terms to the range `to` of x->gradients. terms[i] points to the first element
// of `to` in term i. last: the sum covers all replicas; the squares of its units go to partials.
void add_terms(Transport* x, Tree tree, Range to, const std::vector<const float*>& terms, bool last,
               Stream stream);

// ---- the data of a run

// The fp32 masters or one array of state. With floatX = float the masters are the weights
// themselves.
struct StateArray {
    std::string name;           // "": the masters; others are named in OptimizerInfo::state
    // Where tensors lie in the array: for masters as in the weights; see state_layout.
    std::shared_ptr<const Arena> arena;
    // (arena->n) all values, shared by the host's ranks; checkpoints use this array.
    float* host;
    // What this rank updates: on a CPU `host` itself, on a GPU its pieces, packed.
    float* own;
    std::vector<Range> range;   // by piece: where it is in `host`
    std::vector<size_t> at;     // by piece: where it begins in `own`
};
// A part of this rank's slices that one call updates. With AdamW every piece is a range. Muon also
// has pieces that are one tensor, which its matrix rule updates.
struct Piece {
    int tensor;                 // its number in the arena; -1: the elementwise rule updates range
    Range range;
};

struct DdpSettings {
    int replicas;               // of the run, a power of two and a multiple of Comm::size
    int micro_batches;          // of this rank in a step
    bool overlap;               // reduce during backward
    std::string reduce;         // how replicas are added: a name of src/ddp/reductions/list
    std::map<std::string, double> hyper;        // the reduction's options, by name
};

struct Ddp : DdpSettings, Transport {
    const Arena* arena;
    const size_t* offset;                   // (tensors + 1) where each tensor begins in the arena
    const OptimizerInfo* optimizer;
    int own_replicas;                       // of this rank
    std::vector<Bucket> buckets;            // from the arena's end to its start
    std::vector<Piece> pieces;              // from the arena's start to its end
    // log2(own_replicas) + 1 buffers of (n); the first one is Transport::gradients.
    std::vector<float*> grads;
    std::vector<StateArray> state;          // masters first
    Rates* rates;                           // (n / kUnit)  by unit, where kernels can read it
    Stream stream;                          // the communication stream
    int64_t steps;                          // number of steps that this process has begun
    size_t next;                            // this step's first bucket that is not on the stream
    struct Events {
        Event computed, updated;            // after this rank's backward, after its update
        // By bucket: the reduction begins and ends, the all-gather ends.
        std::vector<Event> begin, end, gathered;
    } now, before;      // of this step, and of the previous one, whose all-gather may still run
    // By micro-batch: backward has ended. The host thread, which waits, sees progress by it.
    std::vector<Event> batch_done;
    std::vector<Event> events;              // all events above, for ddp_destroy
    // A step of AdamW with the default reduction needs none of what follows.
    void* work;                             // work space of the matrix rule (Muon's)
    const ReductionRule* rule;              // what a reduction does with each replica's gradient
    // (replicas, n) each, in host memory; a host updates the rows of its own replicas.
    std::vector<float*> replica_state;
    // An audit comes after this step: it copies bucket 0 of each replica of this rank to `kept`, in
    // host memory, and reduces behind backward.
    bool audited;
    std::vector<float> kept;
    StepState* still;                       // zeros, for a stage that belongs to no step
};

// ---- the functions of a step, in the order of their calls: ddp.cpp
//
// i is the number of a micro-batch of this rank. src/app/executor.cpp calls ddp_rewind.

void ddp_begin(Ddp* ddp, bool audited);     // audited: an audit will compare what this step adds
// Makes bucket 0 the next one, and sets how many multiprocessors the first micro-batch spares.
// Called before each try to enqueue or capture the step's work.
void ddp_rewind(Ddp* ddp);
// Makes the main stream wait until the weights of tensors [first, last) have arrived.
void ddp_weights_needed(Ddp* ddp, int first, int last);
float* ddp_grads(Ddp* ddp, int i);  // returns the gradient buffer (n) of micro-batch i's replica
// Returns true if i is not the first micro-batch of its replica: gradients are then "+=", not "=".
bool ddp_accumulates(const Ddp* ddp, int i);
// Says that the gradients of tensors from `first` on are final. May start buckets.
void ddp_gradients_ready(Ddp* ddp, int first);
// If i was its replica's last micro-batch, adds the buffers whose sums are then complete, unless it
// was the rank's last replica, too. Also sets how many multiprocessors the next one spares.
void ddp_sum_replicas(Ddp* ddp, int i, const StepState* step);
void ddp_reduce_scatter(Ddp* ddp);      // starts the other buckets; on a CPU waits for all buckets
// Computes the norm of the gradients and the factor that clips them: see clip_scale.
void ddp_clip_grad_norm(Ddp* ddp, StepState* state, double* norm, double clip);
void ddp_update(Ddp* ddp, const StepState* state);      // updates this rank's slices
void ddp_all_gather_weights(Ddp* ddp);  // gives all weights to all ranks: see ddp_weights_needed
// Makes the main stream wait for the communication stream. Kernels then spare no multiprocessor.
void ddp_settle(Ddp* ddp);

// ---- what comes before and between the steps: create.cpp

void ddp_create(Ddp* ddp, Comm* comm, const Arena* arena, const OptimizerInfo* optimizer,
                const DdpSettings& settings);
void ddp_destroy(Ddp* ddp);
// Gives rank 0's state to every rank, and sets the weights. fresh: the weights are a new run's.
// Arrays that start from the weights are then copied from them, and the replicas' state is zeros
// and need not be sent.
void ddp_broadcast_state(Ddp* ddp, bool fresh);
void ddp_gather_state(Ddp* ddp);            // makes all arrays complete in the memory of every host
// Returns the arrays of a checkpoint, in host memory; "" is the weights that a user gets
// (OptimizerInfo::exchange).
std::vector<NamedArray> ddp_named_state(const Ddp* ddp);
// Exchanges, between steps, the weights that are trained with those that a user gets; a second call
// undoes it. Does nothing if the optimizer has only one kind of weights. Collective.
void ddp_exchange_weights(Ddp* ddp);

// Returns the seconds of this step's reduction and all-gather. exposed: those of the reduction
// after backward, and all of the all-gather. Call it once the host has the norm. A GPU reports the
// previous step's all-gather.
struct DdpTimes { double comm, exposed; };
DdpTimes ddp_times(Ddp* ddp);

// Updates a piece by a stage of the optimizer; stage 0 uses the matrix rule for its tensors. It is
// in ddp.cpp.
void ddp_update_piece(Ddp* ddp, size_t piece, const StepState* step, int stage);

// ddp.cpp calls these two, which are in create.cpp, too.
//
// Does what the reduction's rule and an audit need, once the gradient of one of this rank's
// replicas is complete.
void ddp_replica_done(Ddp* ddp, int replica, const StepState* step);
// Runs the optimizer's rule for a whole matrix, tensor number `tensor`. Returns the bytes of work
// space that it needs; work = null: it only returns them.
size_t ddp_update_matrix(const Ddp* ddp, const Update& u, int tensor, void* work);

// ---- not needed to follow a step of GPUs: transport_host.cpp and create.cpp call it

// Exchanges the bucket's slices with other hosts, in an array in host memory that a host's ranks
// share. unit_bytes: of kUnit elements.
void gather_hosts(const Bucket& bucket, void* array, size_t unit_bytes);

}  // namespace BACKEND
