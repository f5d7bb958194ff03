// comm.h -- the ranks of a job: finding each other, small messages, shared memory, bytes between hosts, and noticing that one is gone.
//
// Nothing here knows tensors. All functions are collective unless said: every rank calls them in the same order. None can
// hang: a lost rank (its control connection closes) or one that shows no progress for `timeout` seconds ends every process
// of the job with one line that names it, exit code 69. No MPI library is needed: launchers only start processes and set variables.
//
//     control plane   every rank holds a connection to rank 0: Unix socket on one host (peer's uid checked, no port), TCP with
//                     a proof of the job's secret (HMAC-SHA256 over nonces) between hosts. Watched by a thread.
//     data plane      one host: shared memory (a memfd passed over the Unix socket: nothing to leak). Between hosts: TCP
//                     connections between the ranks of equal local rank.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

// Who this process is in its job, before it has talked to anybody.
struct World {
    int rank = 0, size = 1;
    int local_rank = 0, local_size = 1;  // on this host; -1 and 0: the launcher did not say, comm_create finds out
    std::string launcher = "none";       // "torchrun", "Open MPI", "srun", ..., for messages
    bool dies_with_parent = false;       // this process's parent is the launcher: when it is gone, so is the job
    std::string job;                     // the same on all ranks of a job, different for two jobs of one user
    std::string master_addr;             // where rank 0 listens; empty: all ranks are on this host
    int master_port = 0;                 // 0: taken from the job's name
};
// Reads the variables of torchrun, Open MPI, MVAPICH2, PMI, SLURM (inside a step), in this order; `get` is getenv in the program.
// A size without a rank, or two launchers that disagree, is an Error (2). LOCKSTEP_JOB names the job where a launcher does not.
World find_world(const std::function<const char*(const char*)>& get);
bool is_loopback(const std::string& host);

struct Comm {
    int rank = 0, size = 1;
    int host = 0, hosts = 1;              // hosts in order of their first rank
    int local_rank = 0, local_size = 1;   // rank = host * local_size + local_rank: each host has the same number of ranks, contiguous
    struct Peer { std::string host; int pid; };
    std::vector<Peer> peers;              // by rank
    std::string launcher;
    double timeout = 60;                  // seconds without progress after which a peer counts as stuck
    struct Impl;
    Impl* impl = nullptr;                 // sockets, segments, the watching thread
};

Comm* comm_create(const World& world, double timeout);   // rendezvous; 69 if ranks are missing, with their numbers
void comm_destroy(Comm* comm);                           // all ranks; nobody leaves before all are here

// This rank did something: (step, phase) is what messages about it will say; step -1 = as before. Local and cheap; call it often:
// a rank that the others wait for and that neither calls this nor a collective for `timeout` seconds (five times that until the
// second step begins) is taken for stuck.
void comm_progress(Comm* comm, int64_t step, const char* phase);
// From true to false this rank waits for others as inside a collective, and is not to blame; for_gpu: for its GPU, which may wait for
// theirs. Any thread; local and cheap.
void comm_waits(Comm* comm, bool waits, bool for_gpu = false);
void comm_moved(Comm* comm);                            // a thread beside the main one did something: comm_progress without a phase
// This rank ends with an error of its own: peers are told, so that they name this cause and not each other. Local. Does not
// return if the job is already ending for another reason: that line has been printed and the process is about to leave.
// True if rank 0 has taken the message and says it: one line for the job, not one per rank. False: the caller prints it.
// False too where the message is too long for the others: the caller has all of it.
bool comm_abort(Comm* comm, int code, const std::string& message);
// What the watching thread does last when it ends this process, while the main thread may be at anything. Local.
void comm_at_end(Comm* comm, std::function<void()> clean_up);

void comm_barrier(Comm* comm);
void comm_allgather(Comm* comm, void* out, const void* in, size_t bytes);      // out: size * bytes, in order of rank
void comm_broadcast(Comm* comm, void* data, size_t bytes, int root);
std::vector<std::string> comm_gather_text(Comm* comm, const std::string& text);   // every rank's text, on every rank

// Memory that the ranks of this host share: zeroed, page-aligned, the same bytes for all of them; lives as long as comm.
// An Error (1) with the size when there is not enough.
void* comm_shared(Comm* comm, size_t bytes, const char* what);

// Barrier among the ranks of this host. Channel 0 is the main thread's, channel 1 the reduction's: two threads of a process
// never share one.
void comm_local_barrier(Comm* comm, int channel);

// Between hosts, among the ranks with this local rank; data plane, one caller at a time. cut: hosts + 1 byte offsets into data.
//   scatter   part h of data goes to host h; part `host` of every other host's data arrives, `piece` bytes at a time: host h's in
//             room + h * piece (slot `host` is left alone). When all have sent bytes [at, at + n) of it, arrived(at, n) is called: the
//             room is theirs until it returns
//   gather    part `host` of data goes to all other hosts, their parts arrive in place
using Arrived = std::function<void(size_t at, size_t n)>;
void comm_hosts_scatter(Comm* comm, const void* data, const size_t* cut, void* room, size_t piece, const Arrived& arrived);
void comm_hosts_gather(Comm* comm, void* data, const size_t* cut);
