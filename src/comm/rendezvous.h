// rendezvous.h -- how ranks find each other and prove that they belong to the job. For comm.cpp and tests.
//
// Lower ranks listen; higher ranks connect, and try again until the deadline. A connection begins with three frames:
//
//     listener  -> a nonce
//     connector -> Claim: PeerInfo, the error that it ends with or none, own nonce, HMAC(key, that nonce and all)
//     listener  -> when all it waits for are there: Answer: an error or none, HMAC(key, the connector's nonce and it);
//                  rank 0 adds the PeerInfos of all
//
// An error of one rank is thus every rank's: who knows one by a Claim or of its own answers with it. The key is the
// job's secret, name and size. On one host the socket is an abstract Unix one and both sides check the other's user.
// Between hosts it is TCP, and without a secret only loopback is served. What follows is clear text: the network
// between hosts must be private. A connection that proves nothing never counts as a rank and delays none.
//
// Between hosts rank 0 listens at MASTER_ADDR and MASTER_PORT, also for data. Another rank listens for the data of
// higher ranks at the address by which it reached rank 0 and at a port of LOCKSTEP_PORTS. On one host each rank listens
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
// Moves what it can without waiting. Returns 1 if it moved bytes, 0 if none, -1 if the connection closed or failed.
int move_some(int fd, bool out, Bytes* part);
// Move all; return false if the connection closed, failed, or took longer than `seconds`.
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
    int32_t memory;         // a memory file among its descriptors, for the ranks of its host
    uint32_t port;          // of its listener for data, between hosts
    int64_t began;          // when it began to meet, in ns since 1970
    char address[48];       // of that listener as rank 0 sees it; empty: MASTER_ADDR
    char host[64];
    char host_id[160];      // equal on ranks that can share memory
};

struct Meeting : World {
    PeerInfo me = {};
    std::string key = {};
    uint64_t job_hash = 0;          // with the rank the tag of a memory file
    bool has_secret = false, met = false;
    double deadline = 0;            // by now_seconds()
    std::vector<Socket> listeners = {};
    std::vector<PeerInfo> peers = {};       // by rank
    std::vector<Socket> control = {};       // of rank 0 by rank; the others' first is to rank 0. A rank's own is none
};

// Lets all ranks meet. kExitUsage: no secret, a rank claimed twice; kExitPeer: ranks are missing, or not authenticated;
// or the error of another rank.
Meeting meet_ranks(const World& world, int memory, double patience);
// Connects ranks, which ascend. Returns a socket for each, none for this rank.
std::vector<Socket> meet_peers(Meeting* meeting, const std::vector<int>& ranks);

// The job's secret from LOCKSTEP_SECRET or LOCKSTEP_SECRET_FILE (of mode 0600, else kExitUsage); empty: neither is set.
std::string job_secret();
Digest hmac_sha256(const std::string& key, const std::string& message);     // RFC 2104
