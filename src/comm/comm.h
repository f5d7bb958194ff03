// comm.h -- the ranks of a job find each other, exchange messages, share memory and notice that one is lost.
//
// Every rank calls these functions in the same order, except those marked Local. None can hang: if a rank is lost (its
// control connection closes) or makes no progress for `timeout` seconds, every process of the job prints one line that
// names it and exits with kExitPeer.
//
//     control   a connection of each rank to rank 0, which a thread watches: a Unix socket on one host, else TCP
//     data      shared memory within a host; TCP between the ranks of equal local rank on different hosts
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

struct Error;                           // src/base/common.h

// What the launcher says about this process, before it has talked to any other.
struct World {
    int rank = 0, size = 1;
    std::string launcher = "none";      // "torchrun", "Open MPI", "srun", ..., for messages
    std::string variables;              // the variables that gave rank and size, "RANK=1 WORLD_SIZE=2"
    std::string assumed;                // why all ranks are assumed to be on this host; empty: it is known
    bool dies_with_parent = false;      // the rank must end with its parent, the launcher or a script of it
    int starter = 0;                    // pid of the launcher's process that started the ranks of this host
    bool restarts_ranks = false;        // the launcher may restart a rank while the others wait for it
    std::string job;                    // equal on all ranks of a job, different for two jobs of one user
    std::string master_addr;            // where rank 0 listens; empty: all ranks are on this host
    int master_port = 0;                // 0: derived from the job's name
};
// Reads the variables of torchrun, Open MPI, MVAPICH2, Horovod, Flux, PMI and srun, in this order. get: getenv, except
// in tests. kExitUsage: a size without a rank, a rank without a size, two launchers that disagree. LOCKSTEP_JOB names
// the job.
World find_world(const std::function<const char*(const char*)>& get);
bool is_loopback(const std::string& host);

struct Comm {
    int rank = 0, size = 1;
    int host = 0, hosts = 1;            // number of this host, in order of the hosts' first ranks
    int local_rank = 0, local_size = 1; // rank = host * local_size + local_rank; local_size is equal on all hosts
    struct Peer { std::string host; int pid; };
    std::vector<Peer> peers = {};       // by rank
    std::string launcher = "";
    double timeout = 60;                // seconds without progress after which a rank counts as stuck
    struct Impl;
    Impl* impl = nullptr;
};

Comm* comm_create(const World& world, double timeout);      // connects the ranks; kExitPeer names missing ones
// Prints an error that ends this rank before it has a Comm, and sends it to the other ranks, which then end, too. If
// rank 0 has the same error, only rank 0 prints it.
void end_before_meeting(const World& world, const Error& error);
void comm_destroy(Comm* comm);                              // waits for all ranks, disconnects

// Records what this rank does now; step -1: the step stays. Local. A rank that others wait for counts as stuck if it
// calls neither this nor a collective for `timeout` seconds. The limit is 5 times that in phase "checkpoint", and until
// all ranks have begun a second step.
void comm_progress(Comm* comm, int64_t step, const char* phase);
void comm_still_works(Comm* comm);              // records that another thread has made progress; Local
void comm_waiting(Comm* comm, bool waits);      // begins or ends a wait, in which this rank is not stuck; Local
// Tells the peers that this rank ends with an error. Returns true if rank 0 prints the message, false if the caller
// must; does not return if the job is ending already. Local.
bool comm_abort(Comm* comm, int code, const std::string& message);
// Sets what the watching thread calls before it ends this process; the main thread may still run then. Local.
void comm_at_end(Comm* comm, std::function<void()> clean_up);

void comm_barrier(Comm* comm);
void comm_local_barrier(Comm* comm, int channel);   // of this host's ranks; channel 0: main threads, 1: reduction
void comm_allgather(Comm* comm, void* out, const void* in, size_t bytes);   // out: (size, bytes)
void comm_broadcast(Comm* comm, void* data, size_t bytes, int root);
std::string comm_first_text(Comm* comm, std::string text);  // the text of the first rank that has one

// Returns zeroed, page-aligned memory that this host's ranks share. It is never freed. kExitOther: there is too little.
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

// Returns how many threads this rank gets: `wanted`, or if that is 0, its share of the host's CPUs. Warns if the ranks
// of the host have more threads than CPUs.
int rank_threads(Comm* comm, int wanted);

// These exchange data between hosts, among the ranks of equal local rank. One thread at a time may call them. Part h of
// data is the bytes [cut[h], cut[h + 1]).
//   scatter   sends part h of data to host h, and receives part `host` of the data of every other host h, in pieces, at
//             room + h * piece. Calls arrived(at, n) when bytes [at, at + n) of the part have come from all hosts; then
//             it reuses room.
//   gather    sends part `host` of data to the other hosts, and receives their parts into data.
using Arrived = std::function<void(size_t at, size_t n)>;
void comm_hosts_scatter(Comm* comm, const void* data, const size_t* cut, void* room, size_t piece,
                        const Arrived& arrived);
void comm_hosts_gather(Comm* comm, void* data, const size_t* cut);
