// comm.h -- the ranks of a job find each other, exchange messages, share memory and notice that one is gone.
//
// Every rank calls these functions in the same order, unless one is called Local. None can hang: if a rank is lost (its
// control connection closes) or makes no progress for `timeout` seconds, every process of the job prints one line that
// names it and exits with 69.
//
//     control   a connection of each rank to rank 0, watched by a thread: Unix sockets on one host, TCP between hosts
//     data      on a host shared memory; between hosts TCP connections of the ranks of equal local rank
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

// What the launcher says about this process, before it has talked to any other.
struct World {
    int rank = 0, size = 1;
    std::string launcher = "none";      // "torchrun", "Open MPI", "srun", ..., for messages
    bool dies_with_parent = false;      // the parent is the launcher: without it there is no job
    std::string job;                    // equal on all ranks of a job, different for two jobs of one user
    std::string master_addr;            // where rank 0 listens; empty: all ranks are on this host
    int master_port = 0;                // 0: derived from the job's name
};
// Reads the variables of torchrun, Open MPI, MVAPICH2, PMI and srun, in this order. get: getenv in the program.
// Error 2: a size without a rank, two launchers that disagree. LOCKSTEP_JOB names the job.
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

Comm* comm_create(const World& world, double timeout);      // the ranks meet; 69 with their numbers if some are missing
void comm_destroy(Comm* comm);                              // returns when all ranks are here

// Says what this rank does now; step -1: as before. Local. A rank that others wait for counts as stuck when it calls
// neither this nor a collective for `timeout` seconds (five times that until its second step).
void comm_progress(Comm* comm, int64_t step, const char* phase);
void comm_moved(Comm* comm);                    // another thread made progress; Local
void comm_waits(Comm* comm, bool waits);        // from true to false this rank waits and is not to blame; Local
// Tells the peers that this rank ends with an error. Returns true if rank 0 prints the message, false if the caller
// must; does not return if the job is ending already. Local.
bool comm_abort(Comm* comm, int code, const std::string& message);
// Sets what the watching thread does last when it ends this process, beside the main thread. Local.
void comm_at_end(Comm* comm, std::function<void()> clean_up);

void comm_barrier(Comm* comm);
void comm_local_barrier(Comm* comm, int channel);   // of this host's ranks; 0: the main thread's, 1: the reduction's
void comm_allgather(Comm* comm, void* out, const void* in, size_t bytes);   // out: (size, bytes)
void comm_broadcast(Comm* comm, void* data, size_t bytes, int root);
std::string comm_first_text(Comm* comm, std::string text);  // of the first rank whose text is not empty

// Returns zeroed, page-aligned memory that the ranks of this host share, for good. Error 1: the machine has less.
void* comm_shared(Comm* comm, size_t bytes, const char* what);
template <class T> T* comm_shared(Comm* comm, size_t n, const char* what) {
    return static_cast<T*>(comm_shared(comm, n * sizeof(T), what));
}

// Returns this rank's threads: `wanted`, or if 0 its share of the host's CPUs. Warns of more threads than CPUs.
int rank_threads(Comm* comm, int wanted);

// Between hosts, among the ranks of equal local rank; one thread calls these. cut: (hosts + 1) byte offsets into data.
//   scatter   sends part h of data to host h and receives part `host` of the others' data in pieces, host h's at room +
//             h * piece; arrived(at, n) is called when bytes [at, at + n) are there from all, and uses them at once.
//   gather    sends part `host` of data to the other hosts and receives theirs in place.
using Arrived = std::function<void(size_t at, size_t n)>;
void comm_hosts_scatter(Comm* comm, const void* data, const size_t* cut, void* room, size_t piece,
                        const Arrived& arrived);
void comm_hosts_gather(Comm* comm, void* data, const size_t* cut);
