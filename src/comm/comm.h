// comm.h -- the ranks of a job find each other, exchange messages, share memory and notice that one is gone.
//
// Every rank calls these functions in the same order, except those marked Local. None can hang: if a rank is lost (its
// control connection closes) or makes no progress for `timeout` seconds, every process of the job prints one line that
// names it and exits with kExitPeer.
//
//     control   a connection of each rank to rank 0, watched by a thread: Unix sockets on one host, TCP between hosts
//     data      on a host shared memory; between hosts TCP connections of the ranks of equal local rank
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

struct Error;                           // base/common.h

// What the launcher says about this process, before it has talked to any other.
struct World {
    int rank = 0, size = 1;
    std::string launcher = "none";      // "torchrun", "Open MPI", "srun", ..., for messages
    std::string says;                   // the variables that were believed, "RANK=1 WORLD_SIZE=2"
    std::string assumed;                // why all ranks are taken to be on this host, if nobody says so
    bool dies_with_parent = false;      // the parent is the launcher, or a script of it: without it there is no job
    int starter = 0;                    // the process of the launcher that started the ranks of this host
    bool replaces = false;              // the launcher starts ranks again while others wait for them
    std::string job;                    // equal on all ranks of a job, different for two jobs of one user
    std::string master_addr;            // where rank 0 listens; empty: all ranks are on this host
    int master_port = 0;                // 0: derived from the job's name
};
// Reads the variables of torchrun, Open MPI, MVAPICH2, Horovod, Flux, PMI and srun, in this order. get: getenv in the
// program. kExitUsage: a size without a rank, a rank without a size, two launchers that disagree. LOCKSTEP_JOB names
// the job.
World find_world(const std::function<const char*(const char*)>& get);
bool is_loopback(const std::string& host);

struct Comm {
    int rank = 0, size = 1;
    int host = 0, hosts = 1;            // in order of the hosts' first ranks
    int local_rank = 0, local_size = 1; // rank = host * local_size + local_rank; every host has as many ranks
    struct Peer { std::string host; int pid; };
    std::vector<Peer> peers = {};       // by rank
    std::string launcher = "";
    double timeout = 60;                // seconds without progress after which a rank counts as stuck
    struct Impl;
    Impl* impl = nullptr;
};

Comm* comm_create(const World& world, double timeout);      // connects the ranks; kExitPeer names missing ones
// Prints an error that ends this rank before it had a Comm, and tells the other ranks, which end with it. Rank 0 prints
// for those that have the same error.
void end_before_meeting(const World& world, const Error& error);
void comm_destroy(Comm* comm);                              // waits for all ranks, disconnects

// Says what this rank does now; step -1: as before. Local. A rank that others wait for is stuck if it calls neither
// this nor a collective for `timeout` seconds (5 times that in phase "checkpoint" and until all are at a second step).
void comm_progress(Comm* comm, int64_t step, const char* phase);
void comm_moved(Comm* comm);                    // another thread made progress; Local
void comm_waits(Comm* comm, bool waits);        // between true and false this rank waits and is not blamed; Local
// Tells the peers that this rank ends with an error. Returns true if rank 0 prints the message, false if the caller
// must; does not return if the job is ending already. Local.
bool comm_abort(Comm* comm, int code, const std::string& message);
// Sets what the watching thread calls when it ends this process; the main thread may still run. Local.
void comm_at_end(Comm* comm, std::function<void()> clean_up);

void comm_barrier(Comm* comm);
void comm_local_barrier(Comm* comm, int channel);   // of this host's ranks; 0: the main thread's, 1: the reduction's
void comm_allgather(Comm* comm, void* out, const void* in, size_t bytes);   // out: (size, bytes)
void comm_broadcast(Comm* comm, void* data, size_t bytes, int root);
std::string comm_first_text(Comm* comm, std::string text);  // of the first rank whose text is not empty

// Returns zeroed, page-aligned memory that the ranks of this host share, for good. kExitOther: the machine has less.
void* comm_shared(Comm* comm, size_t bytes, const char* what);
template <class T> T* comm_shared(Comm* comm, size_t n, const char* what) {
    return static_cast<T*>(comm_shared(comm, n * sizeof(T), what));
}

// Returns every rank's value, by rank. Collective.
template <class T> std::vector<T> comm_gather(Comm* comm, const T& mine) {
    std::vector<T> all(size_t(comm->size));
    comm_allgather(comm, all.data(), &mine, sizeof mine);
    return all;
}

// Returns this rank's threads: `wanted`, or if 0 its share of the host's CPUs. Warns of more threads than CPUs.
int rank_threads(Comm* comm, int wanted);

// Between hosts, among the ranks of equal local rank; one thread at a time. cut: (hosts + 1) byte offsets into data.
//   scatter   sends part h of data to host h and receives part `host` of the others' data in pieces, host h's at room +
//             h * piece; calls arrived(at, n) when all have sent bytes [at, at + n) of the part; then room is reused.
//   gather    sends part `host` of data to the other hosts and receives theirs in place.
using Arrived = std::function<void(size_t at, size_t n)>;
void comm_hosts_scatter(Comm* comm, const void* data, const size_t* cut, void* room, size_t piece,
                        const Arrived& arrived);
void comm_hosts_gather(Comm* comm, void* data, const size_t* cut);
