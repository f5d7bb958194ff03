// comm.h -- the ranks of a job find each other, exchange messages, share memory and notice that one
// is lost.
//
// Every rank calls the functions that take a Comm in the same order, except those marked Local, and
// one after another: a reduction's thread calls none while another thread does. None can hang: if a
// rank is lost (its control connection closes) or makes no progress for `timeout` seconds, every
// process of the job prints one line that names that rank and exits with kExitPeer.
//
//     control   a connection of each rank to rank 0, which a thread watches: a Unix socket on one
//               host, else TCP
//     data      shared memory within a host; between hosts, TCP connections of ranks that have equal
//               local ranks
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

struct Error;                           // src/base/common.h

// What the launcher's environment variables say about this process. It is known before any
// connection.
struct World {
    int rank = 0, size = 1;
    std::string launcher = "none";      // "torchrun", "--np", "Open MPI", "srun", ...
    std::string variables;              // the variables that gave rank and size,
                                        // "RANK=1 WORLD_SIZE=2"
    std::string assumed;                // why all ranks are assumed to be on this host; empty:
                                        // nothing is assumed
    bool dies_with_parent = false;      // the rank must end with its parent: the launcher, or a
                                        // script that it started
    int starter = 0;                    // pid of the launcher's process that started this host's
                                        // ranks; 0: unknown
    std::string job;                    // equal on all ranks of a job, different for two
                                        // jobs of one user
    std::string master_addr;            // where rank 0 listens; empty: all ranks are on this host
    int master_port = 0;                // 0: derived from the job's name
};
// Reads the variables of torchrun, Open MPI, PMI and srun; the first that is found counts.
// LOCKSTEP_JOB, if set, is the job's name. kExitUsage: a size without a rank, a rank without a
// size, or two launchers that disagree. get: getenv, except in tests.
World find_world(const std::function<const char*(const char*)>& get);
bool is_loopback(const std::string& host);

// These two are for ranks that `--np N` has started (tools/launch.cpp, the supervisor). It sets
// LOCKSTEP_TRY, LOCKSTEP_OUT_DIR and LOCKSTEP_SUPERVISOR_FD, the number of a socket.
//
// In a restarted rank, to which the supervisor has given the run's folder: sets *out_dir to it and
// *resume to "auto", and returns true; the caller must then ignore --force.
bool follow_supervisor(std::string* out_dir, std::string* resume);
// On rank 0: sends the descriptor of the run's folder to the supervisor.
void give_folder(int folder);

struct Comm {
    int rank = 0, size = 1;
    int host = 0, hosts = 1;            // this host's number, in the order of their first ranks
    // rank = host * local_size + local_rank; local_size is equal on all hosts.
    int local_rank = 0, local_size = 1;
    struct Peer { std::string host; int pid; };
    std::vector<Peer> peers = {};       // by rank
    std::string launcher = "";
    double timeout = 60;                // a rank without progress for so many seconds is stuck
    struct Impl;
    Impl* impl = nullptr;
};

// Connects the ranks. kExitPeer names missing ranks.
Comm* comm_create(const World& world, double timeout);
// Prints an error that ends this rank before it has a Comm, and sends it to the other ranks, which
// then end, too. If rank 0 has the same error, only rank 0 prints it. Local.
void end_before_meeting(const World& world, const Error& error);
void comm_destroy(Comm* comm);          // waits for all ranks, disconnects

// Records the step and the phase in which this rank is; step -1: the step is unchanged. Local. A
// rank that others wait for counts as stuck if for `timeout` seconds it calls neither this nor
// comm_still_works nor a collective. The limit is 5 times that in phase "checkpoint", and until all
// ranks have begun a second step.
void comm_progress(Comm* comm, int64_t step, const char* phase);
void comm_still_works(Comm* comm);      // records progress in the same phase; any thread; Local
void comm_waiting(Comm* comm, bool waits);      // begins or ends a wait, which is not stuck; Local
// Tells the peers that this rank ends with an error. Returns true if rank 0 has printed the
// message, false if the caller must; does not return if the job is ending already. Local.
bool comm_abort(Comm* comm, int code, const std::string& message);
// Sets what the watching thread calls before it ends this process; the main thread may still run
// then. Local.
void comm_at_end(Comm* comm, std::function<void()> clean_up);

void comm_barrier(Comm* comm);
void comm_local_barrier(Comm* comm);    // of this host's ranks
void comm_allgather(Comm* comm, void* out, const void* in, size_t bytes);   // out: (size, bytes)
// Returns the first text, by rank, that is not empty.
std::string comm_first_text(Comm* comm, std::string text);

// Returns zeroed, page-aligned memory that this host's ranks share. It is never freed.
// kExitOther: there is too little.
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

// Returns how many threads this rank gets: `wanted`; if that is 0, its share of the host's
// CPUs, or less if OMP_NUM_THREADS or SLURM_CPUS_PER_TASK allows less. Warns if the host's
// ranks have more threads than CPUs.
int rank_threads(Comm* comm, int wanted);

// These exchange data between hosts, among the ranks of equal local rank. Part h of data is the
// bytes [cut[h], cut[h + 1]).
//
//     scatter    sends part h of data to host h, and receives part `host` of the data of every
//                other host h: at most `piece` bytes at a time, at room + h * piece. Calls
//                arrived(at, n) when bytes [at, at + n) of the part have come from all hosts, and
//                overwrites them after that
//     gather     sends part `host` of data to the other hosts, and receives part h of host h
//     broadcast  sends data of rank 0 to the first rank of every other host; the other ranks do
//                nothing
using Arrived = std::function<void(size_t at, size_t n)>;
void comm_hosts_scatter(Comm* comm, const void* data, const size_t* cut, void* room, size_t piece,
                        const Arrived& arrived);
void comm_hosts_gather(Comm* comm, void* data, const size_t* cut);
void comm_hosts_broadcast(Comm* comm, void* data, size_t bytes);
