// rendezvous.h -- how ranks find each other and prove that they belong to the job. For src/comm,
// tools/launch.cpp and tests.
//
// Lower ranks listen; higher ranks connect, and try again until the deadline. A connection begins
// with three frames:
//
//     listener  -> a nonce
//     connector -> a Claim: its PeerInfo, the error with which it ends, if any, a nonce of its own,
//                  and the HMAC of the listener's nonce and these fields
//     listener  -> an Answer, once all ranks that it waits for have come: an error, if any, and the
//                  HMAC of the connector's nonce and that error; rank 0 then sends the PeerInfos of
//                  all ranks
//
// An error of one rank thus becomes the error of all: a listener that has one, or reads one in a
// Claim, answers with it all ranks that come in the next seconds. The key of the HMACs is the job's
// secret, name and size. On one host the sockets are abstract Unix sockets, and both sides check
// the other's user. Between hosts they are TCP sockets; without a secret only loopback is used. All
// that follows the frames is clear text, so the network between hosts must be private. A connection
// that does not prove that it belongs to the job never counts as a rank and delays no rank.
//
// Between hosts rank 0 listens at MASTER_ADDR and MASTER_PORT, also for data. Any other rank
// listens for the data connections of higher ranks at every interface (without a secret at
// loopback), at a port of LOCKSTEP_PORTS or, without that, at any. On one host each rank
// listens at a Unix socket of its own.
#pragma once
#include <array>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>
#include "src/base/common.h"
#include "src/base/file.h"
#include "src/comm/comm.h"

using Socket = Descriptor;
using Digest = std::array<uint8_t, 32>;

// Bytes that are yet to be sent or received.
struct Bytes {
    char* data;
    size_t size;
    Bytes(const void* data, size_t size) : data((char*)data), size(size) {}
};
// Sends (`out`) or receives what it can without waiting, and shortens *part by that. Returns 1 if
// it moved bytes, 0 if none, -1 if the connection closed or failed.
int move_some(int fd, bool out, Bytes* part);
// These send or receive all bytes. They return false if the connection closed, failed, or took
// longer than `seconds`.
bool move_all(int fd, bool out, Bytes part, double seconds);
inline bool send_all(int fd, const void* data, size_t bytes, double seconds) {
    return move_all(fd, true, {data, bytes}, seconds);
}
inline bool receive_all(int fd, void* data, size_t bytes, double seconds) {
    return move_all(fd, false, {data, bytes}, seconds);
}

// Receives a message if all of it has come. Returns 1 if so, 0 if not, -1 if the connection closed
// or failed.
int receive_message(int fd, void* data, size_t bytes);

// What a rank says about itself.
struct PeerInfo {
    int32_t rank, pid;
    int32_t memory;         // its descriptor of a memory file; a host's ranks map the file of
                            // their first rank
    uint32_t port;          // the port at which it listens for data, between hosts
    char address[48];       // address of its listener for data, as rank 0 sees it;
                            // empty: MASTER_ADDR
    char host[64];
    char host_id[160];      // equal on ranks that can share memory
};

struct Meeting : World {
    PeerInfo me = {};
    std::string key = {};
    uint64_t job_hash = 0;          // hash of the job's name; job_hash + rank tags the
                                    // rank's memory file
    bool has_secret = false, met = false;
    double deadline = 0;            // on the clock of now_seconds()
    std::vector<Socket> listeners = {};
    std::vector<PeerInfo> peers = {};       // by rank
    std::vector<Socket> control = {};       // on rank 0: by rank, [0] empty; elsewhere:
                                            // to rank 0 alone
};

// Connects all ranks with rank 0 within `patience` seconds. memory: see PeerInfo. kExitUsage: there
// is no secret, or two processes claim one rank; kExitPeer: ranks are missing, or not
// authenticated. error: the one with which this rank ends, if any; the others get it. Throws it, or
// that of another rank which came first.
Meeting meet_ranks(const World& world, int memory, double patience, const Error& error = {});
// Connects `ranks`, which ascend and include this one, with each other. Returns a socket
// for each, empty for this rank.
std::vector<Socket> meet_peers(const Meeting& meeting, const std::vector<int>& ranks);

// Returns the job's secret: LOCKSTEP_SECRET, or the content of LOCKSTEP_SECRET_FILE, which must be
// of mode 0600 or stricter and belong to this user or root (else kExitUsage). Empty: neither is
// set.
std::string job_secret();
Digest hmac_sha256(const std::string& key, const std::string& message);     // RFC 2104

// A message of one byte with room for one descriptor: rank 0 sends the supervisor the run's folder.
struct Gift {
    char byte = 0;
    iovec bytes = {&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message = {nullptr, 0, &bytes, 1, control, sizeof control, 0};
};
