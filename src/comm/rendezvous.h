// rendezvous.h -- how ranks find each other and prove that they belong to the job. For comm.cpp and tests.
//
// Lower ranks listen; higher ranks connect, and try again until the deadline. A connection begins with three frames:
//
//     listener  -> a nonce
//     connector -> a Claim: its PeerInfo, the error with which it ends or none, a nonce of its own, and the HMAC of the
//                  listener's nonce and all this
//     listener  -> an Answer, once all ranks that it waits for are there: an error or none, and the HMAC of the
//                  connector's nonce and this; rank 0 then sends the PeerInfos of all ranks
//
// An error of one rank thus becomes the error of all: a listener that has one, or reads one in a Claim, answers with
// it. The key of the HMACs is the job's secret, name and size. On one host the sockets are abstract Unix sockets, and
// both sides check the other's user. Between hosts they are TCP sockets, and without a secret only loopback is served.
// All that follows the frames is clear text, so the network between hosts must be private. A connection that does not
// prove that it is of the job never counts as a rank and delays no rank.
//
// Between hosts rank 0 listens at MASTER_ADDR and MASTER_PORT, also for data. Any other rank listens for the data of
// higher ranks at the address from which it reached rank 0, at a port of LOCKSTEP_PORTS. On one host each rank listens
// at a Unix socket of its own.
#pragma once
#include <array>
#include <string>
#include <unistd.h>
#include <vector>
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
// Sends (`out`) or receives what it can without waiting, and shortens *part by that. Returns 1 if it moved bytes, 0 if
// none, -1 if the connection closed or failed.
int move_some(int fd, bool out, Bytes* part);
// These send or receive all bytes. They return false if the connection closed, failed, or took longer than `seconds`.
bool move_all(int fd, bool out, Bytes part, double seconds);
inline bool send_all(int fd, const void* data, size_t bytes, double seconds) {
    return move_all(fd, true, {data, bytes}, seconds);
}
inline bool receive_all(int fd, void* data, size_t bytes, double seconds) {
    return move_all(fd, false, {data, bytes}, seconds);
}

// What a rank says about itself.
struct PeerInfo {
    int32_t rank, pid;
    int32_t memory;         // its descriptor of a memory file, which the ranks of its host map
    uint32_t port;          // the port at which it listens for data, between hosts
    int64_t began;          // when it began to meet, in ns since 1970
    char address[48];       // of its listener for data, as rank 0 sees it; empty: MASTER_ADDR
    char host[64];
    char host_id[160];      // equal on ranks that can share memory
};

struct Meeting : World {
    PeerInfo me = {};
    std::string key = {};
    uint64_t job_hash = 0;          // hash of the job's name; plus the rank: the tag of its memory file
    bool has_secret = false, met = false;
    double deadline = 0;            // on the clock of now_seconds()
    std::vector<Socket> listeners = {};
    std::vector<PeerInfo> peers = {};       // by rank
    std::vector<Socket> control = {};       // on rank 0: by rank; elsewhere: to rank 0, then its own, which is none
};

// Lets all ranks meet, within `patience` seconds. memory: see PeerInfo. kExitUsage: there is no secret, or a rank was
// claimed twice; kExitPeer: ranks are missing, or not authenticated. Throws the error of another rank, too.
Meeting meet_ranks(const World& world, int memory, double patience);
// Connects `ranks`, which ascend and include this one, with each other. Returns a socket for each, none for this rank.
std::vector<Socket> meet_peers(Meeting* meeting, const std::vector<int>& ranks);

// Returns the job's secret from LOCKSTEP_SECRET or LOCKSTEP_SECRET_FILE (of mode 0600, else kExitUsage); empty: neither
// is set.
std::string job_secret();
Digest hmac_sha256(const std::string& key, const std::string& message);     // RFC 2104
